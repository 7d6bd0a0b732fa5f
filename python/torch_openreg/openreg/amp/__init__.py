# SPDX-License-Identifier: BSD-3-Clause
"""Mixed precision: ``torch.openreg.amp``, the counterpart of ``torch.cuda.amp``.

The classes are torch's, with this device as the fixed argument. Programs for several devices use
the equivalent ``torch.autocast(type)`` and ``torch.amp.GradScaler(type)``. See docs/amp.md.
"""

import torch

from torch_openreg.openreg.amp.autocast_mode import autocast, custom_bwd, custom_fwd
from torch_openreg.openreg.amp.grad_scaler import GradScaler
from torch_openreg.openreg.devices import is_available

__all__ = [
    "GradScaler",
    "amp_definitely_not_available",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "get_amp_supported_dtype",
    "is_bf16_supported",
    "is_float16_supported",
]


def amp_definitely_not_available() -> bool:
    """Return whether there is no device. Autocast regions and scalers then have no effect."""
    return not is_available()


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that ``torch.autocast("openreg")`` accepts; the first is the default."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether bfloat16 is supported: always True."""
    return True


def is_float16_supported() -> bool:
    """Return whether float16 is supported: always True."""
    return True
