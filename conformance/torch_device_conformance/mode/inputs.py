# SPDX-License-Identifier: BSD-3-Clause
"""Checks operators on inputs that torch's database lacks.

The inputs are derived from the database's samples. They have different strides, sizes or dtypes, or
a lazy conjugation or negation. If the CPU rejects an input, the device must reject it too.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.testing import make_tensor
from torch.testing._internal.common_utils import noncontiguous_like
from torch.testing._internal.opinfo.core import SampleInput
from torch_device_conformance.comparison.entry import spread
from torch_device_conformance.database.operators import Attempt, changed_tensors
from torch_device_conformance.mode.timing import Punctual

# The maximum number of samples per entry that other samples are derived from.
MOST = 12


class Derived(Attempt):
    """Base class of modes that derive their samples from the database's samples."""

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        return [
            made
            for sample in spread(super().samples(dtype, device), MOST)
            for made in self.derive(sample)
        ]

    @abstractmethod
    def derive(self, sample: SampleInput) -> Iterable[SampleInput]:
        """Returns the samples derived from a sample of the database."""


class Layouts(Derived):
    """Calls an operator with inputs that have gaps, are transposed with an offset, or expanded."""

    def derive(self, sample: SampleInput) -> Iterable[SampleInput]:
        for layout in (noncontiguous_like, transposed, expanded):
            yield changed(sample, layout)


class Sizes(Derived):
    """Calls an operator with inputs that have no elements or no dimensions."""

    def derive(self, sample: SampleInput) -> Iterable[SampleInput]:
        for size in (empty, last_empty, without_dimensions):
            yield changed(sample, size)


class Conjugates(Derived):
    """Calls an operator with inputs whose lazy conjugation or negation bit is set."""

    def derive(self, sample: SampleInput) -> Iterable[SampleInput]:
        yield changed(sample, negated)
        if any(leaf.is_complex() for leaf in (sample.input,) if isinstance(leaf, Tensor)):
            yield changed(sample, conjugated)
            yield changed(sample, both_lazy)


def changed(sample: SampleInput, change: Callable[[Tensor], Tensor]) -> SampleInput:
    """Returns a sample with `change` applied to all strided tensors, named after `change`."""

    def apply(leaf: Tensor) -> Tensor:
        if leaf.layout != torch.strided:
            return leaf
        return change(leaf.detach()).requires_grad_(leaf.requires_grad)

    return changed_tensors(sample, apply, getattr(change, "__name__", ""))


def transposed(x: Tensor) -> Tensor:
    """Returns the values of `x` with a storage offset of 1 and the first dimension innermost."""
    order = list(reversed(range(x.dim())))
    inner = x.permute(order).contiguous()
    whole = torch.cat([inner.flatten()[:1], inner.flatten()])
    offset = min(1, inner.numel())
    return whole[offset:].view(inner.shape).permute(order)


def expanded(x: Tensor) -> Tensor:
    """Returns the first slice of the first dimension, expanded to the shape of `x`."""
    return x[:1].expand_as(x) if x.dim() else x


def empty(x: Tensor) -> Tensor:
    """Returns a view of `x` with size 0 in the first dimension."""
    return x[:0] if x.dim() else x


def last_empty(x: Tensor) -> Tensor:
    """Returns a view of `x` with size 0 in the last dimension."""
    return x[..., :0] if x.dim() else x


def without_dimensions(x: Tensor) -> Tensor:
    """Returns the first element of `x` as a 0-dim tensor."""
    return x.flatten()[0] if x.numel() else x


def conjugated(x: Tensor) -> Tensor:
    """Returns the values of `x` as a lazy conjugate."""
    return x.conj().resolve_conj().conj() if x.is_complex() else x


def negated(x: Tensor) -> Tensor:
    """Returns the values of `x` as a lazy negative."""
    signed = x.dtype.is_signed and x.dtype != torch.bool
    return torch._neg_view(-x) if signed else x


def both_lazy(x: Tensor) -> Tensor:
    """Returns the values of `x` as a lazy negative of a lazy conjugate."""
    return (
        torch._neg_view((-conjugated(x).resolve_conj()).conj().resolve_conj().conj())
        if x.is_complex()
        else negated(x)
    )


class Dtypes(Punctual):
    """Calls an operator with dtypes that the CPU does not support for the operator."""

    raises = True

    def supports(self, dtype: torch.dtype) -> bool:
        return not super().supports(dtype)

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        known = sorted(self.op.supported_dtypes("cpu"), key=str)
        source = torch.float32 if torch.float32 in known else known[0]
        made = spread(list(self.op.sample_inputs("cpu", source)), 3)

        def convert(leaf: Tensor) -> Tensor:
            if leaf.dtype != source:
                return leaf
            return make_tensor(leaf.shape, dtype=dtype, device="cpu", low=0, high=2)

        return [changed(sample, convert) for sample in made]
