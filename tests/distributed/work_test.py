# SPDX-License-Identifier: BSD-3-Clause
"""Tests work objects: completion, waits by streams and the host, graphs, hooks and errors."""

import gc
import pickle
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import WorkResult
from torch_openreg.distributed import dump_flight_recorder

from tests import child
from tests.distributed.ranks import HOSTS, Group, run

DEVICE = "openreg"
LARGE = 100_000


def sleep(seconds: float) -> None:
    torch.openreg._sleep(int(seconds * 1e9))


def host_is_free() -> None:
    rank = dist.get_rank()
    tensor = torch.ones(LARGE, device=DEVICE)
    dist.all_reduce(tensor)  # creates the communicator
    torch.openreg.synchronize()
    start = time.monotonic()
    if rank == 1:
        sleep(0.5)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    assert work.wait()  # blocks the stream, but not the host
    tensor += 1
    host = time.monotonic() - start
    torch.openreg.synchronize()
    everything = time.monotonic() - start
    assert host < 0.4 < everything, (host, everything)
    assert tensor.eq(5).all()
    assert work.is_completed()
    assert work.is_success()


def test_the_host_does_not_wait() -> None:
    run(2, host_is_free)


def waits_of_streams() -> None:
    # A wait on a side stream blocks the side stream, but not the stream of the collective's call.
    tensor = torch.ones(LARGE, device=DEVICE)
    dist.all_reduce(tensor)
    torch.openreg.synchronize()
    for _ in range(20):
        tensor.fill_(1)
        if dist.get_rank() == 1:
            sleep(0.005)
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        side = torch.openreg.Stream()
        with torch.openreg.stream(side):
            work.wait()
            copy = tensor.clone()
        side.synchronize()
        assert copy.eq(2).all()
        work.wait()

    # A collective waits for earlier work on its stream.
    for asynchronous in (False, True):
        side = torch.openreg.Stream()
        with torch.openreg.stream(side):
            sleep(0.02)
            late = torch.full((LARGE,), 3.0, device=DEVICE)
            work = dist.all_reduce(late, async_op=asynchronous)
            if work is not None:
                work.wait()
            late += 1
        side.synchronize()
        assert late.eq(7).all()

    # block_current_stream() and the future block a stream in the same way as wait().
    tensor.fill_(1)
    torch.openreg.synchronize()
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    work.block_current_stream()
    assert tensor.eq(2).all()
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    (result,) = work.get_future().then(lambda future: [future.value()[0] + 1]).wait()
    assert result.eq(5).all()
    assert work.result()[0].eq(4).all()


def test_only_the_waiting_stream_waits() -> None:
    run(2, waits_of_streams)


def dropped() -> None:
    # The program drops tensors and work objects before the operation runs. The operation must keep
    # their memory alive.
    rank = dist.get_rank()
    total = torch.zeros((), device=DEVICE)
    keep = torch.ones(LARGE, device=DEVICE)
    dist.all_reduce(keep)
    torch.openreg.synchronize()
    for _ in range(10):
        if rank == 0:
            sleep(0.01)
        temporary = torch.full((LARGE,), 2.0, device=DEVICE)
        gathered = torch.empty(2 * LARGE, device=DEVICE)
        first = dist.all_gather_into_tensor(gathered, temporary, async_op=True)
        del temporary
        other = torch.full((LARGE,), 9.0, device=DEVICE)  # may reuse memory that was freed
        assert first is not None
        first.wait()
        total += gathered.sum()
        dist.all_reduce(gathered, async_op=True)
        del gathered, first, other
    gc.collect()
    assert total.item() == 10 * 2 * LARGE * 2


def test_memory_of_an_operation_is_not_reused_before_its_end() -> None:
    run(2, dropped)


def captured() -> None:
    ranks = dist.get_world_size()
    tensor = torch.ones(5, device=DEVICE)
    large = torch.ones(LARGE, device=DEVICE)
    dist.all_reduce(tensor)
    tensor.fill_(1)
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        tensor *= 2
        dist.all_reduce(tensor)
        work = dist.all_reduce(large, async_op=True)
        assert work is not None
        work.wait()
        large /= ranks
    torch.openreg.synchronize()
    assert tensor.eq(1).all()  # the capture has run nothing
    for replay in range(1, 4):
        graph.replay()
        assert tensor.eq((2.0 * ranks) ** replay).all()
        assert large.eq(1).all()
        eager = torch.ones(3, device=DEVICE)
        dist.all_reduce(eager)
        assert eager.eq(ranks).all()
    graph.reset()
    dist.all_reduce(eager)
    assert eager.eq(ranks * ranks).all()


