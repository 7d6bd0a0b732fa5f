# SPDX-License-Identifier: BSD-3-Clause
"""Device memory: what tensors hold, what the caching allocator keeps, what is left. All in bytes.

The figures are those of ``torch.accelerator``; before the first allocation they are 0.
"""

from typing import Any

import torch

from torch_openreg.openreg._utils import DeviceLike, resolve
from torch_openreg.openreg.memory_history import _dump_snapshot as _dump_snapshot
from torch_openreg.openreg.memory_history import _record_memory_history as _record_memory_history
from torch_openreg.openreg.memory_history import _snapshot as _snapshot
from torch_openreg.openreg.memory_history import memory_snapshot as memory_snapshot


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Return the bytes that ``device`` could still give, and its capacity."""
    return torch.accelerator.get_memory_info(resolve(device))


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """Return all figures of the caching allocator, named in ``torch.accelerator.memory_stats``."""
    return torch.accelerator.memory_stats(resolve(device))


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the bytes that live tensors hold, as the allocator rounds them."""
    return torch.accelerator.memory_allocated(resolve(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the most bytes that tensors held since ``reset_peak_memory_stats``."""
    return torch.accelerator.max_memory_allocated(resolve(device))


def memory_reserved(device: DeviceLike = None) -> int:
    """Return the bytes that the allocator holds of the device: for tensors, and kept for later."""
    return torch.accelerator.memory_reserved(resolve(device))


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Return the most bytes that the allocator held since ``reset_peak_memory_stats``."""
    return torch.accelerator.max_memory_reserved(resolve(device))


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Let the peaks start from what is held now."""
    torch.accelerator.reset_peak_memory_stats(resolve(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Set the counts that only grow (allocated, freed, retries) back to 0."""
    torch.accelerator.reset_accumulated_memory_stats(resolve(device))


def empty_cache() -> None:
    """Give memory that no tensor holds back to the devices. Before the first use: nothing."""
    torch.accelerator.empty_cache()


def empty_host_cache() -> None:
    """Give pinned host memory that no tensor holds back to the system."""
    torch.accelerator.empty_host_cache()
