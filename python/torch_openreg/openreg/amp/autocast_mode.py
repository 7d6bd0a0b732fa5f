# SPDX-License-Identifier: BSD-3-Clause
"""Autocast regions, and decorators that apply them to a ``torch.autograd.Function``."""

from functools import partial

import torch

from torch_openreg.name import DEVICE_TYPE

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


class autocast(torch.amp.autocast_mode.autocast):  # noqa: N801: torch's name
    """The region ``torch.autocast("openreg")``, as a context manager or a decorator.

    Args:
        enabled: if False, nothing is cast in the region.
        dtype: the dtype of matrix products and similar operators, one of
            ``get_amp_supported_dtype()``; for any other dtype torch warns and disables the region.
        cache_enabled: whether a weight is cast once per region instead of at each use.
    """

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype = torch.float16,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__(DEVICE_TYPE, dtype, enabled, cache_enabled)


#: Decorators for ``forward`` and ``backward`` of a ``torch.autograd.Function``.
custom_fwd = partial(torch.amp.custom_fwd, device_type=DEVICE_TYPE)
custom_bwd = partial(torch.amp.custom_bwd, device_type=DEVICE_TYPE)
