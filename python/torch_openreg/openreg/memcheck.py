# SPDX-License-Identifier: BSD-3-Clause
"""Memcheck: detects invalid writes to device memory, and memory leaks.

``OPENREG_MEMCHECK=1`` enables memcheck for a process. A running process cannot enable or disable
it. Memcheck allocates each block between red zones. It fills a freed block with a pattern and
delays its reuse. It detects writes before or after a block, or to a freed block. The next call that
waits for the device then raises a RuntimeError, or the error is printed to stderr at exit. See
docs/memory_debugging.md.
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
    """The memory in use by the program that was allocated at one call site."""

    #: The index of the device.
    device: int
    #: The number of blocks, and the number of bytes requested for them.
    blocks: int
    bytes: int
    #: The Python stack of the allocations; the innermost call is last.
    stack: str


def is_enabled() -> bool:
    """Return whether memcheck is enabled in this process."""
    return _C.checks_memory()


def check() -> None:
    """Wait for all devices and check all their memory.

    Raises:
        RuntimeError: for invalid writes that were not reported before. Like every call that waits,
            this call also raises kernel errors.
    """
    _require()
    _C.check_memory()


def leaks() -> list[Held]:
    """Return the memory in use by the program, by call site, in descending order of size.

    Only the program can determine which of this memory is leaked. At exit, memcheck reports memory
    that Python cannot reach and that finalization did not free.
    """
    _require()
    return [Held(**place) for place in _C.held_memory()]


def _report_at_exit() -> None:
    checked = _C.is_initialized() and _C.checks_memory()
    _C.report_memory_at_exit(_reachable() if checked else [])


def _reachable() -> list[int]:
    """Return the addresses of device memory that Python objects can reach."""
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
                with suppress(RuntimeError):  # raised if the tensor has no storage
                    addresses.append(value.untyped_storage().data_ptr())
            if value.is_leaf:
                pending.append(value.grad)
        pending.extend(gc.get_referents(value))
    return addresses


def _require() -> None:
    if not _C.checks_memory():
        raise RuntimeError(
            "memcheck is not enabled in this process: start it with OPENREG_MEMCHECK=1 in its "
            "environment"
        )
