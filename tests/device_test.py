# SPDX-License-Identifier: BSD-3-Clause
"""Tests the number of devices, the current device, properties, and errors that name a device."""

import os
import threading

import pytest
import torch

from tests import child
from tests.devices import LAST, LAST_INDEX, needs_two_devices


@pytest.fixture(autouse=True)
def _first_device() -> None:
    torch.openreg.set_device(0)


def test_there_are_two_unless_set() -> None:
    if "OPENREG_DEVICE_COUNT" not in os.environ:
        assert torch.openreg.device_count() == 2
    assert torch.openreg.is_available()
    assert torch.accelerator.device_count() == torch.openreg.device_count()


@pytest.mark.parametrize("count", [1, 8])
def test_count_is_a_setting(count: int) -> None:
    code = "import torch; print(torch.openreg.device_count())"
    assert child.output(code, OPENREG_DEVICE_COUNT=str(count)) == str(count)


def test_a_bad_setting_makes_it_unavailable_and_is_named_at_use() -> None:
    done = child.run(
        """
        import torch
        print(torch.openreg.is_available())
        torch.ones(1, device="openreg")
        """,
        OPENREG_DEVICE_COUNT="many",
    )
    assert done.returncode == 1
    assert done.stdout.strip() == "False"
    assert "OPENREG_DEVICE_COUNT" in done.stderr


@needs_two_devices
@pytest.mark.parametrize("device", [1, "openreg:1", torch.device("openreg", 1)], ids=str)
def test_set_device(device: int | str | torch.device) -> None:
    torch.openreg.set_device(device)
    assert torch.openreg.current_device() == 1
    assert torch.accelerator.current_device_index() == 1
    assert torch.ones(1, device="openreg").device.index == 1


@needs_two_devices
def test_negative_index_changes_nothing() -> None:
    torch.openreg.set_device(1)
    torch.openreg.set_device(-1)
    with torch.openreg.device(-1), torch.openreg.device(None):
        assert torch.openreg.current_device() == 1


@pytest.mark.parametrize("index", [2, 7, 127, 1000])
def test_index_out_of_range(index: int) -> None:
    count = torch.openreg.device_count()
    if index < count:
        pytest.skip(f"this run has {count} devices")
    message = rf"device index is out of range. It must be in \[0, {count}\), but got {index}"
    for call in (
        torch.openreg.set_device,
        torch.openreg.synchronize,
        torch.openreg.get_device_properties,
        torch.openreg.memory_allocated,
        torch.openreg.current_stream,
        torch.openreg.Stream,
        torch.openreg.get_rng_state,
    ):
        with pytest.raises(RuntimeError, match=message):
            call(index)
    with pytest.raises(RuntimeError, match=message), torch.openreg.device(index):
        pass
    assert torch.openreg.current_device() == 0


def test_other_device_types_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a device of type openreg, but got cpu"):
        torch.openreg.set_device("cpu")
    with pytest.raises(ValueError, match="expected a device with an index"):
        torch.openreg.set_device("openreg")


@needs_two_devices
def test_device_context_nests_and_survives_exceptions() -> None:
    with torch.openreg.device(1):
        assert torch.openreg.current_device() == 1
        with torch.openreg.device("openreg:0"):
            assert torch.openreg.current_device() == 0
        assert torch.openreg.current_device() == 1
    assert torch.openreg.current_device() == 0
    with pytest.raises(KeyError), torch.openreg.device(1):
        raise KeyError
    assert torch.openreg.current_device() == 0


@needs_two_devices
def test_device_of() -> None:
    with torch.openreg.device_of(torch.ones(1, device="openreg:1")):
        assert torch.openreg.current_device() == 1
    with torch.openreg.device_of(torch.ones(1)):
        assert torch.openreg.current_device() == 0


@needs_two_devices
def test_exchange_device() -> None:
    assert torch.openreg._exchange_device(1) == 0
    assert torch.openreg._exchange_device(-1) == 1
    assert torch.openreg._maybe_exchange_device(0) == 1


