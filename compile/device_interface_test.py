# SPDX-License-Identifier: BSD-3-Clause
"""torch's compiler finds the device interface, which forwards to the functions of torch.openreg."""

import subprocess
import sys

import absent_device
import pytest
import torch
from torch._dynamo.device_interface import DeviceGuard, get_interface_for_device
from torch_openreg_compile import device_interface
from torch_openreg_compile.device_interface import OpenRegInterface

device_interface.register()


@pytest.mark.parametrize("name", ["openreg", "openreg:0", "openreg:1", torch.device("openreg", 1)])
def test_is_registered_for_each_device(name: str | torch.device) -> None:
    assert get_interface_for_device(name) is OpenRegInterface


def test_guard_switches_the_device_and_back() -> None:
    with DeviceGuard(OpenRegInterface, 1):
        assert absent_device.module.current_device() == 1
    assert absent_device.module.current_device() == 0


def test_stream_by_id() -> None:
    before = OpenRegInterface.current_stream()
    assert OpenRegInterface.get_raw_stream(0) == 0
    OpenRegInterface._set_stream_by_id(0x30001, 1, 20)
    assert absent_device.module.current_stream() == (0x30001, 1, 20)
    assert OpenRegInterface.get_raw_stream(1) == 0x30001
    OpenRegInterface.set_stream(before)


def test_properties() -> None:
    assert OpenRegInterface.get_device_properties(1).name == "absent 1"
    assert OpenRegInterface.get_compute_capability() == 75
    assert OpenRegInterface.is_dtype_supported(torch.bfloat16)
    assert not OpenRegInterface.is_triton_capable()
    with pytest.raises(RuntimeError, match="Triton"):
        OpenRegInterface.raise_if_triton_unavailable()


@pytest.mark.parametrize("device", [1, "openreg:1", torch.device("openreg:1")])
def test_properties_in_a_worker(device: torch.types.Device) -> None:
    assert OpenRegInterface.Worker.get_device_properties(device).name == "absent 1"


def test_a_worker_keeps_its_own_current_device() -> None:
    program = """
import absent_device
from torch_openreg_compile.device_interface import OpenRegInterface
worker = OpenRegInterface.Worker
print(worker.current_device(), worker.get_device_properties().name)
worker.set_device(1)
print(worker.current_device(), worker.get_device_properties().name)
print(absent_device.module.current_device())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout.splitlines() == ["0 absent 0", "1 absent 1", "0"]
