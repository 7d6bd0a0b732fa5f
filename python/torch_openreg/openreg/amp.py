# SPDX-License-Identifier: BSD-3-Clause
"""Mixed precision: ``torch.openreg.amp``, which has what ``torch.cuda.amp`` has.

It is torch's own, told which device. Programs for several devices write ``torch.autocast(type)``
and ``torch.amp.GradScaler(type)``, which do the same. See docs/amp.md.
"""

from functools import partial

import torch

from torch_openreg.name import DEVICE_TYPE

__all__ = [
    "GradScaler",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "get_amp_supported_dtype",
    "is_bf16_supported",
    "is_float16_supported",
]


class autocast(torch.amp.autocast_mode.autocast):  # noqa: N801: as torch calls it
    """A region of ``torch.autocast("openreg")``: a context manager, and a decorator.

    Args:
        enabled: False makes a region in which nothing is cast.
        dtype: of matrix products and the like: one of ``get_amp_supported_dtype()``; with another
            one torch warns and disables the region.
        cache_enabled: whether a weight is cast once in a region, not at each use.
    """

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype = torch.float16,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__(DEVICE_TYPE, dtype, enabled, cache_enabled)


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


#: Decorators of ``forward`` and ``backward`` of a torch.autograd.Function.
custom_fwd = partial(torch.amp.custom_fwd, device_type=DEVICE_TYPE)
custom_bwd = partial(torch.amp.custom_bwd, device_type=DEVICE_TYPE)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the types that ``torch.autocast("openreg")`` takes, the default one first."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Tell whether bfloat16 works, which it does on every device."""
    return True


def is_float16_supported() -> bool:
    """Tell whether float16 works, which it does on every device."""
    return True
