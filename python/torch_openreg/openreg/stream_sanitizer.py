# SPDX-License-Identifier: BSD-3-Clause
"""Finds memory that two streams use without being ordered, at least one of them writing.

``OPENREG_STREAM_SANITIZER=1`` has a process start with it; ``enable`` starts it for what is
allocated from then on. It looks at what the program asks for and not at when things happen, so it
finds a race also where the streams happened to run one after the other. See docs/debugging.md.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from torch_openreg import _C

Action = Literal["off", "warn", "error"]

#: In the order of RaceAction in runtime/diagnostics/stream_sanitizer.h.
_ACTIONS: tuple[Action, ...] = get_args(Action)


@dataclass(frozen=True)
class Use:
    """One of the two uses that race."""

    operator: str
    #: An allocation races where memory is given out again while another stream may still use it.
    access: str
    #: Index of the stream's device.
    device: int
    #: The stream's native handle.
    stream: int
    #: The Python stack of the launch, the innermost call last.
    stack: str


@dataclass(frozen=True)
class Race:
    """Two uses of one block of memory that nothing orders."""

    #: In the order in which the program called them.
    earlier: Use
    later: Use
    #: Address and size of the block in bytes.
    pointer: int
    bytes: int


def enable(action: Action = "error") -> None:
    """Start; what an earlier use has found is forgotten.

    Args:
        action: what happens when an operator would race. ``"error"``: it fails with a RuntimeError
            and is not launched. ``"warn"``: a UserWarning, and it is.

    Raises:
        ValueError: for any other word.
    """
    if action not in _ACTIONS:
        raise ValueError(f"action {action!r}: expected one of {', '.join(_ACTIONS)}")
    _C.set_stream_sanitizer(_ACTIONS.index(action))


def disable() -> None:
    """Stop. What was found is forgotten too."""
    _C.set_stream_sanitizer(_ACTIONS.index("off"))


def action() -> Action:
    """Return what happens when an operator would race; ``"off"``: nobody looks."""
    return _ACTIONS[_C.stream_sanitizer()]


def races() -> list[Race]:
    """Return what was found since the start, the first thousand."""
    return [
        Race(Use(**race["earlier"]), Use(**race["later"]), race["pointer"], race["bytes"])
        for race in _C.stream_sanitizer_races()
    ]


@contextmanager
def enabled(action: Action = "error") -> Iterator[None]:
    """Have it within a block; afterwards it is off."""
    enable(action)
    try:
        yield
    finally:
        disable()
