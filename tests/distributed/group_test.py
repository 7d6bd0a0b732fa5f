# SPDX-License-Identifier: BSD-3-Clause
"""Tests groups: subsets of ranks, splits, merges, shrinking, sequence numbers, destruction."""

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from tests.distributed.ranks import Group, run

DEVICE = "openreg"


def ones(size: int = 4) -> torch.Tensor:
    return torch.ones(size, device=DEVICE)


def device() -> torch.device:
    return torch.device(DEVICE, torch.openreg.current_device())


def new_groups() -> None:
    rank = dist.get_rank()
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    evens = dist.new_group([0, 2])
    for _ in range(3):
        tensor = ones()
        dist.all_reduce(tensor, group=pairs[rank // 2])
        assert tensor.eq(2).all()
        if rank % 2 == 0:
            dist.all_reduce(tensor, group=evens)
            assert tensor.eq(4).all()
        dist.all_reduce(tensor)
        assert tensor.eq(12).all()
    dist.destroy_process_group(pairs[rank // 2])
    with pytest.raises(ValueError, match="group"):
        dist.all_reduce(ones(), group=pairs[rank // 2])
    dist.all_reduce(ones())

    subgroup, _ = dist.new_subgroups(2)
    tensor = ones()
    dist.all_reduce(tensor, group=subgroup)
    assert tensor.eq(2).all()

    mesh = dist.init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("rows", "columns"))
    tensor = torch.full((2,), float(rank), device=DEVICE)
    dist.all_reduce(tensor, group=mesh.get_group("rows"))
    assert tensor.eq(2 * (rank % 2) + 2).all()


def test_groups_of_some_ranks() -> None:
    run(4, new_groups)


def first_operations_in_two_threads() -> None:
    """Each rank begins with another group, and waits for the other rank in both threads."""
    rank = dist.get_rank()
    store = dist.TCPStore("localhost", 0, is_master=True) if rank == 0 else None
    port = [store.port if store is not None else 0]
    dist.broadcast_object_list(port, 0)
    if store is None:
        store = dist.TCPStore("localhost", port[0])
    dist.destroy_process_group()
    timeout = timedelta(seconds=20)
    dist.init_process_group("occl", store=store, rank=rank, world_size=2, timeout=timeout)
    groups = [dist.new_group(timeout=timeout), dist.new_group(timeout=timeout)]
    tensors = [ones(), ones()]
    torch.openreg.synchronize()

    def reduce(n: int) -> None:
        # On one stream, the first operation that is queued would delay the other one. The ranks
        # may queue them in different orders, and would then wait for each other.
        stream = torch.openreg.Stream(tensors[n].device)
        with torch.openreg.stream(stream):
            dist.all_reduce(tensors[n], group=groups[n])
        stream.synchronize()

    threads = [threading.Thread(target=reduce, args=(n,)) for n in (rank, 1 - rank)]
    for thread in threads:
        thread.start()
        time.sleep(0.5)
    for thread in threads:
        thread.join()
    assert all(tensor.eq(2).all() for tensor in tensors)
    dist.barrier()


def test_groups_connect_in_different_orders_in_two_threads() -> None:
    run(2, first_operations_in_two_threads)


class PythonStore(Store):
    """A store of one rank, implemented in Python. Torch does not keep the object alive."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, bytes] = {}

    # Torch calls it with bytes, although the declaration in its stub says str.
    def set(self, key: str, value: bytes) -> None:  # type: ignore[override]
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        assert self.check(keys)

    def deleteKey(self, key: str) -> bool:
        return self.values.pop(key, None) is not None


class UnreachableStore(PythonStore):
    """A store that accepts no further clients."""

    def clone(self) -> Store:
        raise ConnectionError("the server accepts no further clients")


def first_operation_with_store(store: PythonStore) -> torch.Tensor:
    dist.destroy_process_group()
    dist.init_process_group("occl", store=store, rank=0, world_size=1)
    tensor = ones()
    dist.all_reduce(tensor)
    return tensor


def python_stores() -> None:
    assert first_operation_with_store(PythonStore()).eq(1).all()
    # Waiting through the same client could block other threads forever.
    with pytest.raises(ConnectionError, match="no further clients"):
        first_operation_with_store(UnreachableStore())


def test_a_python_store_may_lack_clone_but_its_errors_are_raised() -> None:
    run(1, python_stores)


def splits() -> None:
    rank = dist.get_rank()
    group = dist.split_group(split_ranks=[[0, 2], [1, 3]], timeout=timedelta(seconds=20))
    assert group is not None
    assert dist.get_world_size(group) == 2
    tensor = torch.full((4,), float(rank), device=DEVICE)
    dist.all_reduce(tensor, group=group)
    assert tensor.eq(2 + 2 * (rank % 2)).all()
    alone = dist.split_group(split_ranks=[[3]])
    assert (alone is not None) == (rank == 3)


def test_split_group() -> None:
    run(4, splits, group=Group(bound=True))


def shrinks() -> None:
    dist.all_reduce(ones())
    rank = dist.get_rank()
    if rank == 2:
        time.sleep(1)
        return
    smaller = dist.shrink_group([2])
    tensor = ones()
    dist.all_reduce(tensor, group=smaller)
    assert tensor.eq(3).all()
    assert dist.get_rank(smaller) == [0, 1, None, 2][rank]


def test_shrink_group() -> None:
    run(4, shrinks, group=Group(bound=True))


def sequence_numbers() -> None:
    world = dist.group.WORLD
    assert world is not None
    backend = world._get_backend(device())
    before = backend._get_sequence_number_for_group()
    for _ in range(3):
        dist.all_reduce(ones())
    assert backend._get_sequence_number_for_group() == before + 3
    assert backend.name() == "occl"
    assert backend.supports_splitting
    assert backend.supports_coalescing
    assert backend.supports_shrinking
    assert backend.supports_tensor_alloc(device())
    tensor = backend.allocate_tensor(8, dtype=torch.float16, device=device())
    assert tensor.shape == (8,)
    assert tensor.device == device()
    assert backend.options._timeout == timedelta(seconds=60)
    backend.set_timeout(timedelta(seconds=30))
    assert backend.options._timeout == timedelta(seconds=30)


def test_sequence_numbers_and_options() -> None:
    run(2, sequence_numbers)


def monitored() -> None:
    world = dist.group.WORLD
    assert world is not None
    backend = world._get_backend(device())
    rank = dist.get_rank()
    for _ in range(2):
        backend.monitored_barrier(timeout=timedelta(seconds=20))
    if rank in (1, 3):
        time.sleep(1.5)
        return
    text = "rank 1, 3 did not reach" if rank == 0 else "rank 0 reported: rank 1, 3 did not reach"
    with pytest.raises(dist.DistBackendError, match=text):
        backend.monitored_barrier(timeout=timedelta(seconds=1 + rank), wait_all_ranks=True)


def test_a_monitored_barrier_names_the_missing_ranks() -> None:
    run(4, monitored)


def details() -> None:
    tensor = ones()
    dist.all_reduce(tensor)
    dist.barrier()
    assert tensor.eq(2).all()
    # A mismatch is detected before anything is enqueued.
    size = 3 if dist.get_rank() == 0 else 4
    with pytest.raises(RuntimeError, match=r"different shapes|mismatch"):
        dist.all_reduce(ones(size))


def test_debug_level_detail() -> None:
    run(2, details, group=Group(environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}))


def ends() -> None:
    tensor = ones()
    dist.all_reduce(tensor)
    world = dist.group.WORLD
    assert world is not None
    backend = world._get_backend(device())
    dist.destroy_process_group()
    assert not dist.is_initialized()
    with pytest.raises(dist.DistBackendError, match="was shut down: create a new group"):
        backend.allreduce([tensor])
    dist.init_process_group(
        "occl",
        store=dist.HashStore(),
        rank=0,
        world_size=1,
    )
    dist.all_reduce(tensor)
    assert tensor.eq(2).all()


def test_a_group_can_be_created_after_one_was_destroyed() -> None:
    run(2, ends)


def wrong_arguments() -> None:
    dist.all_reduce(ones())
    with pytest.raises(ValueError, match="got a tensor that is not dense: call contiguous"):
        dist.all_reduce(torch.ones(4, 4, device=DEVICE)[:, :2])
    with pytest.raises(RuntimeError, match="cpu"):
        dist.all_reduce(torch.ones(3))
    with pytest.raises(ValueError, match="the output has 3 elements but needs 4"):
        dist.all_gather_into_tensor(torch.empty(3, device=DEVICE), torch.ones(2, device=DEVICE))
    with pytest.raises(TypeError, match="the input is Float, but the output is Double"):
        dist.all_gather_into_tensor(
            torch.empty(4, device=DEVICE, dtype=torch.float64), torch.ones(2, device=DEVICE)
        )
    with pytest.raises(dist.DistBackendError, match="float32 does not support reduction"):
        dist.all_reduce(ones(), dist.ReduceOp.BAND)
    pair = [torch.ones(4, device=DEVICE) for _ in range(2)]
    with pytest.raises(ValueError, match="the output has 2 elements but needs 4"):
        dist.reduce_scatter(torch.ones(2, device=DEVICE), pair)
    with pytest.raises(ValueError, match="the output has 4 elements but needs 2"):
        dist.all_gather(pair, torch.ones(2, device=DEVICE))
    with pytest.raises(ValueError, match="got a tensor that is not contiguous: call contiguous"):
        dist.all_to_all_single(torch.ones(2, 2, device=DEVICE), torch.ones(2, 2, device=DEVICE).t())
    world = dist.group.WORLD
    assert world is not None
    with pytest.raises(ValueError, match="got a tensor that is not contiguous: call contiguous"):
        world.allgather_into_tensor_coalesced(
            [torch.empty(4, 2, device=DEVICE)], [torch.ones(2, 2, device=DEVICE).t()]
        )
    with pytest.raises(ValueError, match="the input has 2 elements but needs 4"):
        dist.reduce_scatter_tensor(torch.ones(2, device=DEVICE), torch.ones(2, device=DEVICE))
    # An error within a coalesced call drops all operations of the call.
    options = dist.AllreduceCoalescedOptions()
    options.reduceOp = dist._make_nccl_premul_sum(2.0)
    tensors = [ones(), torch.zeros(4, dtype=torch.float8_e4m3fnuz, device=DEVICE)]
    with pytest.raises(dist.DistBackendError, match="bytes must be a numeric type"):
        world._get_backend(device()).allreduce_coalesced(tensors, options)
    # None of these errors may change the order of operations on the ranks.
    tensor = ones()
    dist.all_reduce(tensor)
    assert tensor.eq(2).all()


def test_invalid_arguments_are_rejected_at_the_call() -> None:
    run(2, wrong_arguments)


def occl() -> Any:
    group = dist.group.WORLD
    assert group is not None
    return group._get_backend(torch.device(DEVICE))


def suspends() -> None:
    size = dist.get_world_size()
    backend = occl()
    large = torch.ones(50_000, device=DEVICE)
    dist.all_reduce(large)
    dist.all_reduce(ones())
    torch.openreg.synchronize()
    before = backend.memory_stats()
    assert before["suspended"] == 0
    assert before["suspendable"] > 0
    assert before["mapped"] > 0
    assert before["total"] == before["persistent"] + before["suspendable"]
    work = dist.all_reduce(large, async_op=True)
    backend.suspend()  # suspend() waits for the operation
    assert work is not None
    assert work.is_completed()
    during = backend.memory_stats()
    assert (during["suspended"], during["suspendable"], during["mapped"]) == (1, 0, 0)
    with pytest.raises(dist.DistBackendError, match="suspended: call occlCommResume first"):
        dist.all_reduce(large)
    with pytest.raises(dist.DistBackendError, match="suspended"):
        backend.suspend()
    assert large.eq(size * size).all()  # the device itself still works
    backend.resume()
    with pytest.raises(dist.DistBackendError, match="is not suspended"):
        backend.resume()
    for _ in range(3):
        tensor = ones(50_000)
        dist.all_reduce(tensor)
        assert tensor.eq(size).all()
        backend.suspend()
        backend.resume()
    dist.barrier()
    assert backend.memory_stats()["mapped"] == before["mapped"]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_group_suspends_and_resumes(size: int) -> None:
    run(size, suspends)


def suspended_at_the_end() -> None:
    backend = occl()
    dist.all_reduce(ones())
    backend.suspend()


def test_a_suspended_group_can_be_destroyed() -> None:
    run(2, suspended_at_the_end)


def unconnected() -> None:
    backend = occl()
    backend.suspend()
    backend.resume()
    assert set(backend.memory_stats().values()) == {0}


def test_a_group_without_a_communicator_suspends() -> None:
    run(2, unconnected)
