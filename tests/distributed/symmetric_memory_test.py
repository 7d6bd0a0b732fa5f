# SPDX-License-Identifier: BSD-3-Clause
"""Symmetric memory: buffers of all ranks, signals, all-reduces over them, faults, lifetimes."""

import contextlib
import gc
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed._symmetric_memory as symm_mem
from torch import Tensor
from torch._C._distributed_c10d import _SymmetricMemory
from torch._inductor.utils import run_and_get_code

from tests.distributed.faults import errors_after_a_kill, message
from tests.distributed.ranks import Group, Ranks, preload, run

preload("torch.distributed._symmetric_memory", "torch._inductor.compile_fx", "pytest")

DEVICE = "openreg"
ops = torch.ops.symm_mem


def world() -> Any:
    group = dist.group.WORLD
    assert group is not None
    return group.group_name


def here() -> torch.device:
    return torch.device(DEVICE, torch.openreg.current_device())


def symmetric(
    *size: int, dtype: torch.dtype = torch.float32, group: Any = None
) -> tuple[Tensor, _SymmetricMemory]:
    tensor = symm_mem.empty(*size, dtype=dtype, device=here())
    return tensor, symm_mem.rendezvous(tensor, group or world())


def pads_are_zero(handle: _SymmetricMemory) -> None:
    torch.openreg.synchronize()
    dist.barrier()
    assert not handle.get_signal_pad(handle.rank).cpu().any()
    dist.barrier()


# -------------------------------------------------------------------------- buffers and signals


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

    # Read.
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
    # Write, at an offset, as another type.
    handle.get_buffer(peer, (4,), torch.int16, 10).copy_(torch.full((4,), 7 + rank))
    handle.barrier()
    assert tensor.view(torch.int16)[10:14].eq(7 + (rank - 1) % size).all()
    handle.barrier()

    # A view has the memory of its storage; the tensor of a buffer begins within it.
    again = symm_mem.rendezvous(tensor[8:], world())
    assert again.buffer_ptrs == handle.buffer_ptrs
    assert (
        symm_mem.rendezvous(handle.get_buffer(rank, (4,), torch.float32, 8), world()).offset == 32
    )
    assert symm_mem.rendezvous(torch.empty(3, device=DEVICE), world()) is None

    # The device has its own copy of the addresses.
    for host, device in (
        (handle.buffer_ptrs, handle.buffer_ptrs_dev),
        (handle.signal_pad_ptrs, handle.signal_pad_ptrs_dev),
    ):
        assert device not in host
        assert device != 0

    # An empty tensor has signals, too.
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
    # A counter passes around the ring: each rank adds one, ordered by its stream alone.
    for lap in range(5):
        if rank != 0 or lap > 0:
            handle.wait_signal((rank - 1) % size, channel=lap % 2)
        following = handle.get_buffer((rank + 1) % size, (1,), torch.float32)
        following.copy_(tensor + 1)
        handle.put_signal((rank + 1) % size, channel=lap % 2 if rank + 1 < size else (lap + 1) % 2)
    if rank == 0:
        handle.wait_signal(size - 1, channel=1)
        assert tensor.item() == 5 * size
    # A second signal waits until the first was consumed.
    if rank == 0:
        handle.put_signal(1, channel=3)
        handle.put_signal(1, channel=3)
    if rank == 1:
        handle.wait_signal(0, channel=3)
        handle.wait_signal(0, channel=3)
    # Barriers order writers and readers.
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
    # The streams of the two ranks get their work in opposite orders.
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
    # Separate threads enqueue on separate streams.
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


# ----------------------------------------------------------------------------------- operators

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32)


