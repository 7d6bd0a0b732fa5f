# SPDX-License-Identifier: BSD-3-Clause
"""Regions of autocast, and what a ``torch.autograd.Function`` does in them."""

from functools import partial

import torch

from torch_openreg.name import DEVICE_TYPE

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


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


#: Decorators of ``forward`` and ``backward`` of a torch.autograd.Function.
custom_fwd = partial(torch.amp.custom_fwd, device_type=DEVICE_TYPE)
custom_bwd = partial(torch.amp.custom_bwd, device_type=DEVICE_TYPE)
