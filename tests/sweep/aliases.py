# SPDX-License-Identifier: BSD-3-Clause
"""Checks which results share memory with arguments, and what a call does to its arguments."""

from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_leaves
from torch_device_conformance.comparison.entry import Run
from torch_device_conformance.database.operators import (
    STEERED_BY_CPU_TENSORS,
    Attempt,
    changed_tensors,
    tensors,
)


class Aliases(Attempt):
    """Compares which results are arguments, are views of arguments, or share memory with them.

    Also compares the values and the versions of the arguments after the call.
    """

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        made = super().samples(dtype, device)
        if not self.backward(dtype):
            return made
        return [*made, *(changed_tensors(sample, Tensor.detach) for sample in made)]

    def attempt(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        sample = self.copy(sample, device)
        steered = self.op.name in STEERED_BY_CPU_TENSORS
        arguments = [sample.input] if steered else tensors(sample)
        before = [leaf._version for leaf in arguments]
        found: dict[str, Any] = {}
        outputs = [leaf for leaf in tree_leaves(self.raw(sample, seed)) if isinstance(leaf, Tensor)]
        for number, leaf in enumerate(outputs):
            found[f"relation of output {number}"] = relation(leaf, [*arguments, *outputs[:number]])
        for number, (leaf, version) in enumerate(zip(arguments, before, strict=True)):
            found[f"version of argument {number}"] = leaf._version - version
            found[f"argument {number}"] = leaf
        return Run(found, {})


def relation(leaf: Tensor, others: list[Tensor]) -> tuple[Any, ...]:
    """Describes how a tensor is related to others: it is one of them, a view, or shares memory."""
    is_ = [n for n, other in enumerate(others) if other is leaf]
    base = [n for n, other in enumerate(others) if leaf._base is not None and other is leaf._base]
    lazy = leaf.is_conj(), leaf.is_neg()
    if leaf.layout != torch.strided:
        return (is_, base, *lazy)
    shares = [
        n
        for n, other in enumerate(others)
        if other.layout == torch.strided and storage(other) == storage(leaf)
    ]
    return (is_, base, *lazy, leaf._is_view(), shares, leaf.storage_offset(), leaf.is_leaf)


def storage(x: Tensor) -> int:
    """Returns the identity of a tensor's storage."""
    identity: int = x.untyped_storage()._cdata
    return identity
