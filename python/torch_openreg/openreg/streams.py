# SPDX-License-Identifier: BSD-3-Clause
"""Streams and events: torch's classes for this device.

A stream runs its work in order, independently of other streams. An event orders work across streams
and measures time. A stream belongs to one of the device's pools and continues to exist after its
Python objects are deleted.
"""

from types import TracebackType
from typing import Any

import torch
from typing_extensions import Self

from torch_openreg import _C
from torch_openreg.name import DEVICE_TYPE, MODULE
from torch_openreg.openreg._utils import DeviceLike, resolve
from torch_openreg.openreg.sharing import InterprocessEvent


def _as_device(device: DeviceLike) -> torch.device:
    return torch.device(DEVICE_TYPE, resolve(device))


class _EventType(type(torch.Event)):  # type: ignore[misc]
    """Metaclass of Event: it creates and recognizes torch events.

    Event has no instances, because ``elapsed_time`` and ``record_event`` in torch accept only an
    exact ``torch.Event``.
    """

    def __call__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
        *,
        device: DeviceLike = None,
    ) -> torch.Event:
        if not isinstance(enable_timing, int):
            raise TypeError(
                f"enable_timing is {enable_timing!r}: expected True or False, as in "
                f"torch.cuda.Event; to select a device, use Event(device={enable_timing!r})"
            )
        if external:
            raise NotImplementedError(
                "external=True is not supported: an event recorded during a capture has no effect "
                "outside of the graph; only events with enable_timing=True are recorded by each "
                "replay"
            )
        if interprocess:
            if enable_timing:
                raise ValueError("interprocess events cannot be timed: use enable_timing=False")
            return InterprocessEvent._new(resolve(device))
        return torch.Event(
            _as_device(device), enable_timing=bool(enable_timing), blocking=bool(blocking)
        )

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == DEVICE_TYPE


class Event(torch.Event, metaclass=_EventType):
    """An event on a stream, which completes when the preceding work has finished.

    A call of the class returns a ``torch.Event``. ``isinstance`` accepts every event on the device.

    Args:
        enable_timing: whether ``elapsed_time`` (in milliseconds) is supported.
        blocking: exists for compatibility; a wait always sleeps.
        interprocess: whether other processes may open the event, which then has ``ipc_handle()``.
        external: whether record and wait in a capture take effect outside of the graph; not
            supported.
        device: the device of the streams that record it; None means the current device.

    Raises:
        TypeError: if ``enable_timing`` is a device.
        ValueError: if both ``enable_timing`` and ``interprocess`` are true.
        NotImplementedError: for ``external=True``.
    """

    from_ipc_handle = InterprocessEvent.from_ipc_handle


def _require(value: object, kind: type, expected: str) -> None:
    """Raise if ``value`` is not a ``kind``, because torch's own methods do not check it."""
    if not isinstance(value, kind):
        raise TypeError(f"got {value!r}, but expected {expected}")


class Stream(torch.Stream):
    """A queue of work on one device.

    Args:
        device: the stream's device; None means the current one.
        priority: a lower number is more urgent; clamped to ``priority_range()``.
        stream_id, device_index, device_type: together identify an existing stream.
        stream_ptr: see ``ExternalStream``.

    Raises:
        ValueError: if an existing stream is identified incompletely, or ``priority`` is given with
            ``stream_ptr``.
        RuntimeError: if ``stream_ptr`` is not a stream.
    """

    def __new__(
        cls,
        device: DeviceLike = None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int | None = None,
        stream_ptr: int | None = None,
    ) -> Self:
        """Return a stream from the device's pool, or wrap an existing stream."""
        if stream_ptr is not None:
            if priority != 0:
                raise ValueError(
                    f"priority={priority}: the priority of an existing stream was set by "
                    "orStreamCreate and cannot be changed: omit priority"
                )
            where = _as_device(device)
            device_index = where.index
            device_type = torch.accelerator.current_stream(where).device_type
            stream_id = _external_stream_id(stream_ptr, device_index)
        if stream_id is None:
            return super().__new__(cls, _as_device(device), priority=priority)
        if device_index is None or device_type is None:
            raise ValueError("stream_id requires device_index and device_type: pass all three")
        return super().__new__(
            cls, stream_id=stream_id, device_index=device_index, device_type=device_type
        )

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the lowest and the highest priority; the highest one is the smaller number."""
        return _C.stream_priority_range()

    @property
    def priority(self) -> int:
        """The stream's priority; a lower number is more urgent."""
        return _C.stream_priority(self.stream_id, self.device_index)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Record ``event``, or a new event, on this stream and return the event.

        Raises:
            TypeError: if ``event`` is not an event.
        """
        if event is not None:
            _require(event, torch.Event, "an event")
        if isinstance(event, InterprocessEvent):  # torch accepts only an exact torch.Event
            event.record(self)
            return event
        return super().record_event(event)

    def wait_event(self, event: torch.Event) -> None:
        """Make work that is queued later on this stream wait for ``event``.

        Raises:
            TypeError: if ``event`` is not an event.
        """
        _require(event, torch.Event, "an event; wait_stream waits for a stream")
        super().wait_event(event)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Make work that is queued later on this stream wait for the work now on ``stream``.

        Raises:
            TypeError: if ``stream`` is not a stream.
        """
        _require(stream, torch.Stream, "a stream; wait_event waits for an event")
        super().wait_stream(stream)

    def __repr__(self) -> str:
        name = "default" if self.stream_id == 0 else f"{self.stream_id:#x}"
        return f"<{MODULE}.Stream device={self.device} {name}>"


