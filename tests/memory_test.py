# SPDX-License-Identifier: BSD-3-Clause
"""Memory figures: they follow tensors, peaks, the cache and the device they are asked of."""

import gc

import pytest
import torch

from tests import child

MB = 1 << 20


@pytest.fixture(autouse=True)
def _fresh_figures() -> None:
    torch.openreg.set_device(0)
    gc.collect()
    for index in range(torch.openreg.device_count()):
        torch.openreg.synchronize(index)
        torch.empty(1, device=f"openreg:{index}")  # from here on the allocator counts
    torch.openreg.empty_cache()
    for index in range(torch.openreg.device_count()):
        torch.openreg.reset_peak_memory_stats(index)
        torch.openreg.reset_accumulated_memory_stats(index)


def test_allocated_goes_up_and_down() -> None:
    before = torch.openreg.memory_allocated()
    tensor = torch.empty(8 * MB, dtype=torch.uint8, device="openreg")
    assert torch.openreg.memory_allocated() == before + 8 * MB
    view = tensor[:10]
    del tensor
    assert torch.openreg.memory_allocated() == before + 8 * MB
    del view
    assert torch.openreg.memory_allocated() == before


def test_peak_stays_until_it_is_reset() -> None:
    before = torch.openreg.memory_allocated()
    tensor = torch.empty(8 * MB, dtype=torch.uint8, device="openreg")
    del tensor
    assert torch.openreg.max_memory_allocated() == before + 8 * MB
    torch.openreg.reset_peak_memory_stats()
    assert torch.openreg.max_memory_allocated() == before


def test_the_cache_keeps_memory_until_it_is_emptied() -> None:
    reserved = torch.openreg.memory_reserved()
    tensor = torch.empty(64 * MB, dtype=torch.uint8, device="openreg")
    grown = torch.openreg.memory_reserved()
    assert grown >= reserved + 64 * MB
    del tensor
    assert torch.openreg.memory_reserved() == grown
    again = torch.empty(64 * MB, dtype=torch.uint8, device="openreg")
    assert torch.openreg.memory_reserved() == grown
    del again
    torch.openreg.empty_cache()
    assert torch.openreg.memory_reserved() <= reserved
    assert torch.openreg.max_memory_reserved() == grown


def test_devices_are_counted_apart() -> None:
    first, second = torch.openreg.memory_allocated(0), torch.openreg.memory_allocated(1)
    tensor = torch.empty(4 * MB, dtype=torch.uint8, device="openreg:1")
    assert torch.openreg.memory_allocated(0) == first
    for device in (1, "openreg:1", tensor.device):
        assert torch.openreg.memory_allocated(device) == second + tensor.nbytes
    with torch.openreg.device(1):
        assert torch.openreg.memory_allocated() == second + tensor.nbytes


def test_free_and_total() -> None:
    free, total = torch.openreg.mem_get_info()
    assert 0 < free <= total
    tensor = torch.empty(64 * MB, dtype=torch.uint8, device="openreg")
    assert torch.openreg.mem_get_info()[0] <= free - 64 * MB
    del tensor
    torch.openreg.empty_cache()
    assert torch.openreg.mem_get_info() == (free, total)


def test_statistics_count_allocations() -> None:
    before = torch.openreg.memory_stats()["allocation.all.allocated"]
    tensors = [torch.empty(1000, device="openreg") for _ in range(5)]
    stats = torch.openreg.memory_stats()
    assert stats["allocation.all.allocated"] == before + 5
    del tensors
    assert torch.openreg.memory_stats()["allocation.all.freed"] >= 5
    torch.openreg.reset_accumulated_memory_stats()
    assert torch.openreg.memory_stats()["allocation.all.allocated"] == 0


def test_figures_are_those_of_torch_accelerator() -> None:
    tensor = torch.empty(MB, device="openreg")
    assert torch.openreg.memory_allocated() == torch.accelerator.memory_allocated() >= tensor.nbytes
    assert torch.openreg.mem_get_info() == torch.accelerator.get_memory_info()


def test_an_allocation_beyond_the_capacity_is_an_out_of_memory_error() -> None:
    child.output(
        """
        import torch
        kept = torch.ones(1 << 20, device="openreg")
        for _ in range(3):  # and the device goes on
            try:
                torch.empty(1 << 30, device="openreg")
            except torch.OutOfMemoryError as error:
                message = str(error)
            else:
                raise AssertionError("no error")
            assert "openreg" in message, message
            assert kept.sum().item() == 1 << 20
        cached = torch.empty(24 << 20, dtype=torch.uint8, device="openreg")
        del cached  # what the cache holds is given back where it is in the way
        assert torch.zeros(40 << 20, dtype=torch.uint8, device="openreg").sum().item() == 0
        """,
        OPENREG_DEVICE_MEMORY="64M",
    )


def test_pinned_memory() -> None:
    tensor = torch.arange(1000.0).pin_memory()
    assert tensor.is_pinned()
    assert not torch.arange(3.0).is_pinned()
    on_device = tensor.to("openreg", non_blocking=True)
    back = on_device.to("cpu", non_blocking=True)
    torch.openreg.synchronize()
    assert torch.equal(back, tensor)
    torch.openreg.empty_host_cache()


def test_before_the_first_use_there_is_nothing() -> None:
    child.output(
        """
        import torch
        assert torch.openreg.memory_allocated() == 0
        assert torch.openreg.max_memory_reserved() == 0
        torch.openreg.reset_peak_memory_stats()
        torch.openreg.empty_cache()
        assert not torch.openreg.is_initialized()
        """
    )
