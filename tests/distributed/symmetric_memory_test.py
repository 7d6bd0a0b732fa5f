# SPDX-License-Identifier: BSD-3-Clause
"""Tests symmetric memory: buffers of all ranks, signals, graphs, lifetimes, torch's limits."""

import contextlib
import gc
import os
import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from torch import Tensor
from torch._C._distributed_c10d import _SymmetricMemory

from tests.distributed.faults import message
from tests.distributed.ranks import Group, preload, run
from tests.distributed.symmetric import DEVICE, here, pads_are_zero, symmetric, world

preload("torch.distributed._symmetric_memory", "pytest")

ops = torch.ops.symm_mem


# ------------------------------------------------------------------------------ buffers and signals


def shares_buffers() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    peer = (rank + 1) % size
    tensor, handle = symmetric(100)
    assert (handle.rank, handle.world_size, handle.device) == (rank, size, here())
    assert (handle.buffer_size, handle.offset, handle.multicast_ptr) == (400, 0, 0)
    assert handle.buffer_ptrs[rank] == tensor.data_ptr()
    assert len({*handle.buffer_ptrs, *handle.signal_pad_ptrs}) == 2 * size
    assert symm_mem.is_symm_mem_tensor(tensor)
    assert not symm_mem.is_symm_mem_tensor(torch.empty(3, device=DEVICE))
    assert symm_mem.get_backend(here()) == "OCCL"
    assert not _SymmetricMemory.has_multicast_support(torch._C._autograd.DeviceType.PrivateUse1, 0)

    # Read the buffers of other ranks.
    tensor.fill_(rank)
    handle.barrier()
    assert handle.get_buffer(peer, (2, 3), torch.float32).eq(peer).all()
    assert all(
        each.eq(number).all() for number, each in enumerate(ops.get_remote_tensors(tensor, world()))
    )
    handle.barrier()
    tensor[10:] += 0.5
    handle.barrier()
    assert ops.get_remote_tensors(tensor[10:12], world())[peer].tolist() == [peer + 0.5] * 2
    handle.barrier()
    # Write to another rank's buffer, at an offset, with a different dtype.
    handle.get_buffer(peer, (4,), torch.int16, 10).copy_(torch.full((4,), 7 + rank))
    handle.barrier()
    assert tensor.view(torch.int16)[10:14].eq(7 + (rank - 1) % size).all()
    handle.barrier()

    # A view has the same rendezvous as its storage. A tensor within a buffer has an offset.
    again = symm_mem.rendezvous(tensor[8:], world())
    assert again.buffer_ptrs == handle.buffer_ptrs
    assert (
        symm_mem.rendezvous(handle.get_buffer(rank, (4,), torch.float32, 8), world()).offset == 32
    )
    assert symm_mem.rendezvous(torch.empty(3, device=DEVICE), world()) is None

    # The device has a separate copy of each array of addresses.
    for host, device in (
        (handle.buffer_ptrs, handle.buffer_ptrs_dev),
        (handle.signal_pad_ptrs, handle.signal_pad_ptrs_dev),
    ):
        assert device not in host
        assert device != 0

    # An empty tensor has a signal pad, too. Its barrier must therefore work.
    _, nothing = symmetric(0)
    nothing.barrier()
    pads_are_zero(handle)


@pytest.mark.parametrize("size", [2, 4])
def test_buffers_of_all_ranks(size: int) -> None:
    run(size, shares_buffers)


def signals() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor, handle = symmetric(1)
    tensor.zero_()
    handle.barrier()
    # A counter moves around the ring, and each rank increments it. Only signals order the streams.
    for lap in range(5):
        if rank != 0 or lap > 0:
            handle.wait_signal((rank - 1) % size, channel=lap % 2)
        following = handle.get_buffer((rank + 1) % size, (1,), torch.float32)
        following.copy_(tensor + 1)
        handle.put_signal((rank + 1) % size, channel=lap % 2 if rank + 1 < size else (lap + 1) % 2)
    if rank == 0:
        handle.wait_signal(size - 1, channel=1)
        assert tensor.item() == 5 * size
    # A second signal waits until the first one has been consumed.
    if rank == 0:
        handle.put_signal(1, channel=3)
        handle.put_signal(1, channel=3)
    if rank == 1:
        handle.wait_signal(0, channel=3)
        handle.wait_signal(0, channel=3)
    # Barriers order the writes and reads of different ranks.
    for number in range(200):
        if rank == number % size:
            for peer in range(size):
                handle.get_buffer(peer, (1,), torch.float32).fill_(number)
        handle.barrier(channel=number % 3)
        if number % 50 == 0:
            assert tensor.item() == number
        handle.barrier(channel=number % 3)
    pads_are_zero(handle)


