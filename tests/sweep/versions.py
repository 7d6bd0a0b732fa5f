# SPDX-License-Identifier: BSD-3-Clause
"""Checks version counters: which tensors a call writes to, and which ones autograd has saved.

Both must be the same as on the CPU. If a call writes to a tensor without increasing its version,
backward uses overwritten values without an error.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_leaves, tree_map_only
from torch_device_conformance.comparison.entry import Run, gradients, spread
from torch_device_conformance.database.operators import (
    STEERED_BY_CPU_TENSORS,
    Attempt,
    changed_tensors,
    differentiable,
    named,
    tensors,
)

# The ways to call an operator.
FUNCTIONAL, INPLACE, OUT = "functional", "in place", "out"
# Matches autograd's error about a saved tensor that was changed.
VERSIONS = re.compile(r"is at version \d+; expected version \d+")


class Versions(Attempt):
    """Calls an operator in all ways, and counts the writes to each tensor.

    Also compares whether backward raises an error after an argument or a result was changed.
    """

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        made = spread(super().samples(dtype, device), 10)
        ways = [FUNCTIONAL]
        if self.op.get_inplace() is not None:
            ways.append(INPLACE)
        plain = [changed_tensors(sample, Tensor.detach) for sample in made]
        calls = [named(sample, way) for way in ways for sample in made + plain]
        if self.op.supports_out:
            calls += [named(sample, OUT) for sample in plain]
        return calls

    def attempt(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        found: dict[str, Any] = {}
        call, arguments, targets = self._prepare(sample, device, seed)
        written = [*arguments, *targets]
        before = [leaf._version for leaf in written]
        results = [leaf for leaf in tree_leaves(call()) if isinstance(leaf, Tensor)]
        for number, (leaf, version) in enumerate(zip(written, before, strict=True)):
            found[f"version of argument {number}"] = leaf._version - version
        for number, leaf in enumerate(results):
            found[f"result {number} is"] = [n for n, a in enumerate(written) if a is leaf]
        if sample.name != OUT and differentiable(sample):
            for number in range(len(arguments) + len(results)):
                call, arguments, _ = self._prepare(sample, device, seed)
                outputs = tree_leaves(call())
                results = [leaf for leaf in outputs if isinstance(leaf, Tensor)]
                changed = [*arguments, *results][number]
                found[f"backward after a change of {number}"] = after_change(
                    changed, results, [leaf for leaf in arguments if leaf.requires_grad]
                )
        return Run(found, {})

    def _prepare(
        self, sample: SampleInput, device: torch.device, seed: int
    ) -> tuple[Callable[[], Any], list[Tensor], list[Tensor]]:
        """Returns a call, the tensors among its arguments, and the tensors for its results."""
        copy = self.copy(sample, device)
        steered = self.op.name in STEERED_BY_CPU_TENSORS
        arguments = [copy.input] if steered else tensors(copy)
        if sample.name == OUT:
            plain = self.raw(self.copy(sample, device), seed)
            out = tree_map_only(Tensor, torch.zeros_like, plain)
            targets = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
            return lambda: self.raw(copy, seed, out=out), arguments, targets
        if sample.name == INPLACE:
            if isinstance(copy.input, Tensor) and copy.input.requires_grad:
                copy.input = copy.input * 1
                arguments = [copy.input, *arguments]
            return lambda: self.call(copy, seed, self.op.get_inplace()), arguments, []
        return lambda: self.raw(copy, seed), arguments, []


def after_change(changed: Tensor, results: Iterable[Any], inputs: Sequence[Tensor]) -> str:
    """Changes a tensor and runs backward. Returns the part of the error about versions, or ""."""
    try:
        with torch.no_grad():
            changed.zero_()
    except Exception as error:
        return f"no change: {type(error).__name__}"
    return refusal(lambda: gradients(results, inputs))


def refusal(backward: Callable[[], Any]) -> str:
    """Runs backward. Returns the part of its error about versions, or "" if it succeeds."""
    try:
        backward()
    except RuntimeError as error:
        found = VERSIONS.search(str(error))
        return found[0] if found else type(error).__name__
    return ""
