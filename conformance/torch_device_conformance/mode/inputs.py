# SPDX-License-Identifier: BSD-3-Clause
"""Checks operators on inputs that are not in torch's database.

The inputs are made from its samples: other strides, other sizes, values with a pending conjugation
or negation. Where such an input is not valid, the device must reject it if the CPU does.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.testing import make_tensor
from torch.testing._internal.common_utils import noncontiguous_like
from torch.testing._internal.opinfo.core import SampleInput
from torch_device_conformance.comparison.comparison import spread
from torch_device_conformance.database.operators import Attempt, changed_tensors
from torch_device_conformance.mode.timing import Punctual

# Maximum number of samples of an entry.
MOST = 12


class Derived(Attempt):
    """Samples derived from those of the database."""

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        return [
            made
            for sample in spread(super().samples(dtype, device), MOST)
            for made in self.derive(sample)
        ]

    @abstractmethod
    def derive(self, sample: SampleInput) -> Iterable[SampleInput]:
        """Derives samples from one sample."""


class Layouts(Derived):
    """Inputs that have gaps or an offset, or are transposed or expanded."""

    def derive(self, sample: SampleInput) -> Iterable[SampleInput]:
        for layout in (noncontiguous_like, transposed, expanded):
            yield changed(sample, layout)


class Sizes(Derived):
    """Inputs without elements and without dimensions."""

    def derive(self, sample: SampleInput) -> Iterable[SampleInput]:
        for size in (empty, last_empty, without_dimensions):
            yield changed(sample, size)


class Conjugates(Derived):
    """Inputs with the lazy bits of conjugation and negation."""

    def derive(self, sample: SampleInput) -> Iterable[SampleInput]:
        yield changed(sample, negated)
        if any(leaf.is_complex() for leaf in (sample.input,) if isinstance(leaf, Tensor)):
            yield changed(sample, conjugated)
            yield changed(sample, both_lazy)


def changed(sample: SampleInput, change: Callable[[Tensor], Tensor]) -> SampleInput:
    """A sample with all strided tensors changed."""

    def apply(leaf: Tensor) -> Tensor:
        if leaf.layout != torch.strided:
            return leaf
        return change(leaf.detach()).requires_grad_(leaf.requires_grad)

    return changed_tensors(sample, apply, getattr(change, "__name__", ""))


def transposed(x: Tensor) -> Tensor:
    """The same values with an offset and with the first dimension innermost."""
    order = list(reversed(range(x.dim())))
    inner = x.permute(order).contiguous()
    whole = torch.cat([inner.flatten()[:1], inner.flatten()])
    offset = min(1, inner.numel())
    return whole[offset:].view(inner.shape).permute(order)


def expanded(x: Tensor) -> Tensor:
    """The first element of the first dimension, expanded along it."""
    return x[:1].expand_as(x) if x.dim() else x


def empty(x: Tensor) -> Tensor:
    """The same shape with size 0 in the first dimension."""
    return x[:0] if x.dim() else x


def last_empty(x: Tensor) -> Tensor:
    """The same shape with size 0 in the last dimension."""
    return x[..., :0] if x.dim() else x


def without_dimensions(x: Tensor) -> Tensor:
    """One element as a 0-dim tensor."""
    return x.flatten()[0] if x.numel() else x


def conjugated(x: Tensor) -> Tensor:
    """The same values as a lazy conjugate."""
    return x.conj().resolve_conj().conj() if x.is_complex() else x


def negated(x: Tensor) -> Tensor:
    """The same values as a lazy negative."""
    signed = x.dtype.is_signed and x.dtype != torch.bool
    return torch._neg_view(-x) if signed else x


def both_lazy(x: Tensor) -> Tensor:
    """The same values as a lazy negative of a lazy conjugate."""
    return (
        torch._neg_view((-conjugated(x).resolve_conj()).conj().resolve_conj().conj())
        if x.is_complex()
        else negated(x)
    )


class Dtypes(Punctual):
    """Inputs of a dtype that the CPU does not support for the operator."""

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
