# SPDX-License-Identifier: BSD-3-Clause
"""Tests private memory pools: which allocations use them, nesting, threads, and release."""

import gc
import threading

import pytest
import torch

from tests import child

MB = 1 << 20


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    torch.openreg.set_device(0)
    gc.collect()
    torch.empty(1, device="openreg")
    torch.openreg.empty_cache()


def tensor(megabytes: int, device: str = "openreg") -> torch.Tensor:
    return torch.empty(megabytes * MB, dtype=torch.uint8, device=device)


def test_a_pool_has_segments_of_its_own() -> None:
    pool = torch.openreg.MemPool()
    with torch.openreg.use_mem_pool(pool):
        inside = tensor(30)
    address = inside.data_ptr()
    del inside
    outside = tensor(30)  # must not use the 30 MiB that the pool has cached
    assert outside.data_ptr() != address
    with torch.openreg.use_mem_pool(pool):
        again = tensor(30)
    assert again.data_ptr() == address


def test_results_in_a_pool_are_right() -> None:
    pool = torch.openreg.MemPool()
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    with torch.openreg.use_mem_pool(pool):
        product = a.to("openreg") @ b.to("openreg")
    torch.testing.assert_close(product.cpu(), a @ b)
    del pool
    torch.openreg.empty_cache()
    torch.testing.assert_close(
        (product * 2).cpu(), (a @ b) * 2
    )  # the result outlives the pool object


def test_ids_and_use_counts() -> None:
    first, second = torch.openreg.MemPool(), torch.openreg.MemPool()
    assert first.id != second.id
    assert first.id != (0, 0)
    assert first.use_count() == 1
    with torch.openreg.use_mem_pool(first):
        assert first.use_count() == 2
        with torch.openreg.use_mem_pool(first):
            assert first.use_count() == 3
        assert second.use_count() == 1
    assert first.use_count() == 1


def test_memory_is_kept_while_the_pool_lives_and_released_after_it() -> None:
    before = torch.openreg.memory_reserved()
    pool = torch.openreg.MemPool()
    with torch.openreg.use_mem_pool(pool):
        kept = tensor(40)
    del kept
    torch.openreg.empty_cache()
    assert torch.openreg.memory_reserved() >= before + 40 * MB
    del pool
    torch.openreg.empty_cache()
    assert torch.openreg.memory_reserved() == before


def test_a_pool_ends_with_its_last_tensor() -> None:
    before = torch.openreg.memory_reserved()
    pool = torch.openreg.MemPool()
    with torch.openreg.use_mem_pool(pool):
        kept = tensor(40).fill_(7)
    del pool
    torch.openreg.empty_cache()
    assert torch.openreg.memory_reserved() >= before + 40 * MB
    assert int(kept.max()) == 7
    del kept
    torch.openreg.empty_cache()
    assert torch.openreg.memory_reserved() == before


def test_contexts_nest_and_the_innermost_counts() -> None:
    outer, inner = torch.openreg.MemPool(), torch.openreg.MemPool()
    with torch.openreg.use_mem_pool(outer):
        in_outer = tensor(30).data_ptr()
        with torch.openreg.use_mem_pool(inner):
            in_inner = tensor(30).data_ptr()
            assert in_inner != in_outer
        assert tensor(30).data_ptr() == in_outer
    assert tensor(30).data_ptr() not in (in_outer, in_inner)
    with torch.openreg.use_mem_pool(inner):
        assert tensor(30).data_ptr() == in_inner


def test_an_exception_ends_the_context() -> None:
    pool = torch.openreg.MemPool()
    addresses: list[int] = []

    def fail() -> None:
        with torch.openreg.use_mem_pool(pool):
            addresses.append(tensor(30).data_ptr())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert pool.use_count() == 1
    assert tensor(30).data_ptr() not in addresses


def test_only_the_calling_thread_is_meant() -> None:
    pool = torch.openreg.MemPool()
    with torch.openreg.use_mem_pool(pool):
        address = tensor(30).data_ptr()
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(tensor(30).data_ptr()))
        thread.start()
        thread.join()
        assert found[0] != address
        assert tensor(30).data_ptr() == address


def test_threads_in_one_pool_end_their_own_contexts() -> None:
    pool = torch.openreg.MemPool()
    entered, left = threading.Event(), threading.Event()
    found: list[bool] = []
    with torch.openreg.use_mem_pool(pool):
        address = tensor(30).data_ptr()

    def other() -> None:
        with torch.openreg.use_mem_pool(pool):
            entered.set()
            left.wait()
            found.append(tensor(30).data_ptr() == address)

    thread = threading.Thread(target=other)
    with torch.openreg.use_mem_pool(pool):
        thread.start()
        entered.wait()
    assert tensor(30).data_ptr() != address
    left.set()
    thread.join()
    assert found == [True]


def test_a_pool_of_another_device() -> None:
    pool = torch.openreg.MemPool(device=1)
    assert pool.device == 1
    for device in (0, "openreg:0"):
        context = torch.openreg.use_mem_pool(pool, device=device)
        with pytest.raises(ValueError, match="belongs to device 1"), context:
            pass
    before = torch.openreg.memory_reserved(1)
    with torch.openreg.use_mem_pool(pool, device="openreg:1"):
        here, there = tensor(30), tensor(30, "openreg:1")
    assert torch.openreg.memory_reserved(1) >= before + 30 * MB
    address = here.data_ptr()
    del here, there
    assert tensor(30).data_ptr() == address  # allocations on device 0 do not use the pool


def test_bad_arguments() -> None:
    context = torch.openreg.use_mem_pool((0, 1))
    with pytest.raises(TypeError, match="MemPool"), context:
        pass
    with pytest.raises(RuntimeError, match="out of range"):
        torch.openreg.MemPool(device=99)
    with pytest.raises(ValueError, match="type openreg"):
        torch.openreg.MemPool(device="cpu")
    with pytest.raises(TypeError, match="MemPool\\(device=1\\)"):
        torch.openreg.MemPool(1)


def test_a_pool_that_splits_nothing() -> None:
    pool = torch.openreg.MemPool(no_split=True)
    with torch.openreg.use_mem_pool(pool):
        held = [tensor(1), tensor(3), torch.ones(5, device="openreg")]
    segments = pool.snapshot(include_traces=False)
    assert len(segments) == len(held)
    assert {segment["address"] for segment in segments} == {each.data_ptr() for each in held}
    assert all(len(segment["blocks"]) == 1 for segment in segments)
    assert held[2].sum().item() == 5
    with torch.openreg.use_mem_pool(torch.openreg.MemPool()):
        first, second = tensor(3), tensor(3)
    assert abs(second.data_ptr() - first.data_ptr()) == 3 * MB  # both are in the same segment


def test_other_allocations_use_a_pool_if_memory_runs_out() -> None:
    code = """
        import torch
        def tensor(megabytes):
            return torch.empty(megabytes << 20, dtype=torch.uint8, device="openreg")
        for lends in (False, True):
            pool = torch.openreg.MemPool(use_on_oom=lends)
            with torch.openreg.use_mem_pool(pool):
                address = tensor(60).data_ptr()
            try:
                result = tensor(50)
                print(result.data_ptr() == address)
                del result
            except torch.OutOfMemoryError:
                print("no room")
            del pool
            torch.openreg.empty_cache()
    """
    assert child.output(code, OPENREG_DEVICE_MEMORY="100M").split("\n") == ["no room", "True"]


def test_streams_in_a_pool_do_not_share() -> None:
    pool = torch.openreg.MemPool()
    side = torch.openreg.Stream()
    with torch.openreg.use_mem_pool(pool):
        address = tensor(30).data_ptr()
        with torch.openreg.stream(side):
            assert tensor(30).data_ptr() != address


def test_many_pools() -> None:
    before = torch.openreg.memory_reserved()
    for _ in range(300):
        with torch.openreg.use_mem_pool(torch.openreg.MemPool()):
            torch.ones(10, device="openreg")
    torch.openreg.empty_cache()
    assert torch.openreg.memory_reserved() == before


def test_a_full_device_releases_dropped_pools_and_keeps_live_ones() -> None:
    child.output(
        """
        import torch
        def tensor(megabytes):
            return torch.empty(megabytes << 20, dtype=torch.uint8, device="openreg")
        pool = torch.openreg.MemPool()
        with torch.openreg.use_mem_pool(pool):
            tensor(40)
        try:
            tensor(40)
        except torch.OutOfMemoryError as error:
            assert "private pools" in str(error), error
        else:
            raise AssertionError("no error")
        del pool
        tensor(40)
        """,
        OPENREG_DEVICE_MEMORY="64M",
    )


def test_the_name_of_a_pool() -> None:
    pool = torch.openreg.MemPool(device=1)
    assert repr(pool) == f"<torch.openreg.MemPool device=openreg:1 id={pool.id}>"


def test_a_dropped_pool_releases_its_memory() -> None:
    before = torch.openreg.memory_reserved()
    pool = torch.openreg.MemPool()
    with torch.openreg.use_mem_pool(pool):
        kept, dropped = tensor(40), tensor(60)
    del dropped
    torch.openreg.synchronize()
    del pool
    assert torch.openreg.memory_reserved() == before + 40 * MB
    del kept
    other = tensor(30)  # allocates a new segment
    assert torch.openreg.memory_reserved() == before + 30 * MB
    del other


def test_a_pool_whose_stream_is_busy_is_dropped_without_a_wait() -> None:
    before = torch.openreg.memory_reserved()
    pool = torch.openreg.MemPool()
    with torch.openreg.use_mem_pool(pool):
        x = tensor(40).add_(1)  # the first call with these dtypes waits
    torch.openreg.synchronize()
    torch.openreg._sleep(300_000_000)
    x.add_(1)
    del x, pool
    assert not torch.openreg.current_stream().query()
    torch.openreg.synchronize()
    another = torch.openreg.MemPool()
    del another  # dropping a pool also releases earlier pools that were dropped while busy
    assert torch.openreg.memory_reserved() == before
