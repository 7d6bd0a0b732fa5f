# SPDX-License-Identifier: BSD-3-Clause
"""The delay kernel, which keeps a stream busy. Not every backend has such a kernel.

If the backend has a delay kernel, a kernel error is never mistaken for an error of the call, and a
missing dependency between streams is always detected. Otherwise the same checks run, but may miss
these mistakes.
"""

from collections.abc import Callable
from typing import Any

import torch

# Durations in nanoseconds or cycles: torch.cuda._sleep, and functions modeled on it, count cycles.
SHORT = 1_000_000
LONG = 100_000_000


def delay_kernel(device: torch.device) -> Callable[[int], Any] | None:
    """Returns ``torch.<device>._sleep``, or None if the backend does not have this function.

    The function keeps the current stream busy. Its argument is a number of nanoseconds or cycles.
    """
    found = getattr(getattr(torch, device.type, None), "_sleep", None)
    return found if callable(found) else None


def keep_busy(device: torch.device, duration: int = SHORT) -> bool:
    """Keeps a device's current stream busy.

    Args:
        device: device of the stream.
        duration: duration in nanoseconds or cycles.

    Returns:
        Whether the backend has a delay kernel.
    """
    kernel = delay_kernel(device)
    if kernel is None:
        return False
    kernel(duration)
    return True