def all_reduces(dtype: torch.dtype) -> bytes:
    torch.manual_seed(dist.get_rank())
    seen = b""
    for count, start in ((1, 0), (1000, 0), (77, 3), (40_001, 5)):
        values = (torch.rand(count) * 100).to(dtype).to(DEVICE)
        expected = values.clone()
        dist.all_reduce(expected)
        whole, handle = symmetric(count + start + 1, dtype=dtype)
        tensor = whole[start : start + count]
        whole.fill_(1)

        tensor.copy_(values)
        results = [ops.one_shot_all_reduce(tensor, "sum", world())]
        out = torch.empty_like(values)
        results.append(ops.one_shot_all_reduce_out(tensor, "sum", world(), out))
        assert results[1].data_ptr() == out.data_ptr()
        assert tensor.equal(values)
        tensor.zero_()
        results.append(ops.one_shot_all_reduce_copy(tensor, values, "sum", world()))
        tensor.zero_()
        results.append(
            ops.one_shot_all_reduce_copy_out(
                tensor, values, "sum", world(), torch.empty_like(values)
            )
        )
        tensor.copy_(values)
        results.append(
            ops.two_shot_all_reduce_out(tensor, "sum", world(), torch.empty_like(values))
        )
        tensor.copy_(values)
        assert ops.two_shot_all_reduce_(tensor, "sum", world()).data_ptr() == tensor.data_ptr()
        results.append(tensor)
        for result in results:
            assert result.equal(expected)
        assert whole[start + count :].eq(1).all()
        assert whole[:start].eq(1).all()
        seen += expected.cpu().view(torch.uint8).numpy().tobytes()
        if count == 77:
            tensor.copy_(values)
            dist.all_reduce(values, dist.ReduceOp.MAX)
            assert ops.one_shot_all_reduce(tensor, "max", world()).equal(values)
        pads_are_zero(handle)
    return seen


def all_reduces_of_all_types() -> bytes:
    return b"".join(all_reduces(dtype) for dtype in DTYPES)


@pytest.mark.parametrize("size", [2, 4])
def test_all_reduces_equal_those_of_the_group(size: int) -> None:
    assert len(set(run(size, all_reduces_of_all_types))) == 1


def scatters_and_exchanges() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    for dtype in (torch.float32, torch.bfloat16):
        values = torch.rand(6, 4 * size, device=DEVICE).to(dtype)
        expected = values.clone()
        dist.all_reduce(expected)
        tensor, handle = symmetric(6, 4 * size, dtype=dtype)
        tensor.copy_(values)
        columns = torch.empty(6, 4, dtype=dtype, device=DEVICE)
        ops.reduce_scatter_out(tensor, world(), True, columns)
        assert columns.equal(expected.chunk(size, 1)[rank])
        parts = torch.empty(6 * 4, dtype=dtype, device=DEVICE)
        ops.reduce_scatter_out(tensor, world(), False, parts)
        assert parts.equal(expected.flatten().chunk(size)[rank])

    # Rank s sends s + 2 * t rows to rank t.
    splits, _ = symmetric(size, dtype=torch.int64)
    splits.copy_(torch.tensor([rank + 2 * target for target in range(size)]))
    rows, handle = symmetric(40, 3)
    rows.copy_(torch.arange(120.0).view(40, 3) + 1000 * rank)
    out = torch.full((40, 3), -1.0, device=DEVICE)
    numbers = torch.empty(2, size, dtype=torch.int64, device=DEVICE)
    ops.all_to_all_vdev(rows, out, splits, numbers, world())
    expected_rows: list[Tensor] = []
    counts: list[int] = []
    offsets: list[int] = []
    for source in range(size):
        begin = sum(source + 2 * target for target in range(rank))
        count = source + 2 * rank
        every = torch.arange(120.0).view(40, 3) + 1000 * source
        expected_rows.append(every[begin : begin + count])
        offsets.append(sum(counts))
        counts.append(count)
    assert numbers.tolist() == [counts, offsets]
    assert out[: sum(counts)].cpu().equal(torch.cat(expected_rows))
    assert out[sum(counts) :].eq(-1).all()
    pads_are_zero(handle)
    # The output is too small for the rows of the other ranks.
    text = message(ops.all_to_all_vdev, rows, out[:1], splits, numbers, world())
    assert "but its output has room for 1" in text


