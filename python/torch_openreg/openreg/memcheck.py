# SPDX-License-Identifier: BSD-3-Clause
"""Memcheck: wrong writes to device memory, and memory that is not given back.

``OPENREG_MEMCHECK=1`` has a process start with it; nothing turns it on later, or off. Memory is
then given out between red zones, and poisoned and kept for a while after it was freed. Bytes that
were written before or behind a block, or after its life, are told by a RuntimeError of the next
call that waits for the device, and at exit on stderr. See docs/memory_debugging.md.
"""

import gc
import sys
from contextlib import suppress
from dataclasses import dataclass

import torch

from torch_openreg import _C
from torch_openreg.name import DEVICE_TYPE


@dataclass(frozen=True)
class Held:
    """Memory that the program holds, of one place that allocated it."""

    #: Index of the device.
    device: int
    #: How many blocks, and the bytes that were asked for.
    blocks: int
    bytes: int
    #: The Python stack of the allocations, the innermost call last.
    stack: str


def is_enabled() -> bool:
    """Return whether the memory of this process is checked."""
    return _C.checks_memory()


def check() -> None:
    """Wait for all devices and look at all their memory.

    Raises:
        RuntimeError: if something was found that nobody was told of; and for errors of kernels, as
            every call that waits.
    """
    _require()
    _C.check_memory()


def leaks() -> list[Held]:
    """Return what the program holds now, by the place of the allocation, the largest first.

    What of it should be gone only the program knows. At exit, what Python had no way to any more,
    and the end of the interpreter left, is reported without being asked for.
    """
    _require()
    return [Held(**place) for place in _C.held_memory()]


def _report_at_exit() -> None:
    checked = _C.is_initialized() and _C.checks_memory()
    _C.report_memory_at_exit(_reachable() if checked else [])


def _reachable() -> list[int]:
    """Return the addresses of device memory that the program has a way to."""
    gc.collect()
    addresses: list[int] = []
    seen: set[int] = set()
    pending: list[object] = [sys.modules, *sys._current_frames().values()]
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if issubclass(type(value), torch.Tensor):
            assert isinstance(value, torch.Tensor)
            if value.device.type == DEVICE_TYPE and value.layout == torch.strided:
                with suppress(RuntimeError):  # it has no storage
                    addresses.append(value.untyped_storage().data_ptr())
            if value.is_leaf:
                pending.append(value.grad)
        pending.extend(gc.get_referents(value))
    return addresses


def _require() -> None:
    if not _C.checks_memory():
        raise RuntimeError(
            "memory of this process is not checked: start it with OPENREG_MEMCHECK=1 in its "
            "environment"
        )
