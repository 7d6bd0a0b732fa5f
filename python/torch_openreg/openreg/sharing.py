# SPDX-License-Identifier: BSD-3-Clause
"""Shares the device's tensors and events between processes; see docs/sharing.md.

``torch.multiprocessing`` sends a storage as a handle to its memory, which the other process imports
without a copy. This module registers reducers for storages, for tensors and parameters, whose
conjugate and negative bits torch's own reducer drops, and for events.
"""

from multiprocessing import reduction
from typing import Any

import torch
from torch.multiprocessing import reductions
from typing_extensions import Self

from torch_openreg import _C
from torch_openreg.name import DEVICE_TYPE
from torch_openreg.openreg._utils import DeviceLike, resolve


class InterprocessEvent(torch.Event):
    """An event that other processes can query and wait for: ``Event(interprocess=True)``.

    The process that created the event can record it any number of times. In a process that opened
    the event's handle, ``record`` raises a RuntimeError. The event does not support timing.
    """

    @classmethod
    def _new(cls, device: int) -> Self:
        event = super().__new__(cls, device=torch.device(DEVICE_TYPE, device))
        _C.make_interprocess(event, device)
        return event

    @classmethod
    def _open(cls, device: int, handle: bytes) -> Self:
        event = super().__new__(cls, device=torch.device(DEVICE_TYPE, device))
        _C.open_event(event, device, handle)
        return event

    def ipc_handle(self) -> bytes:
        """Return the handle for ``Event.from_ipc_handle`` in other processes of the same user.

        Raises:
            RuntimeError: for an event that was opened from a handle; pass that handle instead.
        """
        return _C.event_handle(self)

    @classmethod
    def from_ipc_handle(cls, device: DeviceLike, ipc_handle: bytes) -> Self:
        """Open an event of another process. That process must be running and own the event.

        Args:
            device: the event's device.
            ipc_handle: the result of ``ipc_handle()`` in that process.

        Raises:
            ValueError: if ``ipc_handle`` is not a handle, or the event belongs to another device.
            RuntimeError: if the event cannot be opened; the message states the reason.
        """
        return cls._open(resolve(device), ipc_handle)


def ipc_collect() -> int:
    """Release shared memory that neither this process nor importers use anymore.

    This also happens automatically: incrementally when tensors are shared or freed, and before an
    allocation fails.

    Returns:
        The number of bytes that were returned to this process's allocator or to their owner.
    """
    return _C.release_shared()


def _rebuild_storage(
    kind: type[torch.UntypedStorage], handle: bytes | None, size: int, device: int
) -> torch.UntypedStorage:
    if handle is None:
        return kind(0, device=torch.device(DEVICE_TYPE, device))
    return _C.import_storage(handle, size, device)


def _reduce_storage(storage: torch.UntypedStorage) -> tuple[Any, ...]:
    if storage.device.type != DEVICE_TYPE:
        reduced: tuple[Any, ...] = reductions.reduce_storage(storage)
        return reduced
    size = storage.nbytes()
    handle = _C.export_storage(storage) if size else None
    return _rebuild_storage, (type(storage), handle, size, storage.device.index)


def _rebuild_view(
    kind: type[torch.Tensor],
    tensor: torch.Tensor,
    conjugate: bool,
    negative: bool,
    requires_grad: bool,
) -> torch.Tensor:
    if conjugate:
        tensor = tensor.conj()
    if negative:
        tensor = torch._neg_view(tensor)
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def _reduce_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Preserve the conjugate and negative bits of a tensor, which torch's reducer drops."""
    lazy = tensor.device.type == DEVICE_TYPE and tensor.layout == torch.strided
    if not lazy or not (tensor.is_conj() or tensor.is_neg()):
        reduced: tuple[Any, ...] = reductions.reduce_tensor(tensor)
        return reduced
    if tensor.requires_grad and not tensor.is_leaf:
        reductions.reduce_tensor(tensor)  # raises torch's error
    plain = tensor.detach().as_subclass(torch.Tensor)
    if tensor.is_neg():
        plain = torch._neg_view(plain)
    if tensor.is_conj():
        plain = plain.conj()
    bits = (tensor.is_conj(), tensor.is_neg(), tensor.requires_grad)
    return _rebuild_view, (type(tensor), plain, *bits)


def _reduce_event(event: InterprocessEvent) -> tuple[Any, ...]:
    return InterprocessEvent._open, (event.device.index, event.ipc_handle())


_is_shared = torch.UntypedStorage.is_shared


def _is_shared_or_ours(storage: torch.UntypedStorage) -> bool:
    """Return whether the storage is in shared memory: always True for openreg, as for CUDA."""
    return storage.device.type == DEVICE_TYPE or _is_shared(storage)


def register() -> None:
    """Register the device's reducers. The import of the package calls this function once."""
    reduction.register(torch.UntypedStorage, _reduce_storage)
    reduction.register(torch.Tensor, _reduce_tensor)
    reduction.register(torch.nn.Parameter, _reduce_tensor)
    reduction.register(InterprocessEvent, _reduce_event)
    torch.UntypedStorage.is_shared = _is_shared_or_ours  # type: ignore[method-assign, assignment]
