# SPDX-License-Identifier: BSD-3-Clause
"""Reports, limits and frees device memory and pinned memory. All sizes are in bytes.

The statistics are those of ``torch.accelerator``. Before the first allocation they are 0.
"""

import os
import warnings
from collections import OrderedDict
from typing import Any

import torch

from torch_openreg import _C
from torch_openreg.name import DEVICE_TYPE, MODULE
from torch_openreg.openreg._utils import DeviceLike, resolve
from torch_openreg.openreg.memory_history import _dump_snapshot as _dump_snapshot
from torch_openreg.openreg.memory_history import _record_memory_history as _record_memory_history
from torch_openreg.openreg.memory_history import _snapshot as _snapshot
from torch_openreg.openreg.memory_history import memory_snapshot as memory_snapshot
from torch_openreg.openreg.memory_pool import MemPool as MemPool
from torch_openreg.openreg.memory_pool import use_mem_pool as use_mem_pool


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Return the free and the total memory of ``device`` in bytes."""
    return torch.accelerator.get_memory_info(resolve(device))


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """Return all of the caching allocator's statistics (see ``torch.accelerator.memory_stats``)."""
    return torch.accelerator.memory_stats(resolve(device))


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """Return ``memory_stats`` as nested dicts: ``["segment"]["all"]["peak"]``."""
    index = resolve(device)
    if not torch._C._accelerator_isAllocatorInitialized():
        return {}
    stats: dict[str, Any] = torch._C._accelerator_getDeviceStats(index)
    return stats


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the number of bytes that tensors use, including the allocator's rounding."""
    return torch.accelerator.memory_allocated(resolve(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the peak of ``memory_allocated`` since ``reset_peak_memory_stats``."""
    return torch.accelerator.max_memory_allocated(resolve(device))


def memory_reserved(device: DeviceLike = None) -> int:
    """Return the number of bytes that the allocator has reserved: used by tensors, or cached."""
    return torch.accelerator.memory_reserved(resolve(device))


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Return the peak of ``memory_reserved`` since ``reset_peak_memory_stats``."""
    return torch.accelerator.max_memory_reserved(resolve(device))


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Reset all peaks to the current values."""
    torch.accelerator.reset_peak_memory_stats(resolve(device))


def _warn_legacy_name(name: str, new: str) -> None:
    warnings.warn(f"{MODULE}.{name} is deprecated: use {MODULE}.{new}", FutureWarning, stacklevel=3)


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """Legacy name of ``reset_peak_memory_stats``, which resets all peaks."""
    _warn_legacy_name("reset_max_memory_allocated", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceLike = None) -> None:
    """Legacy name of ``reset_peak_memory_stats``, which resets all peaks."""
    _warn_legacy_name("reset_max_memory_cached", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def memory_cached(device: DeviceLike = None) -> int:
    """Legacy name of ``memory_reserved``."""
    _warn_legacy_name("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: DeviceLike = None) -> int:
    """Legacy name of ``max_memory_reserved``."""
    _warn_legacy_name("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def device_memory_used(device: DeviceLike = None) -> int:
    """Return the number of bytes of ``device`` in use, including direct allocations."""
    free, total = mem_get_info(device)
    return total - free


def list_gpu_processes(device: DeviceLike = None) -> str:
    """Return a text that lists the processes using ``device`` and the memory of each process.

    The text lists only this process, because a process has no information about other processes
    except for the memory that they share with it. Before the first use of the device, the text
    lists no process.
    """
    index = resolve(device)
    name = f"{DEVICE_TYPE}:{index}"
    if not _C.is_initialized():
        return f"{name}\nno processes are running"
    used = device_memory_used(index) / 2**20
    return f"{name}\nprocess {os.getpid():>10d} uses {used:>12.3f} MB of device memory"


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Reset the cumulative counters (allocated, freed, retries) to 0."""
    torch.accelerator.reset_accumulated_memory_stats(resolve(device))


# The rows of memory_summary: the statistic, its title, and whether it is in bytes.
_SUMMARY = (
    ("allocated_bytes", "Allocated", True),
    ("active_bytes", "and used by streams", True),
    ("requested_bytes", "Requested", True),
    ("reserved_bytes", "Reserved", True),
    ("inactive_split_bytes", "Free between blocks", True),
    ("allocation", "Allocated blocks", False),
    ("active", "and used by streams", False),
    ("segment", "Segments", False),
    ("inactive_split", "Free between blocks", False),
)


def _bytes(value: int) -> str:
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    scaled = float(value)
    for unit in units[:-1]:
        if scaled < 10240:
            return f"{scaled:.0f} {unit}"
        scaled /= 1024
    return f"{scaled:.0f} {units[-1]}"


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """Return the caching allocator's statistics as a human-readable table.

    Args:
        device: the device; None means the current one.
        abbreviated: if True, omit the rows for the small and the large pool.
    """
    index = resolve(device)
    stats = memory_stats(index)
    columns = ("current", "peak", "allocated", "freed")
    heads = ("Now", "Peak", "Sum allocated", "Sum freed")
    rule = "+" + "-" * 25 + ("+" + "-" * 15) * len(columns) + "+"
    lines = [
        f"Memory of device {DEVICE_TYPE}:{index}: {stats.get('num_ooms', 0)} out-of-memory errors, "
        f"{stats.get('num_alloc_retries', 0)} retries after the cache was emptied",
        rule,
        f"| {'':<23} |" + "".join(f" {head:>13} |" for head in heads),
    ]
    pools = [("all", ""), ("large_pool", "  large"), ("small_pool", "  small")]
    for key, title, in_bytes in _SUMMARY:
        lines.append(rule)
        for pool, indented in pools[: 1 if abbreviated else None]:
            values = [int(stats.get(f"{key}.{pool}.{column}", 0)) for column in columns]
            cells = [_bytes(value) if in_bytes else str(value) for value in values]
            lines.append(f"| {indented or title:<23} |" + "".join(f" {c:>13} |" for c in cells))
    lines.append(rule)
    return "\n".join(lines) + "\n"


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limit this process to a fraction of a device's memory.

    Existing allocations are not affected. Allocations beyond the limit raise ``OutOfMemoryError``.

    Args:
        fraction: from 0 to 1, relative to the total memory that ``mem_get_info`` returns.
        device: the device; None means the current one.

    Raises:
        TypeError: if ``fraction`` is not a number.
        ValueError: if ``fraction`` is not from 0 to 1.
    """
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
        raise TypeError(f"fraction must be a number, but got {type(fraction).__name__}")
    _C.set_memory_fraction(resolve(device), fraction)


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """Return the fraction of a device's memory that this process may use (default: 1)."""
    return _C.memory_fraction(resolve(device))


def caching_allocator_alloc(
    size: int, device: DeviceLike = None, stream: torch.Stream | int | None = None
) -> int:
    """Allocate device memory without a tensor, for other libraries.

    Args:
        size: the size in bytes.
        device: the device; None means the current one.
        stream: the stream that will use the memory, or its handle; None means the device's current
            stream.

    Returns:
        The address, or 0 if the size is 0. Free the memory with ``caching_allocator_delete``.

    Raises:
        TypeError: if ``stream`` is neither a stream nor an integer.
        ValueError: for a negative size.
        RuntimeError: for a stream on another device, or a destroyed stream.
        torch.OutOfMemoryError: if there is not enough memory.
    """
    index = resolve(device)
    if stream is None:
        stream = torch.accelerator.current_stream(index)
    if isinstance(stream, torch.Stream):
        stream = int(stream.native_handle)  # type: ignore[attr-defined]
    if not isinstance(stream, int):
        raise TypeError(
            f"expected a stream, or its handle as an integer, but got {type(stream).__name__}"
        )
    return _C.allocate_raw(size, index, stream)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free memory that ``caching_allocator_alloc`` returned.

    Raises:
        ValueError: if ``mem_ptr`` is not an address that ``caching_allocator_alloc`` returned, or
            if the memory was already freed.
    """
    _C.free_raw(mem_ptr)


def get_allocator_backend() -> str:
    """Return the allocator's name: always ``"native"``."""
    return "native"


def empty_cache() -> None:
    """Return cached memory to the devices. Has no effect before the first use of the device."""
    torch.accelerator.empty_cache()


def empty_host_cache() -> None:
    """Return cached pinned host memory to the system."""
    # torch's function has no effect until an operation has run on the device.
    _C.empty_host_cache()


def host_memory_stats() -> dict[str, Any]:
    """Return the pinned memory allocator's statistics, by dotted names.

    ``allocations`` and ``allocated_bytes`` count memory that was obtained from the system.
    ``active_requests`` and ``active_bytes`` count memory in use by tensors or by unfinished copies.
    Each of these statistics has the values ``current``, ``peak``, ``allocated`` and ``freed``.
    ``num_host_alloc`` and ``num_host_free`` count calls to the system. ``host_alloc_time`` and
    ``host_free_time`` are the times of these calls in microseconds, with the values ``total``,
    ``max``, ``min``, ``avg`` and ``count``. Sizes are rounded up to powers of two. All values are 0
    before the first pinned allocation.
    """
    flat: dict[str, Any] = {}
    for name, value in host_memory_stats_as_nested_dict().items():
        if isinstance(value, dict):
            flat |= {f"{name}.{part}": figure for part, figure in value.items()}
        else:
            flat[name] = value
    return OrderedDict(sorted(flat.items()))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Return ``host_memory_stats`` as nested dicts."""
    return _C.host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Reset the cumulative counters of pinned memory to 0."""
    _C.reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Reset the peaks of pinned memory to the current values."""
    _C.reset_peak_host_memory_stats()