@pytest.mark.skipif(HOSTS > 1, reason="collectives between machines cannot be captured in a graph")
def test_graphs_replay_collectives() -> None:
    run(2, captured)


def timed() -> None:
    group = dist.group.WORLD
    assert group is not None
    tensor = torch.ones(LARGE, device=DEVICE)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    with pytest.raises(RuntimeError, match="_enable_collectives_timing"):
        work._get_duration()
    group._enable_collectives_timing()
    if dist.get_rank() == 0:
        sleep(0.05)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    work.wait()
    torch.openreg.synchronize()
    assert 0 < work._get_duration() < 5000
    if dist.get_rank() == 1:
        assert work._get_duration() > 30


def test_durations() -> None:
    run(2, timed)


def barriers() -> None:
    dist.barrier()  # aligns the start of the ranks
    start = time.monotonic()
    if dist.get_rank() == 1:
        time.sleep(0.8)
    dist.barrier()
    assert time.monotonic() - start > 0.25
    start = time.monotonic()
    if dist.get_rank() == 0:
        sleep(0.8)  # time on the device counts, too
    dist.barrier()
    assert time.monotonic() - start > 0.25
    work = dist.barrier(async_op=True)
    assert work is not None
    work.wait()

    start = time.monotonic()
    if dist.get_rank() == 1:
        sleep(0.5)
    tensor = torch.ones(3, device=DEVICE)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    if dist.get_rank() == 0:
        with pytest.raises(dist.DistBackendError, match="did not finish within 20 ms"):
            work.wait(timedelta(milliseconds=20))
    work.wait(timedelta(seconds=30))  # the host waits, because a timeout is specified
    assert time.monotonic() - start > 0.4
    assert tensor.eq(2).all()


def test_barriers_and_timeouts_wait_on_the_host() -> None:
    run(2, barriers, group=Group(bound=True))


def with_threads() -> None:
    # A host wait releases the GIL. The other thread can therefore enqueue the awaited work.
    import threading

    tensor = torch.ones(3, device=DEVICE)
    dist.all_reduce(tensor)
    group = dist.new_group([0, 1])
    done = []

    def other() -> None:
        mine = torch.ones(4, device=DEVICE)
        time.sleep(0.1 * dist.get_rank())
        dist.all_reduce(mine, group=group)
        done.append(mine.sum().item())

    thread = threading.Thread(target=other)
    thread.start()
    dist.barrier()
    dist.all_reduce(tensor)
    assert tensor.eq(4).all()
    thread.join()
    assert done == [8.0]


def test_threads_with_separate_groups() -> None:
    run(2, with_threads)


def exchanges_on_streams() -> None:
    # All exchanges have the same size, so that only the order of the calls distinguishes them.
    rank = dist.get_rank()
    splits = [3, 3]
    for _ in range(30):
        first, second = torch.empty(6, device=DEVICE), torch.empty(6, device=DEVICE)
        if rank == 0:
            sleep(0.002)
        work = dist.all_to_all_single(
            first, torch.full((6,), 1.0, device=DEVICE), splits, splits, async_op=True
        )
        dist.all_to_all_single(second, torch.full((6,), 2.0, device=DEVICE), splits, splits)
        assert work is not None
        work.wait()
        assert first.eq(1).all()
        assert second.eq(2).all()


def test_exchanges_on_several_streams_keep_their_order() -> None:
    run(2, exchanges_on_streams)


def hooked() -> None:
    group = dist.group.WORLD
    assert group is not None
    seen: list[tuple[str, int]] = []

    def hook(info: Any) -> None:
        assert info.time_finished >= info.time_started
        assert info.active_duration >= timedelta()
        seen.append((str(info.op_type), info.seq))
        if len(seen) == 2:
            raise ValueError("not the last one")

    with pytest.raises(RuntimeError, match="no completion hook"):
        group._wait_for_pending_works()
    group._register_on_completion_hook(hook)
    assert group._has_hooks()
    with pytest.raises(RuntimeError, match="already has a completion hook"):
        group._register_on_completion_hook(hook)
    tensor = torch.ones(LARGE, device=DEVICE)
    dist.all_reduce(tensor, async_op=True)
    dist.broadcast(tensor, 0)
    dist.barrier()
    group._wait_for_pending_works()
    kinds = ["OpType.ALLREDUCE", "OpType.BROADCAST", "OpType.BARRIER"]
    assert seen == list(zip(kinds, (1, 2, 3), strict=True)), seen
    dist.all_reduce(tensor)
    # destroy_process_group() waits for the hook.
    dist.destroy_process_group()
    assert len(seen) == 4