@pytest.mark.parametrize("size", [2, 4])
def test_signals_order_the_ranks(size: int) -> None:
    run(size, signals)


def uses_two_streams() -> None:
    rank = dist.get_rank()
    tensor, handle = symmetric(2)
    streams = [torch.openreg.Stream() for _ in range(2)]
    torch.openreg.synchronize()
    # The two ranks enqueue on their two streams in opposite orders.
    for number in (0, 1) if rank == 0 else (1, 0):
        with torch.openreg.stream(streams[number]):
            for step in range(50):
                tensor[number] = step
                handle.barrier(channel=number)
                other = handle.get_buffer(1 - rank, (1,), torch.float32, number)
                seen = other + 0
                handle.barrier(channel=number)
            tensor.record_stream(streams[number])
        if number == 0:
            streams[0].query()
    torch.openreg.synchronize()
    assert seen.item() == 49
    # Two threads enqueue on different streams.
    errors: list[BaseException] = []

    def barriers(number: int) -> None:
        try:
            torch.openreg.set_device(here_of_rank)
            with torch.openreg.stream(streams[number]):
                for _ in range(50):
                    handle.barrier(channel=number)
                streams[number].synchronize()
        except BaseException as error:
            errors.append(error)

    here_of_rank = here()
    threads = [threading.Thread(target=barriers, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    pads_are_zero(handle)


def test_channels_are_independent() -> None:
    run(2, uses_two_streams)


# ----------------------------------------------------------------------- symmetric memory in graphs


def replays() -> list[list[float]]:
    rank = dist.get_rank()
    tensor, handle = symmetric(4)
    x = torch.zeros(4, device=DEVICE)
    late = symm_mem.empty(4, device=here())

    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        tensor.copy_(x * 2)
        total = ops.one_shot_all_reduce(tensor, "sum", world())
        handle.barrier(channel=1)
        theirs = handle.get_buffer(1 - rank, (4,), torch.float32) + 0
        handle.barrier(channel=1)
    seen = []
    for value in (1.0, 2.0):
        x.fill_(value + rank)
        graph.replay()
        seen.append([*total.tolist(), *theirs.tolist()])
    assert ops.one_shot_all_reduce(tensor, "sum", world()).tolist() == total.tolist()
    pads_are_zero(handle)

    # Calls that share memory are rejected in a capture.
    text = ""
    with torch.openreg.graph(torch.openreg.OpenRegGraph()):
        try:
            symm_mem.rendezvous(late, world())
        except RuntimeError as error:
            text = str(error)
    assert "call rendezvous() before the capture" in text

    # A replay must raise an error if the memory has been freed.
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        handle.barrier()
    graph.replay()
    torch.openreg.synchronize()
    dist.barrier()
    del tensor, theirs, handle
    assert "the symmetric memory was freed" in message(graph.replay)
    return seen


def test_a_graph_is_replayed() -> None:
    first, second = run(2, replays)
    assert first == [[6.0] * 4 + [4.0] * 4, [10.0] * 4 + [6.0] * 4]
    assert second == [[6.0] * 4 + [2.0] * 4, [10.0] * 4 + [4.0] * 4]


# --------------------------------------------------------------------- lifetime of symmetric memory


def frees() -> None:
    rank = dist.get_rank()
    tensor, handle = symmetric(1 << 18)
    tensor.fill_(rank + 1)
    handle.barrier()
    theirs = handle.get_buffer(1 - rank, (4,), torch.float32)
    torch.openreg.synchronize()
    dist.barrier()
    # If one rank frees its memory, the memory stays valid for ranks that have mapped it.
    if rank == 0:
        del tensor, handle, theirs
        gc.collect()
        other = symm_mem.empty(1 << 18, device=here())
        other.fill_(-1)
        torch.openreg.synchronize()
    dist.barrier()
    if rank == 1:
        assert theirs.tolist() == [1.0] * 4
        theirs.fill_(9)
        torch.openreg.synchronize()
    dist.barrier()
    if rank == 0:
        assert other.eq(-1).all()

    def held() -> tuple[int, int, int, int]:
        # A later allocation releases memory that the other rank had still mapped when it was freed.
        for _ in range(2):
            torch.openreg.synchronize()
            gc.collect()
            symm_mem.empty(1, device=here())
            dist.barrier()
        with open("/proc/self/maps") as maps:
            mappings = sum("memfd:" in line for line in maps)
        free, _ = torch.openreg.mem_get_info()
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), mappings, free

    counts = []
    for _ in range(8):
        tensor, handle = symmetric(1 << 18)
        for _ in range(3):
            ops.one_shot_all_reduce(tensor, "sum", world())
        # Free the memory while the stream is still using it.
        del tensor, handle
        torch.openreg.synchronize()
        dist.barrier()
        counts.append(held())
        dist.barrier()
    assert counts[3] == counts[-1], counts


def test_memory_is_released() -> None:
    run(2, frees)


def allocates_with_ids() -> None:
    rank = dist.get_rank()

    def allocate(number: int, count: int = 8) -> Tensor:
        return _SymmetricMemory.empty_strided_p2p(
            (count,), (1,), torch.float32, here(), world(), alloc_id=number
        )

    tensor = allocate(7)
    place = tensor.data_ptr()
    handle = _SymmetricMemory.rendezvous(tensor)
    tensor.fill_(rank)
    handle.barrier()
    with pytest.raises(RuntimeError, match=r"empty_strided_p2p_persistent"):
        allocate(7)
    other = allocate(8)
    assert other.data_ptr() != place
    torch.openreg.synchronize()
    del tensor
    again = allocate(7)
    assert again.data_ptr() == place
    assert again.eq(rank).all()
    assert _SymmetricMemory.rendezvous(again).buffer_ptrs == handle.buffer_ptrs


def test_persistent_allocations() -> None:
    run(2, allocates_with_ids)


def outlives_its_group() -> None:
    rank = dist.get_rank()
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = groups[rank // 2]
    name: Any = mine.group_name
    tensor, handle = symmetric(4, group=name)
    assert (handle.rank, handle.world_size) == (rank % 2, 2)
    tensor.fill_(rank)
    total = ops.one_shot_all_reduce(tensor, "sum", name)
    assert total.eq(4 * (rank // 2) + 1).all()
    # All ranks use the same tensor. Both groups share its signal pad, so only one of them may use
    # the tensor at a time.
    torch.openreg.synchronize()
    dist.barrier()
    assert ops.one_shot_all_reduce(tensor, "sum", world()).eq(6).all()
    torch.openreg.synchronize()
    dist.barrier()
    dist.destroy_process_group(mine)
    handle.barrier()
    assert handle.get_buffer(1 - rank % 2, (4,), torch.float32).eq(rank ^ 1).all()
    torch.openreg.synchronize()
    dist.barrier()

    # Use memory with a new world group that has the same name as the destroyed one.
    store = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    dist.init_process_group("occl", store=dist.PrefixStore("again", store), rank=rank, world_size=4)
    tensor, handle = symmetric(4)
    tensor.fill_(rank)
    assert ops.one_shot_all_reduce(tensor, "sum", world()).eq(6).all()
    pads_are_zero(handle)

    # Use symmetric memory with a group that is not a process group.
    if rank < 2:
        _SymmetricMemory.set_group_info(
            "two", rank, 2, dist.PrefixStore("two", dist.distributed_c10d._get_default_store())
        )
        tensor = _SymmetricMemory.empty_strided_p2p((4,), (1,), torch.float32, here(), "two")
        handle = _SymmetricMemory.rendezvous(tensor)
        handle.barrier()
        assert handle.world_size == 2
    torch.openreg.synchronize()
    dist.barrier()


def test_groups() -> None:
    run(4, outlives_its_group)


def uses_both_devices() -> None:
    rank = dist.get_rank()
    tensors = []
    for index in (rank % 2, 1 - rank % 2):
        device = torch.device(DEVICE, index)
        tensor = symm_mem.empty(4, device=device)
        handle = symm_mem.rendezvous(tensor, world())
        assert handle.device == device
        with torch.openreg.device(device):
            tensor.fill_(rank + 10 * (index == rank % 2))
            tensors.append(ops.one_shot_all_reduce(tensor, "sum", world()))
    for index in range(torch.openreg.device_count()):
        torch.openreg.synchronize(index)
    assert [each.tolist() for each in tensors] == [[21.0] * 4, [1.0] * 4]


def test_several_devices_of_a_process() -> None:
    run(2, uses_both_devices)


def forks() -> int:
    tensor, handle = symmetric(4)
    handle.barrier()
    torch.openreg.synchronize()
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            with pytest.raises(RuntimeError, match="fork"):
                handle.barrier()
            with pytest.raises(RuntimeError, match="fork"):
                symm_mem.empty(4, device=here())
            del tensor, handle
            gc.collect()
            status = 0
        os._exit(status)
    _, status = os.waitpid(child, 0)
    tensor.fill_(1)
    assert ops.one_shot_all_reduce(tensor, "sum", world()).eq(2).all()
    pads_are_zero(handle)
    return os.waitstatus_to_exitcode(status)


def test_a_fork_cannot_use_it() -> None:
    assert run(2, forks) == [0, 0]


# ---------------------------------------------- diagnostics, and features that torch limits to CUDA


def works() -> None:
    tensor, handle = symmetric(5000)
    for _ in range(3):
        tensor.fill_(1)
        assert ops.one_shot_all_reduce(tensor, "sum", world()).eq(2).all()
        ops.two_shot_all_reduce_(tensor, "sum", world())
        handle.barrier()
        assert handle.get_buffer(1 - dist.get_rank(), (4,), torch.float32).eq(2).all()
        handle.barrier()


@pytest.mark.parametrize(
    "mode", ["OPENREG_LAUNCH_BLOCKING", "OPENREG_MEMCHECK", "OPENREG_STREAM_SANITIZER"]
)
def test_diagnostics_find_nothing(mode: str) -> None:
    run(2, works, group=Group(environment={mode: "1"}))


def test_operators_that_torch_implements_with_cuda_streams() -> None:
    run(2, multiplies)


def multiplies() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    a, b = torch.rand(8, 6), torch.rand(6, 4)
    whole = a @ b
    for dim in (0, 1):
        shard = a.chunk(size, dim)[rank].to(DEVICE)
        gathered, products = ops.fused_all_gather_matmul(shard, [b.to(DEVICE)], dim, world())
        torch.testing.assert_close(gathered.cpu(), a)
        torch.testing.assert_close(products[0].cpu(), whole)
        part = ops.fused_matmul_reduce_scatter(a.to(DEVICE), b.to(DEVICE), "avg", dim, world())
        torch.testing.assert_close(part.cpu(), whole.chunk(size, dim)[rank])
    nothing, _ = ops.fused_all_gather_matmul(
        a.to(DEVICE), [b.to(DEVICE)], 0, world(), return_A=False
    )
    assert nothing is None
    wait = torch.ops._c10d_functional.wait_tensor
    mine = torch.full((4,), float(rank), device=DEVICE)
    assert wait(ops._low_contention_all_gather(mine, world())).tolist() == [0.0] * 4 + [1.0] * 4
    assert wait(ops._low_contention_reduce_scatter(mine, "sum", world())).tolist() == [1.0] * 2


def reaches_gates() -> None:
    """Fails if torch no longer limits these features to CUDA. Then update docs/distributed.md."""
    tensor, handle = symmetric(4)
    # The CUDA build of torch fails when it asks the CUDA driver, because no GPU is visible.
    cuda_build = torch.backends.cuda.is_built()
    error = "CUDA error" if cuda_build else "dummy base class _cuda_isCurrentStreamCapturing"
    with pytest.raises(RuntimeError, match=error):
        symm_mem.get_symm_mem_workspace(world(), 16)
    with pytest.raises(ValueError, match="unsupported backend: OCCL"):
        symm_mem.put_signal(tensor, handle, 0)
    with pytest.raises(ValueError, match="unsupported backend: OCCL"):
        symm_mem.wait_signal(handle, 0)
    with pytest.raises(NotImplementedError, match="unsupported backend: OCCL"):
        symm_mem.reduce_scatter_offset(tensor.view(2, 2), [], world(), dim=0)
    with pytest.raises(RuntimeError, match="MemPool did not find backend"):
        symm_mem.get_mem_pool(here())
    with pytest.warns(FutureWarning, match="deprecated"):
        symm_mem.enable_symm_mem_for_group(world())
    assert symm_mem.is_symm_mem_enabled_for_group(world())
    for operator in ("tile_reduce", "nvshmem_put", "nccl_put", "_async_input_mm"):
        for key in ("PrivateUse1", "CompositeExplicitAutograd"):
            assert not torch._C._dispatch_has_kernel_for_dispatch_key(f"symm_mem::{operator}", key)


def test_features_that_torch_limits_to_cuda() -> None:
    run(1, reaches_gates, group=Group(environment={"CUDA_VISIBLE_DEVICES": ""}))
