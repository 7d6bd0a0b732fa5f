# SPDX-License-Identifier: BSD-3-Clause
"""Checks derivatives other than the gradient: forward mode and second order."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.testing._internal.opinfo.core import SampleInput
from torch_device_conformance.comparison.entry import Run, random_like, spread
from torch_device_conformance.database.operators import Attempt, changed_tensors, differentiable


class ForwardDerivative(Attempt):
    """Computes the forward-mode derivatives of an operator's results in random directions."""

    def supports(self, dtype: torch.dtype) -> bool:
        return super().supports(dtype) and self.backward(dtype) and self.op.supports_forward_ad

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        return [sample for sample in super().samples(dtype, device) if differentiable(sample)]

    def attempt(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        generator = torch.Generator().manual_seed(0)

        def dual(leaf: Tensor) -> Tensor:
            if not leaf.requires_grad:
                return leaf
            made: Tensor = forward_ad.make_dual(leaf.detach(), random_like(leaf, generator))
            return made

        with forward_ad.dual_level():
            outputs = self.call(changed_tensors(self.copy(sample, device), dual), seed)
            found: dict[str, Any] = {}
            for number, leaf in enumerate(outputs):
                if isinstance(leaf, Tensor):
                    primal, tangent = forward_ad.unpack_dual(leaf)
                    found[f"output {number}"] = primal
                    found[f"derivative {number}"] = tangent
        return Run(found, {})


# Tolerances are widened by this factor, because three passes accumulate rounding errors.
PASSES = 30


class SecondDerivative(Attempt):
    """Differentiates the gradients of an operator again."""

    def tolerances(self, dtype: torch.dtype) -> tuple[float, float]:
        rtol, atol = super().tolerances(dtype)
        return PASSES * rtol, PASSES * atol

    def supports(self, dtype: torch.dtype) -> bool:
        return super().supports(dtype) and self.backward(dtype) and self.op.supports_gradgrad

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        made = super().samples(dtype, device)
        return spread([sample for sample in made if differentiable(sample)], 50)

    def attempt(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        sample = self.copy(sample, device)
        inputs = differentiable(sample)
        outputs = self.call(sample, seed)
        generator = torch.Generator().manual_seed(0)

        def weights(roots: list[Tensor]) -> list[Tensor]:
            return [random_like(root, generator).requires_grad_() for root in roots]

        roots = [leaf for leaf in outputs if isinstance(leaf, Tensor) and leaf.requires_grad]
        if not roots:
            return Run({}, {})
        first = weights(roots)
        slopes = torch.autograd.grad(roots, inputs, first, create_graph=True, allow_unused=True)
        roots = [slope for slope in slopes if slope is not None and slope.requires_grad]
        if not roots:
            return Run({}, {})
        curves = torch.autograd.grad(roots, inputs + first, weights(roots), allow_unused=True)
        return Run({}, {f"second gradient {number}": leaf for number, leaf in enumerate(curves)})
