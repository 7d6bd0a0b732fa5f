# SPDX-License-Identifier: BSD-3-Clause
"""Device memory: what tensors hold, what the caching allocator keeps, what is left. All in bytes.

The figures are those of ``torch.accelerator``; before the first allocation they are 0.
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
    """Return the bytes that ``device`` could still give, and its capacity."""
    return torch.accelerator.get_memory_info(resolve(device))


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """Return all figures of the caching allocator, named in ``torch.accelerator.memory_stats``."""
    return torch.accelerator.memory_stats(resolve(device))


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """Return what ``memory_stats`` does, as a dict of dicts: ``["segment"]["all"]["peak"]``."""
    index = resolve(device)
    if not torch._C._accelerator_isAllocatorInitialized():
        return {}
    stats: dict[str, Any] = torch._C._accelerator_getDeviceStats(index)
    return stats


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


def _old_name(name: str, new: str) -> None:
    warnings.warn(
        f"{MODULE}.{name} is an old name: use {MODULE}.{new}", FutureWarning, stacklevel=3
    )


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """Do what ``reset_peak_memory_stats`` does, whose old name it is: all peaks start anew."""
    _old_name("reset_max_memory_allocated", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceLike = None) -> None:
    """Do what ``reset_peak_memory_stats`` does, whose old name it is: all peaks start anew."""
    _old_name("reset_max_memory_cached", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def memory_cached(device: DeviceLike = None) -> int:
    """Return what ``memory_reserved`` does, whose old name it is."""
    _old_name("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: DeviceLike = None) -> int:
    """Return what ``max_memory_reserved`` does, whose old name it is."""
    _old_name("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def device_memory_used(device: DeviceLike = None) -> int:
    """Return the bytes of ``device`` that are taken, whether by the allocator or past it."""
    free, total = mem_get_info(device)
    return total - free


def list_gpu_processes(device: DeviceLike = None) -> str:
    """Return, as a text, the processes that use ``device``, with the memory that each has of it.

    That is this one, or none before it has used the device: each process emulates devices of its
    own, and sees of others only what they shared with it.
    """
    index = resolve(device)
    name = f"{DEVICE_TYPE}:{index}"
    if not _C.is_initialized():
        return f"{name}\nno processes are running"
    used = device_memory_used(index) / 2**20
    return f"{name}\nprocess {os.getpid():>10d} uses {used:>12.3f} MB memory of the device"


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Set the counts that only grow (allocated, freed, retries) back to 0."""
    torch.accelerator.reset_accumulated_memory_stats(resolve(device))


# Rows of memory_summary: a figure, and whether it counts bytes.
_SUMMARY = (
    ("allocated_bytes", "In tensors", True),
    ("active_bytes", "and used by streams", True),
    ("requested_bytes", "Asked for", True),
    ("reserved_bytes", "Taken from the device", True),
    ("inactive_split_bytes", "Free between tensors", True),
    ("allocation", "Blocks in tensors", False),
    ("active", "and used by streams", False),
    ("segment", "Segments", False),
    ("inactive_split", "Free between tensors", False),
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
    """Return the figures of the caching allocator as a table, for people.

    Args:
        device: of which device; the current one for None.
        abbreviated: leaves out the rows of the pools of small and of large blocks.
    """
    index = resolve(device)
    stats = memory_stats(index)
    columns = ("current", "peak", "allocated", "freed")
    heads = ("Now", "Peak", "Sum allocated", "Sum freed")
    rule = "+" + "-" * 25 + ("+" + "-" * 15) * len(columns) + "+"
    lines = [
        f"Memory of device {DEVICE_TYPE}:{index}: {stats.get('num_ooms', 0)} out-of-memory errors, "
        f"{stats.get('num_alloc_retries', 0)} times the cache was given up for room",
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
    """Let this process take no more than a part of a device's memory.

    What is held already stays; beyond the limit an allocation is an ``OutOfMemoryError``.

    Args:
        fraction: from 0 to 1, of the capacity that ``mem_get_info`` gives.
        device: of which device; the current one for None.

    Raises:
        TypeError: if it is not a number.
        ValueError: if it is not from 0 to 1.
    """
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
        raise TypeError(f"the fraction has to be a number, but is a {type(fraction).__name__}")
    _C.set_memory_fraction(resolve(device), fraction)


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """Return the part of a device's memory that this process may take; 1 if nobody has set it."""
    return _C.memory_fraction(resolve(device))


def caching_allocator_alloc(
    size: int, device: DeviceLike = None, stream: torch.Stream | int | None = None
) -> int:
    """Allocate device memory without a tensor, for other libraries.

    Args:
        size: in bytes.
        device: where; the current device for None.
        stream: whose work will use it, as with tensors: a stream or its handle; the current stream
            of the device for None.

    Returns:
        The address, 0 for no bytes. ``caching_allocator_delete`` gives it back.

    Raises:
        TypeError: if the stream is neither.
        ValueError: for a negative size.
        RuntimeError: for a stream of another device, or one that was destroyed.
        torch.OutOfMemoryError: if there is no room.
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
    """Give back what ``caching_allocator_alloc`` gave.

    Raises:
        ValueError: if the address is not such a block, or was given back before.
    """
    _C.free_raw(mem_ptr)


def get_allocator_backend() -> str:
    """Return the name of the allocator: ``"native"``, there is no other."""
    return "native"


def empty_cache() -> None:
    """Give memory that no tensor holds back to the devices. Before the first use: nothing."""
    torch.accelerator.empty_cache()


def empty_host_cache() -> None:
    """Give pinned host memory that no tensor holds back to the system."""
    # torch's function does nothing until an operation has run on the device.
    _C.empty_host_cache()


def host_memory_stats() -> dict[str, Any]:
    """Return the figures of the allocator of pinned host memory, by names with dots.

    ``allocations`` and ``allocated_bytes`` count what it has from the system, ``active_requests``
    and ``active_bytes`` what tensors hold, or copies that are not done; each with ``current``,
    ``peak``, ``allocated`` and ``freed``. ``num_host_alloc`` and ``num_host_free`` count calls to
    the system; ``host_alloc_time`` and ``host_free_time`` are their times in microseconds:
    ``total``, ``max``, ``min``, ``avg``, ``count``. Sizes are rounded to powers of two. All 0 when
    nothing was pinned yet.
    """
    flat: dict[str, Any] = {}
    for name, value in host_memory_stats_as_nested_dict().items():
        if isinstance(value, dict):
            flat |= {f"{name}.{part}": figure for part, figure in value.items()}
        else:
            flat[name] = value
    return OrderedDict(sorted(flat.items()))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Return what ``host_memory_stats`` does, as a dict of dicts."""
    return _C.host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Set the counts of pinned memory that only grow back to 0."""
    _C.reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Let the peaks of pinned memory start from what is held now."""
    _C.reset_peak_host_memory_stats()