@pytest.mark.parametrize("size", [2, 4])
def test_reduce_scatter_and_all_to_all(size: int) -> None:
    run(size, scatters_and_exchanges)


def writes_words() -> None:
    words = torch.zeros(6, dtype=torch.uint32, device=DEVICE)
    _SymmetricMemory.memset32(words, offset=1, val=0xFFFFFFFF, count=2)
    _SymmetricMemory.stream_write_value32(words, offset=5, val=3)
    assert words.tolist() == [0, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 3]
    for offset, value, count in ((5, 1, 2), (-1, 1, 1), (0, 1, 0), (0, 1 << 32, 1)):
        with pytest.raises(ValueError, match="memset32_"):
            ops.memset32_(words, offset, value, count)
    with pytest.raises(ValueError, match="of uint32 or int32"):
        ops.stream_write_value32_(words.float(), 0, 1)


def test_words() -> None:
    run(1, writes_words)


def refuses() -> None:
    tensor, handle = symmetric(8)
    ordinary = torch.ones(8, device=DEVICE)
    channels = symm_mem.get_signal_pad_size() // 4 // 2
    cases: list[tuple[str, Callable[[], Any]]] = [
        (
            f"there is no channel {channels}: .*{channels} channels",
            lambda: handle.barrier(channels),
        ),
        ("there is no channel -1", lambda: handle.put_signal(1, channel=-1)),
        ("there is no rank 2: 2 ranks", lambda: handle.wait_signal(2)),
        (
            "one_shot_all_reduce: the tensor is not symmetric memory",
            lambda: ops.one_shot_all_reduce(ordinary, "sum", world()),
        ),
        (
            'unsupported reduction "mean"',
            lambda: ops.two_shot_all_reduce_(tensor, "mean", world()),
        ),
        (
            "must be contiguous",
            lambda: ops.two_shot_all_reduce_(tensor[::2], "sum", world()),
        ),
        (
            "one_shot_all_reduce_out",
            lambda: ops.one_shot_all_reduce_out(tensor, "sum", world(), ordinary[:3]),
        ),
        (
            "3 columns cannot be divided among 2 ranks",
            lambda: ops.reduce_scatter_out(tensor[:6].view(2, 3), world(), True, ordinary),
        ),
        (
            "the requested size",
            lambda: handle.get_buffer(1, (9,), torch.float32),
        ),
        (
            "no multicast",
            lambda: ops.multimem_all_reduce_(tensor, "sum", world()),
        ),
        (
            "no multicast",
            lambda: ops.multimem_all_gather_out(tensor[:4], world(), tensor),
        ),
    ]
    for words, call in cases:
        with pytest.raises((RuntimeError, ValueError), match=words):
            call()
    torch.openreg.synchronize()
    handle.barrier()
    pads_are_zero(handle)


def test_invalid_arguments_are_rejected() -> None:
    run(2, refuses)


def compiles() -> None:
    rank = dist.get_rank()
    group: Any = dist.group.WORLD
    name = world()
    tensor, handle = symmetric(8)
    tensor.fill_(rank)
    handle.barrier()

    def of_an_input(x: Tensor) -> Any:
        return ops.one_shot_all_reduce(x, "sum", name) + 1

    def of_the_group(x: Tensor) -> Any:
        return funcol.wait_tensor(funcol.all_reduce(x * 2, "sum", group)) + 1

    with pytest.warns(FutureWarning, match="deprecated"):
        symm_mem.enable_symm_mem_for_group(name)
    for function, expected in ((of_an_input, 2), (of_the_group, 3)):
        compiled = torch.compile(function, fullgraph=True)
        with torch._inductor.config.patch({"_collective.auto_select": True}):
            _, (code,) = run_and_get_code(compiled, tensor)
        assert "one_shot_all_reduce" in code
        for _ in range(2):
            assert compiled(tensor).eq(expected).all()
    pads_are_zero(handle)


