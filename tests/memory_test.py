# SPDX-License-Identifier: BSD-3-Clause
"""Tests memory statistics of each device: allocated and reserved bytes, peaks and limits."""

import gc
import os
import re

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
        torch.empty(1, device=f"openreg:{index}")  # the allocator counts from its first use
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


def test_peak_is_kept_until_it_is_reset() -> None:
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


def test_used_memory_of_a_device() -> None:
    before = torch.openreg.device_memory_used(1)
    pointer = torch.openreg.caching_allocator_alloc(8 * MB, 1)
    assert torch.openreg.device_memory_used(1) >= before + 8 * MB
    listed = torch.openreg.list_gpu_processes(1)
    used = torch.openreg.device_memory_used(1) / MB
    assert listed.startswith("openreg:1\n")
    assert re.search(rf"process +{os.getpid()} uses +{used:.3f} MB", listed)
    torch.openreg.caching_allocator_delete(pointer)
    code = "import torch; print(torch.openreg.list_gpu_processes())"
    assert child.output(code).endswith("no processes are running")


@pytest.mark.parametrize(
    ("old", "new"),
    [("memory_cached", "memory_reserved"), ("max_memory_cached", "max_memory_reserved")],
)
def test_old_names_of_figures(old: str, new: str) -> None:
    held = torch.empty(8 * MB, dtype=torch.uint8, device="openreg:1")
    with pytest.warns(FutureWarning, match=f"use torch.openreg.{new}"):
        value = getattr(torch.openreg, old)(1)
    assert value == getattr(torch.openreg, new)(1) >= held.nbytes


@pytest.mark.parametrize("name", ["reset_max_memory_allocated", "reset_max_memory_cached"])
def test_old_names_of_the_reset_of_peaks(name: str) -> None:
    tensor = torch.empty(8 * MB, dtype=torch.uint8, device="openreg")
    del tensor
    assert torch.openreg.max_memory_allocated() > torch.openreg.memory_allocated()
    with pytest.warns(FutureWarning, match="use torch.openreg.reset_peak_memory_stats"):
        getattr(torch.openreg, name)()
    assert torch.openreg.max_memory_allocated() == torch.openreg.memory_allocated()


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
        for _ in range(3):  # the device continues to work
            try:
                torch.empty(1 << 30, device="openreg")
            except torch.OutOfMemoryError as error:
                message = str(error)
            else:
                raise AssertionError("no error")
            assert "openreg" in message, message
            assert kept.sum().item() == 1 << 20
        cached = torch.empty(24 << 20, dtype=torch.uint8, device="openreg")
        del cached  # cached memory is released if it is needed
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


