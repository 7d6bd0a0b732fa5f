# SPDX-License-Identifier: BSD-3-Clause
"""Detects races: two streams use memory without synchronization, and at least one of them writes.

``OPENREG_STREAM_SANITIZER=1`` enables the sanitizer for the whole process. ``enable`` enables it
for memory that is allocated afterwards. The sanitizer analyzes the synchronization that the program
requests, not the actual timing. Therefore it also detects races between streams that happened to
run one after the other. See docs/debugging.md.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from torch_openreg import _C

Action = Literal["off", "warn", "error"]

#: The actions, in the order of RaceAction in runtime/diagnostics/stream_sanitizer.h.
_ACTIONS: tuple[Action, ...] = get_args(Action)


@dataclass(frozen=True)
class Use:
    """One of the two uses of a block that race."""

    operator: str
    #: "read", "write", or "allocation". "allocation" means that memory was reused although another
    #: stream may still use it.
    access: str
    #: The index of the stream's device.
    device: int
    #: The native handle of the stream.
    stream: int
    #: The Python stack of the launch; the innermost call is last.
    stack: str


@dataclass(frozen=True)
class Race:
    """Two uses of one memory block that are not synchronized."""

    #: The two uses, in program order.
    earlier: Use
    later: Use
    #: The address of the block, and its size in bytes.
    pointer: int
    bytes: int


def enable(action: Action = "error") -> None:
    """Enable the sanitizer and discard earlier findings.

    Args:
        action: what happens when an operator would race. ``"error"``: the operator raises a
            RuntimeError and is not launched. ``"warn"``: it issues a UserWarning and is launched.

    Raises:
        ValueError: for any other value.
    """
    if action not in _ACTIONS:
        raise ValueError(f"unknown action {action!r}: expected one of {', '.join(_ACTIONS)}")
    _C.set_stream_sanitizer(_ACTIONS.index(action))


def disable() -> None:
    """Disable the sanitizer and discard its findings."""
    _C.set_stream_sanitizer(_ACTIONS.index("off"))


def action() -> Action:
    """Return what happens when an operator would race: ``"off"`` if the sanitizer is disabled."""
    return _ACTIONS[_C.stream_sanitizer()]


def races() -> list[Race]:
    """Return the races found since ``enable``, up to the first thousand."""
    return [
        Race(Use(**race["earlier"]), Use(**race["later"]), race["pointer"], race["bytes"])
        for race in _C.stream_sanitizer_races()
    ]


@contextmanager
def enabled(action: Action = "error") -> Iterator[None]:
    """Enable the sanitizer within a block and disable it afterwards."""
    enable(action)
    try:
        yield
    finally:
        disable()