def test_a_hook_is_called_for_each_operation() -> None:
    run(2, hooked)


# The hook runs during interpreter exit, when a thread can no longer acquire the GIL.
ENDS_WITH_A_HOOK = """
import torch, torch.distributed as dist
dist.init_process_group("occl", store=dist.HashStore(), rank=0, world_size=1)
group, seen = dist.group.WORLD, []
group._register_on_completion_hook(lambda info: seen.append(sum(range(10_000))))
tensor = torch.ones(1000, device="openreg")
for _ in range(200):
    dist.all_reduce(tensor, async_op=True)
torch.openreg.synchronize()
"""


@pytest.mark.parametrize("end", ["", "torch.openreg._sleep(int(1e9)); dist.all_reduce(tensor)"])
def test_a_program_with_a_hook_may_exit_at_any_time(end: str) -> None:
    for _ in range(3):
        done = child.run(ENDS_WITH_A_HOOK + end)
        assert done.returncode == 0, done.stderr


def waits_for_a_message() -> int:
    tensor = torch.ones(3, device=DEVICE)
    dist.all_reduce(tensor)
    waiting = dist.irecv(torch.empty(3, device=DEVICE), 1) if dist.get_rank() == 0 else None
    for _ in range(300):
        dist.all_reduce(tensor)
        torch.openreg.current_stream().synchronize()
    dump = pickle.loads(dump_flight_recorder())
    if waiting is None:
        dist.send(tensor, 0)
    else:
        waiting.wait()
    return sum(not entry["retired"] for entry in dump["entries"])


def test_a_waiting_message_does_not_keep_finished_operations() -> None:
    assert max(run(2, waits_for_a_message)) < 150


def results() -> None:
    rank = dist.get_rank()
    tensor = torch.ones(LARGE, device=DEVICE)
    dist.all_reduce(tensor)
    sleep(0.2)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    result = work.get_future_result()
    assert not result.done()  # the call does not wait
    seen: list[int] = []
    after = result.then(lambda future: seen.append(future.wait()))
    # The result is available even while another operation waits for its peer.
    waiting = dist.irecv(torch.empty(3, device=DEVICE), 1) if rank == 0 else None
    pending = waiting.get_future_result() if waiting is not None else None
    assert result.wait() == WorkResult.SUCCESS.value
    after.wait()
    assert seen == [WorkResult.SUCCESS.value]
    assert work.is_completed()
    dist.barrier()
    if pending is not None:
        assert not pending.done()
    dist.barrier()
    if rank == 1:
        dist.send(torch.ones(3, device=DEVICE), 0)
    elif pending is not None:
        assert pending.wait() == WorkResult.SUCCESS.value
    # The future stays valid after the work object was dropped, and after the operation has
    # finished.
    dropped = dist.all_reduce(tensor, async_op=True)
    assert dropped is not None
    result = dropped.get_future_result()
    del dropped
    assert result.wait() == WorkResult.SUCCESS.value
    assert work.get_future_result().wait() == WorkResult.SUCCESS.value


def test_a_future_of_the_result() -> None:
    run(2, results)


def result_of_a_late_rank() -> int | None:
    tensor = torch.ones(LARGE, device=DEVICE)
    dist.all_reduce(tensor)
    if dist.get_rank() == 1:
        time.sleep(3)
        return None
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    value = work.get_future_result().wait()
    with pytest.raises(RuntimeError, match="rank 1 did not"):
        torch.openreg.synchronize()
    assert not work.is_success()
    return int(value)


def test_the_result_of_a_failure() -> None:
    values = run(2, result_of_a_late_rank, group=Group(timeout=1))
    # Between machines, the waiting rank aborts its communicator, which changes the result.
    expected = WorkResult.TIMEOUT if HOSTS == 1 else WorkResult.COMM_ERROR
    assert values == [expected.value, None]


@pytest.mark.parametrize("end", ["", "torch.openreg._sleep(int(1e9)); dist.all_reduce(tensor)"])
def test_a_program_may_exit_before_the_results(end: str) -> None:
    program = ENDS_WITH_A_HOOK.replace(
        "group._register_on_completion_hook(lambda info: seen.append(sum(range(10_000))))", ""
    ).replace(
        "dist.all_reduce(tensor, async_op=True)",
        "dist.all_reduce(tensor, async_op=True).get_future_result().then("
        "lambda future: seen.append(future.wait()))",
    )
    for _ in range(3):
        done = child.run(program + end)
        assert done.returncode == 0, done.stderr
