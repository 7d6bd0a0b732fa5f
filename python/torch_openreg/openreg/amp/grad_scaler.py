# SPDX-License-Identifier: BSD-3-Clause
"""Scales the loss, so that small float16 gradients do not underflow."""

import torch
from torch.amp.grad_scaler import OptState

from torch_openreg.name import DEVICE_TYPE

__all__ = ["GradScaler", "OptState"]


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("openreg")``, which prevents underflow of small float16 gradients.

    Args:
        init_scale: the initial scale of the loss.
        growth_factor: multiplies the scale after ``growth_interval`` finite steps; greater than 1.
        backoff_factor: multiplies the scale after a step with an infinity or NaN; less than 1.
        growth_interval: the number of consecutive finite steps after which the scale grows.
        enabled: if False, the scaler only calls the optimizer.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            DEVICE_TYPE, init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )
