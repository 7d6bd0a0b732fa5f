# SPDX-License-Identifier: BSD-3-Clause
"""Tests pinned host memory: asynchronous copies, and how long they keep their memory."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tests import child
from tests.devices import LAST

NAP = 300_000_000  # nanoseconds, much longer than a launch on a busy machine
N = 1 << 18


@pytest.fixture(autouse=True)
def _quiet_devices() -> Iterator[None]:
    torch.openreg.set_device(0)
    for index in range(torch.openreg.device_count()):
        torch.openreg.synchronize(index)
    torch.accelerator.empty_host_cache()
    yield
    torch.openreg.synchronize()


def test_pin_memory_copies_once() -> None:
    plain = torch.arange(1000.0)
    pinned = plain.pin_memory()
    assert pinned.is_pinned()
    assert not plain.is_pinned()
    assert pinned.data_ptr() != plain.data_ptr()
    assert torch.equal(pinned, plain)
    assert pinned.pin_memory() is pinned
    assert pinned[10:20].is_pinned()
    assert pinned.untyped_storage().is_pinned()
    assert not torch.ones(3, device="openreg").is_pinned()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(5, pin_memory=True),
        lambda: torch.zeros(5, pin_memory=True),
        lambda: torch.randn(5, pin_memory=True),
        lambda: torch.tensor([1.0, 2.0], pin_memory=True),
        lambda: torch.empty_strided((2, 3), (3, 1), pin_memory=True),
        lambda: torch.empty_like(torch.ones(5), pin_memory=True),
    ],
)
def test_factories(make: Callable[[], Tensor]) -> None:
    tensor = make()
    assert tensor.is_pinned()
    assert tensor.device.type == "cpu"
    assert not torch.empty(0, pin_memory=True).numel()


def test_asking_starts_nothing() -> None:
    child.output(
        """
        import torch
        assert not torch.ones(3).is_pinned()
        assert not torch.openreg.is_initialized()
        assert torch.ones(3).pin_memory().is_pinned()
        """
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_copies_both_ways(dtype: torch.dtype) -> None:
    source = torch.arange(N).to(dtype).pin_memory()
    moved = source.to("openreg", non_blocking=True)
    back = torch.empty(N, dtype=dtype, pin_memory=True)
    back.copy_(moved, non_blocking=True)
    torch.openreg.current_stream().synchronize()
    assert torch.equal(back, source)
    converted = torch.empty(N, dtype=torch.float64, pin_memory=True)
    converted.copy_(moved, non_blocking=True)
    torch.openreg.current_stream().synchronize()
    assert torch.equal(converted, source.double())


def test_python_does_not_wait_for_copies() -> None:
    source = torch.ones(N).pin_memory()
    target = torch.zeros(N).pin_memory()
    torch.openreg._sleep(NAP)
    moved = source.to("openreg", non_blocking=True)
    target.copy_(moved.mul_(3), non_blocking=True)
    assert not torch.openreg.current_stream().query()
    assert target.sum().item() == 0  # the copies have not run yet
    torch.openreg.current_stream().synchronize()
    assert target.sum().item() == 3 * N


def timed() -> torch.Event:
    return torch.Event("openreg", enable_timing=True)


@pytest.mark.parametrize("direction", ["to the device", "from the device"])
def test_copies_overlap_with_computation(direction: str) -> None:
    host = torch.full((N,), 5.0).pin_memory()
    device = torch.zeros(N, device="openreg")
    copies = torch.openreg.Stream()
    torch.openreg.synchronize()
    origin, *marks = (timed() for _ in range(5))
    compute_start, compute_end, copy_start, copy_end = marks
    origin.record()
    compute_start.record()
    torch.openreg._sleep(NAP)
    compute_end.record()
    with torch.openreg.stream(copies):
        copy_start.record()
        for _ in range(10):
            if direction == "to the device":
                device.copy_(host, non_blocking=True)
            else:
                host.copy_(device, non_blocking=True)
        copy_end.record()
    torch.openreg.synchronize()
    times = {mark: origin.elapsed_time(mark) for mark in marks}
    assert times[copy_start] < times[copy_end]
    # The two intervals overlap, so the copies did not wait for the computation.
    assert max(times[compute_start], times[copy_start]) < min(times[compute_end], times[copy_end])
    assert device.sum().item() == (5 * N if direction == "to the device" else 0)
    assert host.sum().item() == (5 * N if direction == "to the device" else 0)


def test_a_copy_keeps_its_memory_until_it_is_done() -> None:
    moved = torch.zeros(N, device="openreg")
    source = torch.full((N,), 7.0).pin_memory()
    pointer = source.data_ptr()
    torch.openreg._sleep(NAP)
    moved.copy_(source, non_blocking=True)
    del source
    others = [torch.full((N,), -1.0).pin_memory() for _ in range(8)]
    assert not torch.openreg.current_stream().query()
    assert pointer not in {other.data_ptr() for other in others}
    assert moved.sum().item() == 7 * N


def test_memory_is_used_again_when_the_copy_is_done() -> None:
    source = torch.full((N,), 7.0).pin_memory()
    pointer = source.data_ptr()
    moved = source.to("openreg", non_blocking=True)
    torch.openreg.synchronize()
    del source
    again = [torch.empty(N, pin_memory=True) for _ in range(3)]
    assert pointer in {tensor.data_ptr() for tensor in again}
    assert moved.sum().item() == 7 * N


def test_a_copy_on_a_side_stream_keeps_its_memory() -> None:
    side = torch.openreg.Stream(LAST)
    source = torch.full((N,), 7.0).pin_memory()
    pointer = source.data_ptr()
    with torch.openreg.stream(side):
        torch.openreg._sleep(NAP)
        moved = source.to(LAST, non_blocking=True)
    del source
    assert torch.empty(N, pin_memory=True).data_ptr() != pointer
    side.synchronize()
    assert moved.sum().item() == 7 * N


def test_a_result_on_its_way_to_the_host_keeps_its_memory() -> None:
    device = torch.full((N,), 3.0, device="openreg")
    target = torch.empty(N, pin_memory=True)
    pointer = target.data_ptr()
    torch.openreg._sleep(NAP)
    target.copy_(device, non_blocking=True)
    del target
    other = torch.zeros(N, pin_memory=True)
    assert other.data_ptr() != pointer
    torch.openreg.synchronize()
    assert other.sum().item() == 0


def test_the_host_may_change_pageable_memory_at_once() -> None:
    for size in (10, N):
        source = torch.ones(size)
        torch.openreg._sleep(NAP // 10)
        moved = source.to("openreg", non_blocking=True)
        source.fill_(-1)
        assert moved.sum().item() == size


@pytest.mark.parametrize("size", [10, N])
def test_a_blocking_copy_reads_pinned_memory_in_order(size: int) -> None:
    source = torch.zeros(size, pin_memory=True)
    values = torch.ones(size, device="openreg")
    torch.openreg._sleep(NAP // 10)
    source.copy_(values, non_blocking=True)
    assert source.to("openreg").sum().item() == size


def test_views_of_pinned_memory() -> None:
    source = torch.arange(64.0).reshape(8, 8).pin_memory()
    torch.openreg._sleep(NAP // 10)
    moved = [part.to("openreg", non_blocking=True) for part in (source.t(), source[::2], source[3])]
    expected = [source.t().clone(), source[::2].clone(), source[3].clone()]
    del source
    for tensor, values in zip(moved, expected, strict=True):
        assert torch.equal(tensor.cpu(), values)


def test_empty_host_cache_releases_memory() -> None:
    def pinned_kib() -> int:
        with open("/proc/self/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        return int(fields["RssAnon"].split()[0]) + int(fields["RssShmem"].split()[0])

    size = 64 << 20
    tensor = torch.ones(size, dtype=torch.uint8).pin_memory()
    with_it = pinned_kib()
    del tensor
    assert pinned_kib() > with_it - (size >> 11)  # freed pinned memory is cached
    torch.accelerator.empty_host_cache()
    assert pinned_kib() < with_it - (size >> 11)
    torch.openreg.empty_host_cache()
    assert torch.ones(10).pin_memory().sum().item() == 10


def test_memory_in_use_survives_empty_host_cache() -> None:
    source = torch.full((N,), 7.0).pin_memory()
    torch.openreg._sleep(NAP // 3)
    moved = source.to("openreg", non_blocking=True)
    del source
    torch.accelerator.empty_host_cache()
    assert moved.sum().item() == 7 * N


class Squares(Dataset[Tensor]):
    """The dataset of square numbers: 0, 1, 4, 9, ..."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Tensor:
        """Returns one value as a CPU tensor, without using the device."""
        return torch.tensor(float(index * index))


@pytest.mark.parametrize("method", [None, "fork", "forkserver", "spawn"])
def test_data_loader(method: str | None) -> None:
    total = torch.zeros(1, device="openreg")  # uses the device before the workers start
    loader = DataLoader(
        Squares(),
        batch_size=8,
        num_workers=2 if method else 0,
        pin_memory=True,
        multiprocessing_context=method,
        persistent_workers=method is not None,
    )
    for _ in range(2):
        batches = 0
        for batch in loader:
            assert batch.is_pinned()
            total += batch.to("openreg", non_blocking=True).sum()
            batches += 1
        assert batches == 4
    assert total.item() == 2 * sum(index * index for index in range(32))


def test_data_loader_pins_structures() -> None:
    data = [{"x": torch.ones(3), "y": (torch.zeros(2), index)} for index in range(4)]
    for batch in DataLoader(data, batch_size=2, pin_memory=True):  # type: ignore[arg-type]
        assert batch["x"].is_pinned()
        assert batch["y"][0].is_pinned()
        assert batch["y"][1].is_pinned()


# -------------------------------------------------------------- pinned memory in captures of graphs


def test_pinned_memory_of_a_capture_is_released_with_its_graph() -> None:
    x = torch.zeros(1000, device="openreg")
    torch.openreg.empty_host_cache()
    before = torch.openreg.host_memory_stats()["allocated_bytes.current"]
    for _ in range(3):
        graph = torch.openreg.OpenRegGraph()
        with torch.openreg.graph(graph):
            host = torch.empty(1000, pin_memory=True)
            x.copy_(host, non_blocking=True)
            host.copy_(x, non_blocking=True)
        graph.replay()
        x.copy_(host, non_blocking=True)  # an eager copy also uses the host memory
        torch.openreg.synchronize()
        del graph, host
    torch.openreg.empty_host_cache()
    assert torch.openreg.host_memory_stats()["allocated_bytes.current"] == before


def test_captures_leave_no_pinned_memory_pending() -> None:
    # Each allocation and each free checks all pending memory, so memory that stays pending would
    # slow them down.
    x = torch.zeros(1000, device="openreg")

    def capture() -> None:
        before = torch.ones(1000, pin_memory=True)
        graph = torch.openreg.OpenRegGraph()
        with torch.openreg.graph(graph):
            x.copy_(before, non_blocking=True)
            del before
            host = torch.empty(1000, pin_memory=True)
            host.copy_(x, non_blocking=True)
        graph.replay()
        x.copy_(host, non_blocking=True)
        torch.openreg.synchronize()

    def pending() -> dict[str, int]:
        stats = torch.openreg.host_memory_stats()
        names = ("active_requests", "active_bytes", "allocations", "allocated_bytes")
        return {name: stats[f"{name}.current"] for name in names}

    for _ in range(2):
        capture()
    after_two = pending()
    for _ in range(20):
        capture()
    assert pending() == after_two


def test_memory_that_is_freed_while_its_stream_is_captured() -> None:
    x = torch.zeros(1 << 20, device="openreg")
    torch.openreg.empty_host_cache()
    before = torch.openreg.host_memory_stats()["allocated_bytes.current"]
    used, captured = (torch.ones(1 << 20, pin_memory=True) for _ in range(2))
    stream = torch.openreg.Stream()
    with torch.openreg.stream(stream):
        x.copy_(used, non_blocking=True)
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph, stream=stream):
        del used
        x.copy_(captured, non_blocking=True)
        del captured
    torch.openreg.synchronize()
    later = torch.ones(1 << 20, pin_memory=True)  # may reuse memory freed before the capture
    x.copy_(later, non_blocking=True)
    torch.openreg.synchronize()
    graph.replay()
    assert x.unique().tolist() == [1.0]
    del later, graph
    torch.openreg.empty_host_cache()
    assert torch.openreg.host_memory_stats()["allocated_bytes.current"] == before