def test_all_reduces_are_compiled(tmp_path: Path) -> None:
    run(2, compiles, group=Group(environment={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}))


# -------------------------------------------------------------------------------------- faults


def differs() -> tuple[str, str]:
    rank = dist.get_rank()
    tensor = symm_mem.empty(8 + rank, device=here())
    sizes = message(symm_mem.rendezvous, tensor, world())
    tensor, _ = symmetric(8)  # the group still works
    requests = message(ops.one_shot_all_reduce, tensor[: 4 + rank], "sum", world())
    assert "ranks called different operations" in message(
        ops.one_shot_all_reduce, tensor, "sum", world()
    )
    other, handle = symmetric(8)  # other memory is not affected
    other.fill_(1)
    assert ops.one_shot_all_reduce(other, "sum", world()).eq(2).all()
    pads_are_zero(handle)
    return sizes, requests


def test_a_mismatch_names_both_sides() -> None:
    for sizes, requests in run(2, differs):
        assert "rank 0 has 32 bytes" in sizes or "rank 1 has 36 bytes" in sizes
        assert "32 bytes" in sizes
        assert "36 bytes" in sizes
        assert (
            "rank 0 called one-shot all-reduce of float32[4] at byte 0, "
            "rank 1 called one-shot all-reduce of float32[5] at byte 0"
        ) in requests


def waits(kind: str, tensor: Tensor, handle: _SymmetricMemory) -> str:
    """Return the error of a stream that waits for a rank which never arrives."""
    start = time.monotonic()
    if kind == "put":
        handle.put_signal(1, channel=2)
        handle.put_signal(1, channel=2, timeout_ms=300)
    elif kind == "wait":
        handle.wait_signal(1, channel=2, timeout_ms=300)
    elif kind == "reduction":
        ops.one_shot_all_reduce(tensor, "sum", world())
    else:
        handle.barrier(channel=2, timeout_ms=300 if kind == "barrier" else 60_000)
    assert time.monotonic() - start < 0.25  # the host does not wait
    with pytest.raises(RuntimeError) as caught:
        torch.openreg.synchronize()
    text = str(caught.value).partition("occl: ")[2]
    assert time.monotonic() - start < 5
    torch.openreg.synchronize()  # the error is reported once
    assert text in message(handle.barrier)
    return text


#: By kind, the error that the other rank gets too.
LATE = {
    "barrier": "rank 0 received no signal from rank 1 on channel 2 within 300 ms",
    "wait": "rank 0 received no signal from rank 1 on channel 2 within 300 ms",
    "put": "rank 1 did not consume the last signal of rank 0 on channel 2 within 300 ms",
    "reduction": "rank 0 received no signal from rank 1 on channel 0 within 1000 ms",
}


def waits_in_vain() -> dict[str, str]:
    memory = {kind: symmetric(8) for kind in LATE}
    for _, handle in memory.values():
        handle.barrier()
    torch.openreg.synchronize()
    if dist.get_rank() == 0:
        return {kind: waits(kind, *both) for kind, both in memory.items()}
    time.sleep(3)
    # If another rank has failed, the memory is unusable here, too.
    return {kind: message(handle.barrier) for kind, (_, handle) in memory.items()}


def test_a_late_rank() -> None:
    first, second = run(2, waits_in_vain, group=Group(timeout=1))
    for kind, words in LATE.items():
        assert first[kind] == words
        assert second[kind].endswith("rank 0 reported: " + words)


def waits_for_the_dead() -> str:
    tensor, handle = symmetric(8)
    handle.barrier()
    torch.openreg.synchronize()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return waits("for long", tensor, handle)


def test_a_rank_that_is_killed() -> None:
    with Ranks(2, waits_for_the_dead) as ranks:
        first, second = ranks.outcomes()
    assert second.exit_code == -signal.SIGKILL
    assert first.error is None, first.error
    assert first.value == (
        "the process of rank 1 has exited: rank 0 received no signal from rank 1 on channel 2"
    )
    assert first.exit_code == 0