class ExternalStream(Stream):
    """A stream that other code created through the driver's interface (``orStreamCreate``).

    The creator must not destroy the stream while it is in use, and must destroy it afterwards.

    Args:
        stream_ptr: the stream's ``orStream_t`` as an integer, as ``Stream.native_handle`` returns.
        device: the stream's device; None means the current one.
        kwargs: see ``Stream``; a priority raises an error.

    Raises:
        ValueError: if a priority is given.
        RuntimeError: if there is no such stream, it was destroyed, or it is on another device.
    """

    def __new__(cls, stream_ptr: int, device: DeviceLike = None, **kwargs: Any) -> Self:
        """Wrap an existing stream."""
        return super().__new__(cls, device, stream_ptr=stream_ptr, **kwargs)


def _external_stream_id(stream_ptr: int, device: int) -> int:
    if not 0 <= stream_ptr < 2**64:
        raise RuntimeError(
            f"{stream_ptr} is not a stream handle: it must be an unsigned 64-bit integer"
        )
    return _C.external_stream_id(stream_ptr, device)


def get_stream_from_external(data_ptr: int, device: DeviceLike = None) -> Stream:
    """Return a stream that other code created through the driver's interface (``ExternalStream``).

    Args:
        data_ptr: the stream's ``orStream_t`` as an integer.
        device: the stream's device; None means the current one.

    Raises:
        RuntimeError: if there is no such stream, it was destroyed, or it is on another device.
    """
    return Stream(device, stream_ptr=data_ptr)


def _wrap(found: torch.Stream) -> Stream:
    return Stream(
        stream_id=found.stream_id,
        device_index=found.device_index,
        device_type=found.device_type,
    )


def current_stream(device: DeviceLike = None) -> Stream:
    """Return the stream that executes this thread's work on ``device``."""
    return _wrap(torch.accelerator.current_stream(resolve(device)))


def default_stream(device: DeviceLike = None) -> Stream:
    """Return the default stream of ``device``. It does not implicitly wait for other streams."""
    current = current_stream(device)
    return Stream(
        stream_id=0,
        device_index=current.device_index,
        device_type=current.device_type,
    )


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    """Make the identified stream current on its device, and make this device current."""
    set_stream(
        torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
    )


def set_stream(stream: torch.Stream | None) -> None:
    """Make ``stream`` current on its device, and make this device current. None has no effect."""
    if stream is not None:
        torch.accelerator.set_stream(stream)
        _C.set_device(stream.device_index)


class StreamContext:
    """Context manager that makes a stream and its device current; see ``stream``."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._before: list[tuple[int, torch.Stream]] = []

    def __enter__(self) -> None:
        if self.stream is not None:
            self._before.append((_C.get_device(), current_stream(self.stream.device)))
            set_stream(self.stream)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.stream is not None:
            device, stream = self._before.pop()
            set_stream(stream)
            _C.set_device(device)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return a context manager in which ``stream`` and its device are current.

    On exit, the context manager restores the previous device, and the previous stream of the
    stream's device. None has no effect.
    """
    return StreamContext(stream)
