# SPDX-License-Identifier: BSD-3-Clause
"""Adapts ``torch.openreg`` to the device interface that ``torch._dynamo`` uses for all devices.

The interface covers streams, events, the current device and properties. Importing this module loads
``torch._dynamo``.
"""

from typing import Any

import torch
from torch._dynamo.device_interface import (
    DeviceInterface,
    caching_worker_current_devices,
    caching_worker_device_properties,
    register_interface_for_device,
)

from torch_openreg_compile.name import DEVICE_TYPE

# Untyped, because this package does not depend on the package that defines the device module.
_device: Any = torch.get_device_module(DEVICE_TYPE)

_Device = torch.device | str | int | None


def _index(device: _Device) -> int:
    """Return the index of ``device``, or of the current device if ``device`` has no index."""
    if isinstance(device, int):
        return device
    if device is not None:
        index = torch.device(device).index
        if index is not None:
            return int(index)
    return int(_device.current_device())


class OpenRegInterface(DeviceInterface):
    """The interface through which torch.compile uses device ``openreg``."""

    device = _device.device
    Event = _device.Event
    Stream = _device.Stream

    class Worker:
        """The device state for compile workers, which must not use the device.

        Processes that are forked from the main process inherit the properties that it has queried.
        """

        @staticmethod
        def set_device(device: int) -> None:
            """Record the device for which code is compiled, without using the device."""
            caching_worker_current_devices[DEVICE_TYPE] = device

        @staticmethod
        def current_device() -> int:
            """Return the recorded device, or the current device if none is recorded."""
            if DEVICE_TYPE in caching_worker_current_devices:
                return caching_worker_current_devices[DEVICE_TYPE]
            return int(_device.current_device())

        @staticmethod
        def get_device_properties(device: _Device = None) -> Any:
            """Return the properties of ``device``. None means the recorded device."""
            if DEVICE_TYPE not in caching_worker_device_properties:
                caching_worker_device_properties[DEVICE_TYPE] = [
                    _device.get_device_properties(index) for index in range(_device.device_count())
                ]
            index = OpenRegInterface.Worker.current_device() if device is None else _index(device)
            return caching_worker_device_properties[DEVICE_TYPE][index]

    # torch._dynamo compares functions by identity, so these are not wrappers.
    current_device = staticmethod(_device.current_device)
    set_device = staticmethod(_device.set_device)
    exchange_device = staticmethod(_device._exchange_device)
    maybe_exchange_device = staticmethod(_device._maybe_exchange_device)
    device_count = staticmethod(_device.device_count)
    is_available = staticmethod(_device.is_available)
    stream = staticmethod(_device.stream)
    current_stream = staticmethod(_device.current_stream)
    set_stream = staticmethod(_device.set_stream)
    synchronize = staticmethod(_device.synchronize)
    get_device_properties = staticmethod(_device.get_device_properties)
    memory_allocated = staticmethod(_device.memory_allocated)

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        _device.set_stream(
            _device.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
        )

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        """Return the driver's handle of a device's current stream: 0 for the default stream."""
        return int(_device.current_stream(device_idx).stream_id)

    @staticmethod
    def get_compute_capability(device: _Device = None) -> int:
        """Return the compute capability: ten times the major version plus the minor version."""
        major, minor = _device.get_device_capability(device)
        return int(10 * major + minor)

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        """Return whether kernels support bfloat16."""
        return bool(_device.is_bf16_supported(including_emulation))

    @staticmethod
    def is_triton_capable(device: _Device = None) -> bool:
        """Return whether Triton generates kernels for the device: never, because they are C++."""
        return False


def register() -> None:
    """Register the interface under "openreg" and each "openreg:N"."""
    register_interface_for_device(DEVICE_TYPE, OpenRegInterface)
    for index in range(_device.device_count()):
        register_interface_for_device(f"{DEVICE_TYPE}:{index}", OpenRegInterface)
