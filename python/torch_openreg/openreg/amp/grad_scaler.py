# SPDX-License-Identifier: BSD-3-Clause
"""The scaler of losses that keeps small gradients of float16 from vanishing."""

import torch
from torch.amp.grad_scaler import OptState

from torch_openreg.name import DEVICE_TYPE

__all__ = ["GradScaler", "OptState"]


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("openreg")``: keeps small gradients of float16 from vanishing.

    Args:
        init_scale: factor of the loss at the beginning.
        growth_factor: what the factor is multiplied by after ``growth_interval`` good steps; > 1.
        backoff_factor: what it is multiplied by after a step with an infinity or NaN; < 1.
        growth_interval: good steps in a row after which the factor grows.
        enabled: False makes a scaler that only calls the optimizer.
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
