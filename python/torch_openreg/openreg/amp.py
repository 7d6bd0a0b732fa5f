# SPDX-License-Identifier: BSD-3-Clause
"""Mixed precision: which types autocast may use on the device."""

import torch


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the types that ``torch.autocast("openreg")`` takes, the default one first."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Tell whether bfloat16 works, which it does on every device."""
    return True


def is_float16_supported() -> bool:
    """Tell whether float16 works, which it does on every device."""
    return True
