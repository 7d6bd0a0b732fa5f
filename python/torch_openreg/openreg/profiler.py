# SPDX-License-Identifier: BSD-3-Clause
"""Selects the parts of a program for which torch.profiler records the device (docs/profiler.md).

This is the counterpart of ``torch.cuda.profiler``. Inside a ``torch.profiler.profile`` session that
records the device, ``stop()`` pauses the recording of the device and ``start()`` resumes it. CPU
operators are always recorded. Without a session, neither function has an effect.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch_openreg import _C

__all__ = ["profile", "start", "stop"]


def start() -> None:
    """Resume recording the device."""
    _C.resume_recording()


def stop() -> None:
    """Pause recording the device until ``start()``. Work already queued is still recorded."""
    _C.pause_recording()


@contextmanager
def profile() -> Iterator[None]:
    """Record the device inside a ``with`` block, and pause recording at the end of the block."""
    start()
    try:
        yield
    finally:
        stop()
