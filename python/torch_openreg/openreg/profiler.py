# SPDX-License-Identifier: BSD-3-Clause
"""Which part of a program torch.profiler records of the device (docs/profiler.md).

The counterpart of ``torch.cuda.profiler``. Inside a session of ``torch.profiler.profile`` that asks
for the device, ``stop()`` has it record nothing more of the device and ``start()`` has it go on;
operators of the CPU are recorded all the time. Without a session they do nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch_openreg import _C

__all__ = ["profile", "start", "stop"]


def start() -> None:
    """Record the device again."""
    _C.resume_recording()


def stop() -> None:
    """Record nothing of the device until ``start()``; what is queued already is still recorded."""
    _C.pause_recording()


@contextmanager
def profile() -> Iterator[None]:
    """Record the device inside of a ``with`` block, and not after it."""
    start()
    try:
        yield
    finally:
        stop()