@needs_two_devices
def test_a_guard_of_an_index() -> None:
    torch.openreg.set_device(0)
    with torch.openreg._DeviceGuard(1):
        assert torch.openreg.current_device() == 1
    assert torch.openreg.current_device() == 0


def test_a_lazy_call_is_made_at_once() -> None:
    code = """
        import torch
        torch.openreg._lazy_call(lambda: torch.openreg.manual_seed(5), seed=True)
        print(torch.openreg.initial_seed(), torch.openreg.is_initialized())
    """
    assert child.output(code) == "5 False"


@needs_two_devices
def test_current_device_belongs_to_the_thread() -> None:
    torch.openreg.set_device(1)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(torch.openreg.current_device()))
    thread.start()
    thread.join()
    assert seen == [0]


def test_properties() -> None:
    properties = torch.openreg.get_device_properties(LAST)
    assert properties.total_memory > 0
    assert properties.multi_processor_count >= 1
    assert properties.allocation_granularity >= 1
    assert torch.openreg.get_device_name(LAST) == properties.name != ""
    assert torch.openreg.get_device_capability() == (properties.major, properties.minor)
    assert torch.openreg.mem_get_info(LAST)[1] == properties.total_memory
    assert properties.warp_size == properties.max_threads_per_multi_processor == 1
    assert properties.L2_cache_size >= 0
    code = f"import torch; print(torch.openreg.get_device_properties({LAST!r}).uuid)"
    assert child.output(code) == str(properties.uuid)


@needs_two_devices
def test_devices_have_different_identifiers() -> None:
    first, second = (torch.openreg.get_device_properties(index) for index in (0, 1))
    assert first.uuid != second.uuid


def test_memory_is_a_setting() -> None:
    code = "import torch; print(torch.openreg.get_device_properties().total_memory)"
    assert child.output(code, OPENREG_DEVICE_MEMORY="64M") == str(64 << 20)


@needs_two_devices
def test_synchronize_waits_for_its_device() -> None:
    with torch.openreg.device(1):
        torch.openreg._sleep(200_000_000)
        busy = torch.openreg.current_stream()
    torch.openreg.synchronize(0)
    assert not busy.query()
    torch.openreg.synchronize("openreg:1")
    assert busy.query()


def test_mixed_precision_types() -> None:
    assert torch.openreg.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
    assert torch.openreg.is_bf16_supported()


@needs_two_devices
def test_devices_reach_the_memory_of_each_other() -> None:
    assert torch.openreg.can_device_access_peer(0, 1)
    assert torch.openreg.can_device_access_peer("openreg:1", torch.device("openreg:0"))
    assert not torch.openreg.can_device_access_peer(1, 1)
    with pytest.raises(RuntimeError, match="out of range"):
        torch.openreg.can_device_access_peer(0, 99)
    with pytest.raises(ValueError, match="cpu"):
        torch.openreg.can_device_access_peer("cpu", 0)


def test_representation_of_a_context() -> None:
    assert repr(torch.openreg.device("openreg:1")) == "device(1)"  # the device need not exist


@pytest.mark.parametrize(
    "use",
    [
        "torch.openreg._sleep(NAP)",
        "torch.Stream(LAST).record_event(); torch.openreg._sleep(NAP)",
        "torch.ones(1, device='cpu').to(LAST); torch.openreg._sleep(NAP)",
    ],
)
def test_the_accelerator_waits_however_the_device_was_used_first(use: str) -> None:
    printed = child.output(
        f"""
        import torch
        NAP = 300_000_000
        LAST = {LAST_INDEX}
        with torch.openreg.device(LAST):
            {use}
        torch.accelerator.synchronize(LAST)
        print(torch.openreg.current_stream(LAST).query())
        """
    )
    assert printed == "True"


def test_the_accelerator_does_not_start_a_device_to_wait_for_it() -> None:
    printed = child.output(
        """
        import os, torch
        before = len(os.listdir("/proc/self/task"))
        torch.accelerator.synchronize()
        print(torch.openreg.is_initialized(), len(os.listdir("/proc/self/task")) - before)
        """
    )
    assert printed == "False 0"