def works_on(folder: str) -> None:
    tensor, handle = symmetric(20_000)
    handle.barrier()
    torch.openreg.synchronize()
    Path(folder, str(dist.get_rank())).touch()
    for number in itertools.count():
        ops.one_shot_all_reduce(tensor, "max", world())
        ops.two_shot_all_reduce_(tensor, "max", world())
        handle.barrier(channel=1)
        if number % 3 == 0:
            torch.openreg.synchronize()


@pytest.mark.parametrize("seed", range(int(os.environ.get("OPENREG_KILLS", "2"))))
def test_a_kill_at_any_point_ends_all_others(seed: int, tmp_path: Path) -> None:
    victim, errors = errors_after_a_kill(random.Random(seed), tmp_path, works_on, str(tmp_path))
    for error in errors:
        assert f"the process of rank {victim} has exited" in error, error


def is_missing() -> str:
    dist.barrier()
    if dist.get_rank() == 1:
        return ""
    return message(symmetric, 8)


def test_a_rank_that_does_not_reach_the_rendezvous() -> None:
    first, _ = run(2, is_missing, group=Group(timeout=1))
    assert "rank 1 did not reach the rendezvous within 1000 ms" in first


def leaves() -> None:
    _, handle = symmetric(8)
    handle.barrier()
    torch.openreg.synchronize()
    dist.barrier()
    if dist.get_rank() == 1:
        # Its stream is still waiting when the process exits.
        setattr(dist, "destroy_process_group", lambda: None)  # noqa: B010
        setattr(torch.openreg, "synchronize", lambda: None)  # noqa: B010
        handle.barrier()
        return
    time.sleep(1.5)
    text = message(handle.wait_signal, 1, 5)
    assert (
        "rank 1 reported: the process of rank 1 is exiting" in text
        or "the process of rank 1 has exited" in text
    )


def test_a_process_that_ends_while_its_stream_waits() -> None:
    start = time.monotonic()
    run(2, leaves)
    assert time.monotonic() - start < 30


# -------------------------------------------------------------------------------------- graphs


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

    # Operations that share memory are rejected before anything is captured.
    text = ""
    with torch.openreg.graph(torch.openreg.OpenRegGraph()):
        try:
            symm_mem.rendezvous(late, world())
        except RuntimeError as error:
            text = str(error)
    assert "call rendezvous() before the capture" in text

    # A replay after the memory was freed.
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


# ----------------------------------------------------------------------------------- lifetimes


def frees() -> None:
    rank = dist.get_rank()
    tensor, handle = symmetric(1 << 18)
    tensor.fill_(rank + 1)
    handle.barrier()
    theirs = handle.get_buffer(1 - rank, (4,), torch.float32)
    torch.openreg.synchronize()
    dist.barrier()
    # Memory that one rank frees stays valid for the ranks that have mapped it.
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
        # Memory that the other rank has still mapped is released later.
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
        # Freed while the stream still uses it.
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
    # The same tensor with all ranks. Its signals are the same words, so only one group at a time
    # may use it.
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

    # Another world group with the same name.
    store = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    dist.init_process_group("occl", store=dist.PrefixStore("again", store), rank=rank, world_size=4)
    tensor, handle = symmetric(4)
    tensor.fill_(rank)
    assert ops.one_shot_all_reduce(tensor, "sum", world()).eq(6).all()
    pads_are_zero(handle)

    # A group that is not a process group.
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


# ------------------------------------------------------------------------- tools, and torch's gates


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
    """Fails if torch no longer limits these to CUDA: then shorten the table in distributed.md."""
    tensor, handle = symmetric(4)
    with pytest.raises(RuntimeError, match="dummy base class _cuda_isCurrentStreamCapturing"):
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
    run(1, reaches_gates)
