# SPDX-License-Identifier: BSD-3-Clause
"""Checks operators under vmap and with fake tensors."""

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten
from torch_device_conformance.comparison.entry import Run, spread
from torch_device_conformance.database.operators import (
    Attempt,
    changed_tensors,
    named,
    with_arguments,
)

# Which tensors of a sample are batched: all of them, or only the first one.
WHOLE = "whole"
FIRST = "first"


class Batches(Attempt):
    """Runs an operator under vmap on two examples. The second one has half of the values."""

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        made = spread(list(self.op.sample_inputs("cpu", dtype)), 40)
        return [named(sample, what) for sample in made for what in (WHOLE, FIRST)]

    def attempt(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        one = self.copy(sample, device)
        leaves, form = tree_flatten((one.input, one.args, one.kwargs))
        places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        if sample.name == FIRST:
            places = places[:1]

        def function(*batched: Tensor) -> tuple[Tensor, ...]:
            filled = list(leaves)
            for place, leaf in zip(places, batched, strict=True):
                filled[place] = leaf
            return tuple(self.call(with_arguments(one, *tree_unflatten(filled, form)), seed))

        batches = [pair(leaves[place]) for place in places]
        outputs = torch.vmap(function, randomness="different")(*batches)
        return Run({f"output {number}": leaf for number, leaf in enumerate(outputs)}, {})


def pair(x: Tensor) -> Tensor:
    """Returns two examples: a tensor, and half of it (or the same tensor for integer dtypes)."""
    half = x * 0.5 if x.is_floating_point() or x.is_complex() else x
    return torch.stack([x, half.to(x.dtype)])


class Fakes(Attempt):
    """Calls an operator with fake tensors.

    The results must have the same metadata as with fake CPU tensors. If fake and real results match
    on the CPU, they must also match on the device.
    """

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        return spread(list(self.op.sample_inputs("cpu", dtype)), 60)

    def attempt(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        real = tree_leaves(self.raw(self.copy(sample, device), seed))
        mode = FakeTensorMode()
        copy = changed_tensors(self.copy(sample, device), mode.from_tensor)
        with mode:
            fake = tree_leaves(self.raw(copy, seed))
        here = self.place(sample, device)
        found: dict[str, Any] = {"results": len(fake)}
        for number, (leaf, like) in enumerate(zip(fake, real, strict=True)):
            if isinstance(leaf, Tensor):
                seen = metadata(leaf, here)
                found[f"output {number}"] = seen
                found[f"output {number} as real"] = seen == metadata(like, here)
        return Run(found, {})


def metadata(x: Tensor, device: torch.device) -> tuple[Any, ...]:
    """Returns a tensor's metadata, with "here" in place of the type of `device`."""
    strides = x.stride() if x.layout == torch.strided and x.numel() else ()
    here = "here" if x.device.type == device.type else x.device.type
    return (here, x.dtype, tuple(x.shape), strides, x.is_conj(), x.is_neg())
