# SPDX-License-Identifier: BSD-3-Clause
"""Devices of this process: their number, properties, the current device, and synchronization."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from uuid import UUID

import torch

from torch_openreg import _C
from torch_openreg.name import DEVICE_TYPE
from torch_openreg.openreg._utils import DeviceLike, _get_device_index, resolve

#: Has the attribute ``is_initializing`` while the thread is in ``_lazy_init``.
_tls = threading.local()


def is_available() -> bool:
    """Return whether there is at least one device that this process can use. Never raises."""
    return _C.device_count() > 0


def device_count() -> int:
    """Return the number of devices (``OPENREG_DEVICE_COUNT``, 2 unless set).

    If the setting is invalid, the number is 0, and the first use of the device raises the error.
    """
    return _C.device_count()


def is_initialized() -> bool:
    """Return whether this process has used the device."""
    return _C.is_initialized()


def _is_in_bad_fork() -> bool:
    """Return whether this process was forked from a process that had used the device."""
    return _C.is_in_bad_fork()


def _is_compiled() -> bool:
    """Return whether the device's libraries are loaded: always True if this module exists."""
    return True


def _lazy_init() -> None:
    _tls.is_initializing = True
    try:
        _C.init()
    finally:
        del _tls.is_initializing


def _lazy_call(callable: Callable[[], object], **kwargs: Any) -> None:
    """Call ``callable`` immediately. CUDA instead defers such calls until its first use.

    On this device, a program may set seeds, states and the current device before the first use, so
    no call is deferred. The device is initialized only if ``callable`` initializes it. CUDA's
    keyword arguments affect only deferred calls and are ignored.
    """
    callable()


def init() -> None:
    """Initialize the device. The first use of the device does this automatically.

    Raises:
        RuntimeError: in a forked child, or if the system cannot reserve the address space.
    """
    _lazy_init()


def current_device() -> int:
    """Return the index of the calling thread's current device."""
    return _C.get_device()


def set_device(device: DeviceLike) -> None:
    """Make ``device`` current in the calling thread. A negative index has no effect.

    Raises:
        ValueError: for a device that has no index or is not openreg.
        RuntimeError: for an index that is out of range.
    """
    index = _get_device_index(device)
    if index >= 0:
        _C.set_device(_C.resolve_device(index))


class device:
    """Context manager that makes ``device`` current and restores the previous device on exit.

    Args:
        device: a device or index; None or a negative index has no effect.
    """

    def __init__(self, device: DeviceLike) -> None:
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.idx})"

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = _C.exchange_device(_C.resolve_device(self.idx))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.prev_idx >= 0:
            _C.exchange_device(self.prev_idx)


class _DeviceGuard:
    """Context manager for torch that makes the device with the given index current."""

    def __init__(self, index: int) -> None:
        self.idx = index
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.idx = _maybe_exchange_device(self.prev_idx)


class device_of(device):
    """Context manager that makes a tensor's or storage's device current, if it is openreg."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage) -> None:
        super().__init__(obj.device if obj.device.type == DEVICE_TYPE else None)


def synchronize(device: DeviceLike = None) -> None:
    """Wait until all streams of ``device`` have finished their work.

    Raises:
        Exception: the first kernel error that was not reported before; it has its original type.
    """
    _C.synchronize_device(resolve(device))


def _exchange_device(device: int) -> int:
    """Make ``device`` current and return the previous device. A negative index changes nothing."""
    return _C.exchange_device(device if device < 0 else _C.resolve_device(device))


# CUDA needs two functions, because a switch may create a context. This device has no contexts.
_maybe_exchange_device = _exchange_device


@dataclass(frozen=True)
class DeviceProperties:
    """The properties of a device."""

    name: str
    #: The capacity in bytes (``OPENREG_DEVICE_MEMORY``).
    total_memory: int
    #: The driver rounds up the size of each allocation to a multiple of this number of bytes.
    allocation_granularity: int
    major: int
    minor: int
    #: The number of CPU cores that kernels may use.
    multi_processor_count: int
    #: The number of a kernel's threads that a core runs at the same time.
    max_threads_per_multi_processor: int
    #: The number of threads that run in lockstep: 1, because each thread runs independently.
    warp_size: int
    #: The size of the CPU's last-level cache in bytes; 0 if the system does not report it.
    L2_cache_size: int
    #: The identifier of the device, which is the same in all processes until the machine restarts.
    uuid: UUID


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Return the properties of ``device``; None means the current device."""
    return DeviceProperties(**_C.get_device_properties(resolve(device)))


def get_device_name(device: DeviceLike = None) -> str:
    """Return the name of ``device``."""
    return get_device_properties(device).name


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Return whether kernels of ``device`` can access the peer's memory: True if they differ.

    Raises:
        ValueError: for a device that is not openreg.
        RuntimeError: for an index that is out of range.
    """
    return resolve(device) != resolve(peer_device)


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """Return the compute capability of ``device`` as its major and minor version."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def is_tf32_supported() -> bool:
    """Return whether the device supports TF32: always False, ``float32`` keeps all of its 24 bits.

    ``torch.set_float32_matmul_precision`` affects float32 products as it does on the CPU.
    """
    return False


def _sleep(ns: int) -> None:
    """Keep the current stream busy for ``ns`` nanoseconds; the caller does not wait."""
    _C.sleep(ns)
