# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: D102 - each method is documented by the function of torch.openreg of the same name.
"""A stand-in for the module ``torch.openreg`` with two devices that do not exist.

It has only the functions that FakeTensors need. FakeTensors have no memory, and no kernel runs for
them.
"""

from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend


class Properties(NamedTuple):
    """The properties of one device."""

    name: str
    multi_processor_count: int


class _Stream(NamedTuple):
    """Identifies a stream by three numbers."""

    stream_id: int
    device_index: int
    device_type: int


class _Device:
    """Context manager that makes a device current."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._before = -1

    def __enter__(self) -> None:
        self._before = module._exchange_device(self._index)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        module._exchange_device(self._before)


class DeviceModule:
    """The functions of ``torch.openreg`` that FakeTensors need. They do not use a device."""

    Event = torch.Event
    Stream = _Stream
    device = _Device

    def __init__(self) -> None:
        self._current = 0
        self._stream = _Stream(0, 0, 20)

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 2

    def current_device(self) -> int:
        return self._current

    def set_device(self, index: int) -> None:
        self._current = index

    def _exchange_device(self, index: int) -> int:
        before = self._current
        if index >= 0:
            self._current = index
        return before

    _maybe_exchange_device = _exchange_device

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        pass

    def _load_compiled_operators(self) -> None:
        pass

    def current_stream(self, device: Any = None) -> _Stream:
        return self._stream

    def set_stream(self, stream: _Stream) -> None:
        self._stream = stream

    def stream(self, stream: _Stream) -> None:
        raise NotImplementedError

    def synchronize(self, device: Any = None) -> None:
        pass

    def memory_allocated(self, device: Any = None) -> int:
        return 0

    def get_device_properties(self, device: Any = None) -> Properties:
        index = self._current if device is None else device
        return Properties(f"absent {index}", 1)

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        return (7, 5)

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        return True


module = DeviceModule()

# Registers the device. torch supports only one out-of-tree device per process.
_setup_privateuseone_for_python_backend(rename="openreg", backend_module=module)
