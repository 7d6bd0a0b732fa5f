# SPDX-License-Identifier: BSD-3-Clause
"""A kernel that keeps a stream busy, where the backend has one.

With it an error of a kernel is never mistaken for an error of the call, and a missing dependency
between streams is seen each time. Without it the same checks run, and see less.
"""

from collections.abc import Callable
from typing import Any

import torch

# Nanoseconds, or cycles: torch.cuda._sleep and those who copied it count cycles.
SHORT = 1_000_000
LONG = 100_000_000


def delay_kernel(device: torch.device) -> Callable[[int], Any] | None:
    """Returns the function that keeps the current stream busy, or None.

    It is ``torch.<device>._sleep``, whose argument is nanoseconds or cycles.
    """
    found = getattr(getattr(torch, device.type, None), "_sleep", None)
    return found if callable(found) else None


def keep_busy(device: torch.device, duration: int = SHORT) -> bool:
    """Keeps the current stream of a device busy.

    Args:
        device: of the stream.
        duration: nanoseconds or cycles.

    Returns:
        Whether the backend has a delay kernel.
    """
    kernel = delay_kernel(device)
    if kernel is None:
        return False
    kernel(duration)
    return True