def memory_files() -> int:
    """Returns how many bytes the devices use: the pages of the files that hold their memory."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        try:
            if "memfd:" in os.readlink(path):
                total += os.stat(path).st_blocks * 512
        except FileNotFoundError:
            pass  # the file was closed after listdir
    return total


def test_empty_cache_releases_pages() -> None:
    before = memory_files()
    tensor = torch.ones(64 * MB, dtype=torch.uint8, device="openreg")
    torch.openreg.synchronize()
    assert memory_files() >= before + 64 * MB
    del tensor
    assert memory_files() >= before + 64 * MB
    torch.openreg.empty_cache()
    assert memory_files() <= before + MB


def test_a_fraction_of_the_memory_is_a_limit() -> None:
    child.output(
        """
        import torch
        MB = 1 << 20
        def fails(megabytes):
            try:
                torch.empty(megabytes * MB, dtype=torch.uint8, device="openreg")
            except torch.OutOfMemoryError as error:
                return str(error)
            return None
        def told(message, asked, free, holds, allowed):
            # The same order as in CUDA's message; accelerate searches for the first words.
            place = 0
            for part in (
                "openreg: device 0 is out of memory. Tried to allocate " + asked + ".",
                "The device has " + free + ".",
                "This process " + holds + " of it",
                "and is allowed " + allowed,
                "torch.openreg.set_per_process_memory_fraction",
                "in tensors",
            ):
                assert part in message[place:], (part, message)
                place = message.index(part, place) + len(part)
        assert torch.openreg.get_per_process_memory_fraction() == 1
        total = torch.openreg.mem_get_info()[1]
        torch.openreg.set_per_process_memory_fraction(0.5)
        assert torch.openreg.get_per_process_memory_fraction() == 0.5
        assert torch.openreg.get_per_process_memory_fraction(1) == 1
        assert torch.openreg.mem_get_info()[1] == total
        message = fails(80)
        told(message, "80.00 MiB", "128.00 MiB free of 128.00 MiB", "holds 0 B", "64.00 MiB")
        assert fails(60) is None
        kept = torch.ones(60 * MB, dtype=torch.uint8, device="openreg")
        torch.openreg.set_per_process_memory_fraction(0.1)  # existing memory stays
        assert kept[-1].item() == 1
        message = fails(20)
        told(message, "20.00 MiB", "68.00 MiB free of 128.00 MiB", "holds 60.00 MiB", "12.80 MiB")
        torch.openreg.set_per_process_memory_fraction(1)
        message = fails(120)
        assert message is not None and "fraction" not in message, message
        del kept
        torch.openreg.set_per_process_memory_fraction(0.0)
        told(fails(1), "1.00 MiB", "128.00 MiB free of 128.00 MiB", "holds 0 B", "0 B")
        torch.openreg.set_per_process_memory_fraction(1.0)
        assert fails(80) is None
        assert torch.empty(80 * MB, dtype=torch.uint8, device="openreg:1").is_openreg
        """,
        OPENREG_DEVICE_MEMORY="128M",
    )


def test_bad_fractions() -> None:
    for fraction in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="between 0 and 1"):
            torch.openreg.set_per_process_memory_fraction(fraction)
    with pytest.raises(TypeError, match="number"):
        torch.openreg.set_per_process_memory_fraction("0.5")
    with pytest.raises(RuntimeError, match="out of range"):
        torch.openreg.set_per_process_memory_fraction(0.5, 99)
    assert torch.openreg.get_per_process_memory_fraction() == 1


def test_a_training_loop_continues_with_smaller_batches() -> None:
    child.output(
        """
        import torch
        model = torch.nn.Linear(256, 256, device="openreg")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        def step(batch):
            optimizer.zero_grad()
            loss = torch.relu(model(torch.ones(batch, 256, device="openreg"))).square().mean()
            loss.backward()
            optimizer.step()
            return loss.item()
        failures = 0
        for _ in range(100):
            batch = 8192  # 8 MiB per tensor of a step; the third does not fit
            while True:
                try:
                    loss = step(batch)
                    break
                except torch.OutOfMemoryError as error:
                    assert " out of memory." in str(error)
                    failures += 1
                    batch //= 32
            assert batch == 256 and loss == loss, (batch, loss)
        assert failures == 100, failures
        assert torch.openreg.memory_stats()["num_ooms"] == 100
        """,
        OPENREG_DEVICE_MEMORY="20M",
    )


def test_the_settings_of_the_environment() -> None:
    child.output(
        """
        import torch
        tensor = torch.empty(5 << 20, dtype=torch.uint8, device="openreg")
        assert torch.openreg.memory_allocated() == 6 << 20, torch.openreg.memory_allocated()
        assert torch.openreg.memory_reserved() == 32 << 20, torch.openreg.memory_reserved()
        assert torch.openreg.get_per_process_memory_fraction() == 0.5
        assert torch.openreg.get_per_process_memory_fraction(1) == 0.5
        # Settings may also change at run time.
        torch._C._accelerator_setAllocatorSettings("roundup_power2_divisions:1")
        other = torch.empty(5 << 20, dtype=torch.uint8, device="openreg")
        assert torch.openreg.memory_allocated() == 11 << 20
        torch._C._accelerator_setAllocatorSettings("per_process_memory_fraction:0.75")
        assert torch.openreg.get_per_process_memory_fraction() == 0.75
        """,
        PYTORCH_ALLOC_CONF="roundup_power2_divisions:2,large_segment_size_mb:32,max_split_size_mb:40,"
        "per_process_memory_fraction:0.5,expandable_segments:False",
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("expandable_segments:True", "cannot grow in place"),
        ("backend:cudaMallocAsync", "there is only one allocator"),
        ("pinned_use_cuda_host_register:True", "not registered with CUDA"),
        ("pinned_free_catch_all:True", "CUDA's functions for pinned memory"),
        ("throw_on_cudamalloc_oom:True", "CUDA's allocation function"),
        ("graph_capture_record_stream_reuse:True", "captures of CUDA graphs"),
        ("per_process_memory_fraction:2", "between 0 and 1, but is '2'"),
        ("per_process_memory_fraction:half", "between 0 and 1, but is 'half'"),
    ],
)
def test_settings_that_do_not_fit(setting: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        torch._C._accelerator_setAllocatorSettings(setting)
    assert torch.ones(3, device="openreg").sum().item() == 3
    error = child.run(
        """
        import torch
        for _ in range(2):
            try:
                torch.empty(1, device="openreg")
            except ValueError as error:
                print(error)
        """,
        PYTORCH_ALLOC_CONF=setting,
    )
    assert error.stdout.count("PYTORCH_ALLOC_CONF") == 2, error.stdout + error.stderr
    assert message in error.stdout


def test_the_error_of_a_foreign_option_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"garbage_collection_threshold, .*max_split_size_mb"):
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    with pytest.raises(ValueError, match="no_such_option"):
        torch._C._accelerator_setAllocatorSettings("no_such_option:1")
    torch._C._accelerator_setAllocatorSettings("backend:native")


def test_settings_for_another_device_are_accepted_until_the_first_use() -> None:
    child.output(
        """
        import torch
        set_options = torch._C._accelerator_setAllocatorSettings
        # A program for CUDA may call this on a machine where this package is installed.
        set_options("expandable_segments:True")
        for _ in range(2):
            try:
                torch.empty(1, device="openreg")
            except ValueError as error:
                assert "cannot grow in place" in str(error), error
            else:
                raise AssertionError("the option was ignored")
        set_options("expandable_segments:False,per_process_memory_fraction:0.5")
        assert torch.ones(3, device="openreg").sum().item() == 3
        assert torch.openreg.get_per_process_memory_fraction() == 0.5
        """
    )


def test_garbage_collection_releases_memory_before_the_device_is_full() -> None:
    child.output(
        """
        import torch
        MB = 1 << 20
        def cycle(megabytes):
            torch.empty(megabytes * MB, dtype=torch.uint8, device="openreg")
        cycle(40)
        cycle(60)  # above half of 128 MiB
        assert torch.openreg.memory_reserved() == 60 * MB, torch.openreg.memory_reserved()
        assert torch.openreg.memory_stats()["num_alloc_retries"] == 0
        """,
        OPENREG_DEVICE_MEMORY="128M",
        PYTORCH_ALLOC_CONF="garbage_collection_threshold:0.5",
    )


def test_the_summary_shows_the_figures() -> None:
    held = torch.empty(12345 << 10, dtype=torch.uint8, device="openreg")
    whole, short = torch.openreg.memory_summary(), torch.openreg.memory_summary(abbreviated=True)
    row = next(line for line in whole.splitlines() if "Allocated" in line)
    assert re.search(r"\b\d+ (KiB|MiB)", row), row
    assert f"{torch.openreg.memory_allocated() / 1024:.0f} KiB" in row or "MiB" in row
    segments = torch.openreg.memory_stats()["segment.all.current"]
    row = next(line for line in short.splitlines() if "Segments" in line)
    assert row.split("|")[2].strip() == str(segments)
    assert len(short.splitlines()) < len(whole.splitlines())
    assert len({len(line) for line in whole.splitlines()[1:]}) == 1  # columns are aligned
    assert "openreg:1" in torch.openreg.memory_summary(1)
    del held


def test_nested_statistics_are_the_flat_ones() -> None:
    held = torch.empty(MB, device="openreg")
    flat, nested = torch.openreg.memory_stats(), torch.openreg.memory_stats_as_nested_dict()
    for name in ("allocated_bytes.all.current", "segment.small_pool.peak", "num_ooms"):
        value = nested
        for part in name.split("."):
            value = value[part]
        assert value == flat[name]
    assert nested["allocated_bytes"]["all"]["current"] >= held.nbytes


def test_memory_without_a_tensor() -> None:
    before = torch.openreg.memory_allocated()
    address = torch.openreg.caching_allocator_alloc(5 * MB)
    side = torch.openreg.Stream()
    other = torch.openreg.caching_allocator_alloc(100, 0, side)
    third = torch.openreg.caching_allocator_alloc(100, stream=side.native_handle)
    assert len({address, other, third}) == 3
    assert torch.openreg.memory_allocated() >= before + 5 * MB + 200
    assert torch.openreg.caching_allocator_alloc(0) == 0
    torch.openreg.caching_allocator_delete(0)
    for block in (address, other, third):
        torch.openreg.caching_allocator_delete(block)
    assert torch.openreg.memory_allocated() == before
    on_second = torch.openreg.caching_allocator_alloc(MB, "openreg:1")
    assert torch.openreg.memory_allocated() == before
    torch.openreg.caching_allocator_delete(on_second)


def test_bad_requests_for_memory_without_a_tensor() -> None:
    with pytest.raises(ValueError, match="negative size: -1"):
        torch.openreg.caching_allocator_alloc(-1)
    with pytest.raises(RuntimeError, match="out of range"):
        torch.openreg.caching_allocator_alloc(1, 99)
    with pytest.raises(RuntimeError):
        torch.openreg.caching_allocator_alloc(1, 0, torch.openreg.Stream(1))
    with pytest.raises(RuntimeError):
        torch.openreg.caching_allocator_alloc(1, 0, 0x1234)
    with pytest.raises(TypeError, match="stream"):
        torch.openreg.caching_allocator_alloc(1, 0, "side")
    with pytest.raises(RuntimeError, match=r"-8 bytes .* cannot be negative"):
        torch.UntypedStorage(-8, device="openreg")
    with pytest.raises(torch.OutOfMemoryError):
        torch.openreg.caching_allocator_alloc(1 << 45)
    address = torch.openreg.caching_allocator_alloc(100)
    torch.openreg.caching_allocator_delete(address)
    for wrong in (address, 1, torch.ones(3, device="openreg").data_ptr()):
        with pytest.raises(ValueError, match="caching_allocator_alloc"):
            torch.openreg.caching_allocator_delete(wrong)


def test_the_allocator_has_a_name() -> None:
    assert torch.openreg.get_allocator_backend() == "native"


def test_statistics_of_pinned_memory() -> None:
    child.output(
        """
        import torch
        empty = torch.openreg.host_memory_stats()
        assert empty["allocations.current"] == 0 and empty["num_host_alloc"] == 0, empty
        assert empty["host_alloc_time.avg"] == 0, empty
        torch.openreg.reset_peak_host_memory_stats()
        torch.openreg.reset_accumulated_host_memory_stats()
        assert not torch.openreg.is_initialized()

        pinned = torch.empty(3000, dtype=torch.uint8, pin_memory=True)
        stats = torch.openreg.host_memory_stats()
        assert stats["allocated_bytes.current"] == stats["active_bytes.current"] == 4096, stats
        assert stats["allocations.current"] == stats["active_requests.current"] == 1, stats
        assert stats["num_host_alloc"] == stats["host_alloc_time.count"] == 1, stats
        del pinned
        stats = torch.openreg.host_memory_stats()
        assert stats["active_bytes.current"] == 0 and stats["allocated_bytes.current"] == 4096
        assert stats["active_bytes.peak"] == 4096 and stats["active_bytes.freed"] == 4096
        torch.openreg.empty_host_cache()
        stats = torch.openreg.host_memory_stats()
        assert stats["allocated_bytes.current"] == 0 and stats["num_host_free"] == 1, stats
        assert stats["host_free_time.count"] == 1, stats
        torch.openreg.reset_peak_host_memory_stats()
        torch.openreg.reset_accumulated_host_memory_stats()
        stats = torch.openreg.host_memory_stats()
        assert stats["active_bytes.peak"] == 0 and stats["active_bytes.allocated"] == 0, stats
        nested = torch.openreg.host_memory_stats_as_nested_dict()
        assert nested["active_bytes"]["peak"] == 0
        """
    )
