# SPDX-License-Identifier: BSD-3-Clause
"""Streams and events: torch's own classes, with the device's name on them.

A stream runs its work in order and independently of other streams; an event orders them and measures
time. The objects are values: a stream lives in a pool of the device and is not destroyed with them.
"""

from types import TracebackType
from typing import Self

import torch

from torch_openreg import _C
from torch_openreg.openreg._utils import DeviceLike, resolve


def _as_device(device: DeviceLike) -> torch.device:
    return torch.device("openreg", resolve(device))


class Event(torch.Event):
    """A mark in a stream: it completes when the work before it is done.

    Args:
        device: where it will be recorded; the current device for None.
        enable_timing: whether ``elapsed_time`` (milliseconds) works.
        blocking: as with other devices; a wait always sleeps.
        interprocess: not supported.
    """

    def __new__(
        cls,
        device: DeviceLike = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> Self:
        if interprocess:
            raise RuntimeError("an event of openreg can not be shared with other processes")
        return super().__new__(
            cls, _as_device(device), enable_timing=enable_timing, blocking=blocking
        )

    def __repr__(self) -> str:
        state = "not recorded" if not self.event_id else "complete" if self.query() else "pending"
        return f"<torch.openreg.Event device={self.device} {state}>"


class Stream(torch.Stream):
    """A queue of work on one device.

    Args:
        device: the stream's device; the current one for None.
        priority: a lower number is more urgent; cut to ``priority_range()``.
        stream_id, device_index, device_type: the three together name an existing stream.
    """

    def __new__(
        cls,
        device: DeviceLike = None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int | None = None,
    ) -> Self:
        if stream_id is None:
            return super().__new__(cls, _as_device(device), priority=priority)
        if device_index is None or device_type is None:
            raise ValueError("stream_id needs device_index and device_type beside it")
        return super().__new__(
            cls, stream_id=stream_id, device_index=device_index, device_type=device_type
        )

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the priorities that differ: the least urgent, and the most urgent (a lower number)."""
        return _C.stream_priority_range()

    @property
    def priority(self) -> int:
        """The priority that the stream has; a lower number is more urgent."""
        return _C.stream_priority(self.stream_id, self.device_index)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Record ``event``, or a new one, behind the work that is queued now, and return it."""
        if event is None:
            event = Event(self.device)
        event.record(self)
        return event

    def wait_stream(self, other: torch.Stream) -> None:
        """Let work that is queued from now on wait for what is queued on ``other`` now."""
        self.wait_event(other.record_event())

    def __repr__(self) -> str:
        name = "default" if self.stream_id == 0 else f"{self.stream_id:#x}"
        return f"<torch.openreg.Stream device={self.device} {name}>"


def _wrap(found: torch.Stream) -> Stream:
    return Stream(
        stream_id=found.stream_id,
        device_index=found.device_index,
        device_type=found.device_type,
    )


def current_stream(device: DeviceLike = None) -> Stream:
    """Return the stream which work of this thread on ``device`` goes to."""
    return _wrap(torch.accelerator.current_stream(resolve(device)))


def default_stream(device: DeviceLike = None) -> Stream:
    """Return the stream that ``device`` always has. It waits for no other stream by itself."""
    current = current_stream(device)
    return Stream(
        stream_id=0,
        device_index=current.device_index,
        device_type=current.device_type,
    )


def set_stream(stream: torch.Stream | None) -> None:
    """Make ``stream`` the current one of its device, and its device the current one; None: nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)
        _C.set_device(stream.device_index)


class StreamContext:
    """Context manager: ``stream`` and its device are current; see ``stream``."""

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

    Afterwards the device and the stream of the stream's device are as before. None changes nothing.
    """
    return StreamContext(stream)
