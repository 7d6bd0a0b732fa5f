# SPDX-License-Identifier: BSD-3-Clause
"""Checks operators that write to the caller's tensors: with out=, or in place."""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_utils import noncontiguous_like
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_leaves, tree_map_only
from torch_device_conformance.comparison.entry import Run, spread, synchronize
from torch_device_conformance.comparison.wording import wording
from torch_device_conformance.database.operators import (
    changed_tensors,
    differentiable,
    named,
    with_arguments,
)
from torch_device_conformance.mode.inputs import changed, expanded
from torch_device_conformance.mode.timing import Punctual

FILL = 2


def transposed(like: Tensor) -> Tensor:
    """Returns a tensor shaped like `like` in column-major layout: dimension 0 has stride 1."""
    order = list(reversed(range(like.dim())))
    return torch.full_like(
        like.permute(order), FILL, memory_format=torch.contiguous_format
    ).permute(order)


def complexified(like: Tensor) -> Tensor:
    """Returns a complex128 tensor with the shape of `like`."""
    return torch.full_like(like, FILL, dtype=torch.complex128)


# Functions that create an out= tensor from the result of a call without out=. They fill it with
# FILL, so that the comparison detects elements that the operator does not write.
WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "right": lambda like: torch.full_like(like, FILL),
    "transposed": transposed,
    "with gaps": lambda like: like.new_full((*like.shape, 2), FILL)[..., 1],
    "without elements": lambda like: like.new_empty(0),
    "too large": lambda like: like.new_full((*like.shape, 2), FILL),
    "expanded": lambda like: like.new_full((), FILL).expand(like.shape),
    "double": lambda like: torch.full_like(like, FILL, dtype=torch.float64),
    "complex": complexified,
    "long": lambda like: torch.full_like(like, FILL, dtype=torch.int64),
    "bool": lambda like: torch.full_like(like, FILL, dtype=torch.bool),
    "differentiable": lambda like: torch.full_like(
        like, FILL, dtype=torch.float32
    ).requires_grad_(),
}
RESIZED = frozenset({"without elements", "too large"})

# The name of a sample whose out= tensor overlaps the input: it starts one element later. The
# operator may either raise an error, or return an undefined result.
OVERLAPPING = "overlapping the input"


# The warning with which torch creates complex32 tensors on the CPU. Creating them on other devices
# raises no warning, and a CPU kernel may create temporary ones.
OF_THE_CPU = "ComplexHalf support is experimental"


@contextmanager
def recorded(into: dict[str, Any], device: torch.device) -> Iterator[None]:
    """Records the warnings of the `with` block and of the kernels that are launched in it."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            yield
            synchronize(device)
    finally:
        torch.set_warn_always(before)
    rules = wording()
    words = {
        re.sub(r" \(Triggered.*", "", rules.addition.sub("", str(w.message)), flags=re.S)
        for w in seen
        if not str(w.message).startswith(OF_THE_CPU)
    }
    into["warnings"] = sorted(words)


class Out(Punctual):
    """Calls an operator with out= tensors of every layout, dtype and size in `WAYS`.

    An out= tensor of the right size must keep its memory and strides. Any other out= tensor must be
    resized. If it had elements, there must be a warning.
    """

    def supports(self, dtype: torch.dtype) -> bool:
        return super().supports(dtype) and self.op.supports_out

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        made = list(self.op.sample_inputs("cpu", dtype))
        few = spread(made, 5)
        return [named(sample, "right") for sample in made] + [
            named(sample, way) for sample in few for way in (*WAYS, OVERLAPPING) if way != "right"
        ]

    def attempt(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        arguments = self.copy(sample, device)
        plain = self.raw(arguments, seed)
        if sample.name == OVERLAPPING:
            return self.overlap(sample, plain, device, seed)
        out = tree_map_only(Tensor, WAYS[sample.name], plain)
        targets = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        before = [(leaf.data_ptr(), leaf._version) for leaf in targets]
        found: dict[str, Any] = {}
        arguments = self.copy(sample, device)
        with recorded(found, device):
            result = self.raw(arguments, seed, out=out)
        for number, leaf in enumerate(tree_leaves(result)):
            found[f"result {number} is given"] = number < len(targets) and leaf is targets[number]
        for number, (leaf, (pointer, version)) in enumerate(zip(targets, before, strict=True)):
            # On devices other than the CPU, torch resizes through the dispatcher, which increases
            # the version.
            if sample.name not in RESIZED:
                found[f"version {number}"] = leaf._version - version
                found[f"memory {number} kept"] = leaf.data_ptr() == pointer
        processed = tree_leaves(sample.output_process_fn_grad(out))
        found |= {f"output {number}": leaf for number, leaf in enumerate(processed)}
        return Run(found, {})

    def overlap(self, sample: SampleInput, result: Any, device: torch.device, seed: int) -> Run:
        """Passes an out= tensor that overlaps the input. Compares only whether the call raises."""
        arguments = self.copy(sample, device)
        first = arguments.input
        if isinstance(first, Tensor) and isinstance(result, Tensor) and first.dtype == result.dtype:
            memory = first.new_ones(max(first.numel(), result.numel()) + 1)
            source = memory[: first.numel()].view(first.shape).copy_(first)
            out = memory[1:][: result.numel()].view(result.shape)
            self.raw(
                with_arguments(arguments, source, arguments.args, arguments.kwargs), seed, out=out
            )
        return Run({}, {})


class InPlace(Punctual):
    """Calls the in-place variant of an operator, which writes to its first argument."""

    def supports(self, dtype: torch.dtype) -> bool:
        return super().supports(dtype) and self.op.get_inplace() is not None

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        made = super().samples(dtype, device)
        plain = [changed_tensors(sample, Tensor.detach) for sample in made]
        few = spread(plain, 5)
        # A tier with few samples always includes the last one, so the CPU must accept the last
        # sample.
        layouts = [changed(sample, way) for way in (expanded, noncontiguous_like) for sample in few]
        return [sample for sample in made if differentiable(sample)] + plain + layouts

    def attempt(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        sample = self.copy(sample, device)
        inputs = differentiable(sample)
        target = sample.input
        if isinstance(target, Tensor) and target.requires_grad:
            target = sample.input = target.clone()
        found: dict[str, Any] = {}
        version, pointer = target._version, target.data_ptr()
        with recorded(found, device):
            outputs = self.call(sample, seed, self.op.get_inplace())
        found["result is given"] = outputs[0] is target
        found["version"] = target._version - version
        found["memory kept"] = target.data_ptr() == pointer
        found |= {f"output {number}": leaf for number, leaf in enumerate(outputs)}
        found["target"] = target
        slopes = self.gradients(outputs, inputs)
        return Run(found, {f"gradient {number}": leaf for number, leaf in enumerate(slopes)})
