# SPDX-License-Identifier: BSD-3-Clause
"""Memory pools: device memory reserved for selected allocations."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch_openreg import _C
from torch_openreg.name import DEVICE_TYPE, MODULE
from torch_openreg.openreg._utils import DeviceLike, resolve
from torch_openreg.openreg.memory_history import memory_snapshot


class MemPool:
    """A pool of device memory for allocations inside ``use_mem_pool``.

    The pool has its own segments. They serve no other allocations and are kept as long as this
    object exists. After its deletion, the pool's free segments are returned to the device, by
    ``empty_cache`` or when an allocation needs memory. The pool is destroyed together with its last
    tensor.

    Args:
        allocator: exists for compatibility with torch.cuda; here segments always come from the
            driver.
        use_on_oom: if True, other allocations use the pool's free memory before they fail with an
            ``OutOfMemoryError``, but only on a stream that has allocated from the pool.
        no_split: if True, each allocation has its own segment of the same size (at least 1 MiB).
        device: the device; None means the current one.

    Raises:
        TypeError: if ``allocator`` is not None.
        ValueError: for a device that is not openreg.
        RuntimeError: for an index that is out of range.
    """

    def __init__(
        self,
        allocator: None = None,
        use_on_oom: bool = False,
        no_split: bool = False,
        *,
        device: DeviceLike = None,
    ) -> None:
        if allocator is not None:
            raise TypeError(
                f"allocator is {allocator!r}: it must be None, because only the driver allocates "
                f"memory of this device; to select a device, use MemPool(device={allocator!r})"
            )
        self._device = resolve(device)
        self._id = _C.new_pool_id()
        _C.use_pool(self._device, self._id, last_resort=use_on_oom, whole=no_split)
        release = weakref.finalize(self, _C.release_pool, self._device, self._id)
        release.atexit = False

    def __repr__(self) -> str:
        return f"<{MODULE}.MemPool device={DEVICE_TYPE}:{self._device} id={self._id}>"

    @property
    def id(self) -> tuple[int, int]:
        """The ID of the pool in statistics and snapshots, which consists of two integers."""
        return self._id

    @property
    def device(self) -> int:
        """The index of the pool's device."""
        return self._device

    def use_count(self) -> int:
        """Return the number of users: this object, ``use_mem_pool`` contexts, and graphs."""
        return _C.pool_use_count(self._device, self._id)

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """Return the segments of the pool, as ``torch.openreg.memory_snapshot`` does."""
        return memory_snapshot(self._id, include_traces)


@contextmanager
def use_mem_pool(pool: MemPool, device: DeviceLike = None) -> Iterator[None]:
    """Make the calling thread allocate from ``pool``. The innermost context applies.

    Other threads are not affected, including the autograd threads that run a backward pass. A
    tensor remains in the pool after the context ends.

    Args:
        pool: the pool to allocate from.
        device: must be the pool's device; None is equivalent.

    Raises:
        TypeError: if ``pool`` is not a ``MemPool``.
        ValueError: if the pool belongs to another device.
    """
    if not isinstance(pool, MemPool):
        raise TypeError(f"use_mem_pool: expected a {MODULE}.MemPool, but got {type(pool).__name__}")
    if device is not None and resolve(device) != pool.device:
        raise ValueError(
            f"memory pool {pool.id} belongs to device {pool.device}, so it cannot serve device "
            f"{resolve(device)}: make a pool for that device, MemPool(device={resolve(device)})"
        )
    _C.begin_allocate_current_thread_to_pool(pool.device, pool.id)
    try:
        yield
    finally:
        _C.end_allocate_to_pool(pool.device, pool.id)
        _C.release_pool(pool.device, pool.id)
