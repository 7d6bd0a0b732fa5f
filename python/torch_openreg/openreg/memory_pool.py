# SPDX-License-Identifier: BSD-3-Clause
"""Memory pools: device memory that some allocations have for themselves."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch_openreg import _C
from torch_openreg.name import DEVICE_TYPE, MODULE
from torch_openreg.openreg._utils import DeviceLike, resolve
from torch_openreg.openreg.memory_history import memory_snapshot


class MemPool:
    """A pool of a device's memory, for what is allocated inside of ``use_mem_pool``.

    The device gives it segments of its own, which serve nothing else. They stay while this object
    lives; after it, free ones go back to the device with ``empty_cache`` or when memory is needed,
    and the pool is gone when its last tensor is.

    Args:
        allocator: of torch.cuda, which takes segments from it; here the driver gives them.
        use_on_oom: let allocations outside of the pool, on a stream that used it, have its free
            memory before they fail with an ``OutOfMemoryError``.
        no_split: give each allocation a segment of its own, as large as it is (and at least 1 MiB).
        device: whose memory it is; the current device for None.

    Raises:
        TypeError: if ``allocator`` is not None.
        ValueError: for a device of another type.
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
                f"allocator is {allocator!r}: the driver alone gives memory of this device, so it "
                f"has to be None; a device is MemPool(device={allocator!r})"
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
        """What names the pool in statistics and snapshots: two numbers."""
        return self._id

    @property
    def device(self) -> int:
        """The index of the device whose memory it is."""
        return self._device

    def use_count(self) -> int:
        """Return how many hold the pool: this object, contexts of ``use_mem_pool``, graphs."""
        return _C.pool_use_count(self._device, self._id)

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """Return the pool's segments, as ``torch.openreg.memory_snapshot`` does."""
        return memory_snapshot(self._id, include_traces)


@contextmanager
def use_mem_pool(pool: MemPool, device: DeviceLike = None) -> Iterator[None]:
    """Take what the calling thread allocates from ``pool``; contexts nest, the innermost counts.

    Other threads are not affected, those of autograd's backward pass included. A tensor stays in
    the pool after the context, too.

    Args:
        pool: where memory comes from.
        device: whose allocations are meant: that of the pool, which is also meant by None.

    Raises:
        TypeError: if ``pool`` is not a ``MemPool``.
        ValueError: if the pool belongs to another device.
    """
    if not isinstance(pool, MemPool):
        raise TypeError(f"expected a {MODULE}.MemPool, but got {type(pool).__name__}")
    if device is not None and resolve(device) != pool.device:
        raise ValueError(
            f"memory pool {pool.id} belongs to device {pool.device}, so it cannot serve device "
            f"{resolve(device)}: make a pool of that device, MemPool(device={resolve(device)})"
        )
    _C.begin_allocate_current_thread_to_pool(pool.device, pool.id)
    try:
        yield
    finally:
        _C.end_allocate_to_pool(pool.device, pool.id)
        _C.release_pool(pool.device, pool.id)
