# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for the device guard: the current device, and its restoration."""

import torch
from torch_device_conformance.contract.row import (
    Backend,
    require,
    require_equal,
    require_error,
    row,
)

GUARD = "c10::impl::DeviceGuardImplInterface: exchangeDevice, setDevice, getDevice, deviceCount"
FILE = "runtime/c10/guard.cc"


@row(
    "device",
    "available",
    requires="torch.accelerator finds the device, and torch.<device>.is_available() never raises",
    implement="hooks isAvailable, deviceCount; torch.<device>.is_available, device_count",
    without="accelerator-agnostic programs run on the CPU",
    shown_by="runtime/c10/hooks.cc",
)
def available(backend: Backend) -> None:
    require(bool(backend.function("is_available")()), "is_available() is false")
    require(torch.accelerator.is_available(), "torch.accelerator.is_available() is false")
    found = torch.accelerator.current_accelerator()
    require_equal("current_accelerator()", found and found.type, backend.type)
    require_equal("device_count()", backend.function("device_count")(), backend.count())
    require(backend.count() > 0, "the number of devices is 0")


@row(
    "device",
    "set_device",
    requires="torch.accelerator.set_device_index changes the current device, which factories use",
    implement=GUARD,
    without="all tensors are created on device 0",
    shown_by=FILE,
)
def set_device(backend: Backend) -> None:
    last = backend.count() - 1
    before = torch.accelerator.current_device_index()
    try:
        torch.accelerator.set_device_index(last)
        require_equal("current_device_index()", torch.accelerator.current_device_index(), last)
        require_equal("current_device()", backend.function("current_device")(), last)
        require_equal(
            "device of a new tensor", torch.empty(1, device=backend.type).device.index, last
        )
    finally:
        torch.accelerator.set_device_index(before)


@row(
    "device",
    "guard_restores",
    requires="a guard restores the previous device, even after an exception",
    implement=GUARD + "; uncheckedSetDevice must not throw",
    without="later tensors are created on the wrong device",
    shown_by=FILE,
)
def guard_restores(backend: Backend) -> None:
    last = backend.count() - 1
    before = torch.accelerator.current_device_index()
    with torch.accelerator.device_index(last):
        require_equal("device in the block", torch.accelerator.current_device_index(), last)
    require_equal("device after the block", torch.accelerator.current_device_index(), before)
    try:
        with torch.accelerator.device_index(last):
            raise KeyError
    except KeyError:
        pass
    require_equal("device after an exception", torch.accelerator.current_device_index(), before)
    guard = getattr(backend.module, "device", None)
    if guard is not None:
        with guard(last):
            require_equal("device in the module's block", backend.module.current_device(), last)
        require_equal("device after the module's block", backend.module.current_device(), before)


@row(
    "device",
    "operators_keep_current",
    requires="an operator on another device's tensor runs there; the current device stays the same",
    implement=GUARD + "; a guard in each kernel that is not called through the dispatcher",
    without="results are on the wrong device if there are several",
    shown_by=FILE,
)
def operators_keep_current(backend: Backend) -> None:
    last = backend.last()
    before = torch.accelerator.current_device_index()
    x = torch.arange(4.0, device=last)
    y = (x * 2).sum()
    z = torch.empty_like(x)
    for name, leaf in (("a product", y), ("empty_like", z), ("arange", x)):
        require_equal(f"device of {name}", leaf.device, last)
    require_equal("value", y.item(), 12.0)
    require_equal("current device", torch.accelerator.current_device_index(), before)


@row(
    "device",
    "index_out_of_range",
    requires="a call with a device index that does not exist raises an error",
    implement="checks in setDevice and in the factories",
    without="a different device is used, or the process crashes",
    shown_by=FILE,
)
def index_out_of_range(backend: Backend) -> None:
    beyond = backend.count()
    require_error(
        f"empty on device {beyond}, where only {beyond} devices exist",
        lambda: torch.empty(1, device=torch.device(backend.type, beyond)),
    )
    require_error(
        f"set_device_index({beyond}), where only {beyond} devices exist",
        lambda: torch.accelerator.set_device_index(beyond),
    )
    torch.accelerator.set_device_index(backend.device.index or 0)


@row(
    "device",
    "synchronize",
    requires="torch.accelerator.synchronize and torch.<device>.synchronize wait for all work",
    implement="DeviceGuardImplInterface::synchronizeDevice; torch.<device>.synchronize",
    without="measured times are wrong, and kernel errors are not reported",
    shown_by=FILE,
    seconds=20,
)
def synchronize(backend: Backend) -> None:
    backend.delay()
    x = torch.ones(1000, device=backend.device) * 3
    backend.function("synchronize")()
    require(backend.current_stream().query(), "the current stream is busy after synchronize()")
    backend.synchronize()
    require_equal("value", x.sum().item(), 3000.0)


@row(
    "device",
    "properties",
    requires="the device's name, properties and total memory can be queried",
    implement="torch.<device>.get_device_name, get_device_properties",
    without="libraries that choose a device by memory or name fail",
    shown_by="python/torch_openreg/openreg/devices.py",
    required=False,
)
def properties(backend: Backend) -> None:
    require(bool(backend.function("get_device_name")(0)), "get_device_name(0) is empty")
    found = backend.function("get_device_properties")(0)
    require(
        getattr(found, "total_memory", 0) > 0,
        "get_device_properties(0).total_memory does not exist or is 0",
    )
