# SPDX-License-Identifier: BSD-3-Clause
"""Tests the ranks' errors if a rank is late, aborts, dies, or calls another operation."""

import gc
import os
import random
import re
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.distributed.faults import errors_after_a_kill, message
from tests.distributed.ranks import HOSTS, Group, Ranks, run

DEVICE = "openreg"
SIZES = (1, 3_000, 300_000)
#: The error on the other ranks after an abort. Ranks on another machine only detect that the
#: connection was closed.
ABORTED = "aborted" if HOSTS == 1 else "(aborted|has exited or left the group)"


def late() -> tuple[str, float]:
    dist.all_reduce(torch.ones(3, device=DEVICE))
    if dist.get_rank() == 1:
        time.sleep(2.5)
        text = message(dist.all_reduce, torch.ones(3, device=DEVICE))
        # The reason does not reach a rank on another machine, which only detects that rank 0 has
        # exited.
        expected = (
            "rank 0 reported: rank 1 did not " if HOSTS == 1 else "the process of rank 0 has exited"
        )
        assert expected in text
        return "", 0.0
    start = time.monotonic()
    text = message(dist.all_reduce, torch.ones(3, device=DEVICE))
    return text, time.monotonic() - start


def test_a_late_rank() -> None:
    (text, seconds), _ = run(2, late, group=Group(timeout=1))
    assert "rank 1 did not " in text
    assert "within 1000 ms" in text
    assert 0.9 < seconds < 2


def different() -> list[str]:
    rank = dist.get_rank()
    small, large = torch.ones(8, device=DEVICE), torch.ones(20_000, device=DEVICE)
    texts = []
    for case in range(4):
        group = dist.new_group([0, 1])
        if case == 0 and rank == 0:
            text = message(dist.broadcast, small, 0, group)
        elif case == 1 and rank == 0:
            text = message(dist.all_reduce, large, dist.ReduceOp.SUM, group)
        elif case == 2 and rank == 0:
            text = message(dist.all_reduce, small.to(torch.bfloat16), dist.ReduceOp.SUM, group)
        elif case == 3 and rank == 0:
            text = message(dist.all_reduce, small, dist.ReduceOp.MAX, group)
        else:
            text = message(dist.all_reduce, small, dist.ReduceOp.SUM, group)
        texts.append(text)
        with pytest.raises(dist.DistBackendError, match="ranks called different operations"):
            dist.all_reduce(small, group=group)
    tensor = torch.ones(3, device=DEVICE)
    dist.all_reduce(tensor)  # the error does not affect another group
    assert tensor.eq(2).all()
    return texts


def test_a_mismatch_names_both_sides() -> None:
    sum_of_8 = "rank 1 called all-reduce of float32[8], sum"
    expected = [
        f"rank 0 called broadcast of float32[8], root 0, but {sum_of_8}",
        f"rank 0 called all-reduce of float32[20000], sum, but {sum_of_8}",
        f"rank 0 called all-reduce of bfloat16[8], sum, but {sum_of_8}",
        f"rank 0 called all-reduce of float32[8], maximum, but {sum_of_8}",
    ]
    for texts in run(2, different):
        for text, words in zip(texts, expected, strict=True):
            one, other = words.split(", but ")
            assert words in text or f"{other}, but {one}" in text


def aborts() -> None:
    dist.all_reduce(torch.ones(3, device=DEVICE))
    group = dist.group.WORLD
    assert group is not None
    if dist.get_rank() == 1:
        time.sleep(0.3)
        group.abort()
        with pytest.raises(dist.DistBackendError, match="was aborted: create a new group"):
            dist.all_reduce(torch.ones(3, device=DEVICE))
        return
    # The wait must end on rank 2, where another thread aborts the group, and also on rank 0, where
    # no thread does.
    if dist.get_rank() == 2:
        threading.Timer(0.3, group.abort).start()
    start = time.monotonic()
    work = dist.all_reduce(torch.ones(3, device=DEVICE), async_op=True)
    assert work is not None
    assert re.search(ABORTED, message(torch.openreg.synchronize))
    assert time.monotonic() - start < 5
    assert work.is_completed()
    assert not work.is_success()
    with pytest.raises(dist.DistBackendError, match=rf"all_reduce number 2: .*{ABORTED}"):
        work.wait()


def test_an_abort_ends_all_waits() -> None:
    run(3, aborts)


def blocked(kind: str) -> str:
    tensor = torch.ones(3, device=DEVICE)
    dist.all_reduce(tensor)
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "receive":
        return message(dist.recv, tensor, 1)
    if kind == "send":
        return message(dist.send, tensor, 1)
    return message(dist.all_reduce, tensor)


@pytest.mark.parametrize("kind", ["receive", "send", "collective"])
def test_a_rank_that_is_killed(kind: str) -> None:
    with Ranks(2, blocked, kind) as ranks:
        first, second = ranks.outcomes()
    assert second.exit_code == -signal.SIGKILL
    assert "the process of rank 1 has exited" in str(first.value), first.error
    assert first.exit_code == 0


def works(seed: int, folder: str) -> None:
    """Runs collectives forever, starting after all ranks have created their communicators."""
    dist.barrier()
    dist.all_reduce(torch.ones(1, device=DEVICE), async_op=True)
    torch.openreg.synchronize()
    Path(folder, str(dist.get_rank())).touch()
    generator = random.Random(seed)
    tensors = [torch.ones(size, device=DEVICE) for size in SIZES]
    ranks = dist.get_world_size()
    while True:
        tensor = generator.choice(tensors)
        kind = generator.randrange(4)
        if kind == 0:
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
        elif kind == 1:
            dist.broadcast(tensor, generator.randrange(ranks))
        elif kind == 2:
            dist.all_gather_into_tensor(torch.empty(ranks * tensor.numel(), device=DEVICE), tensor)
        else:
            work = dist.all_reduce(tensor, dist.ReduceOp.MAX, async_op=True)
            assert work is not None
            work.wait()
        if generator.randrange(3) == 0:
            torch.openreg.synchronize()


@pytest.mark.parametrize("seed", range(int(os.environ.get("OPENREG_KILLS", "6"))))
def test_a_kill_at_any_point_ends_all_others(seed: int, tmp_path: Path) -> None:
    victim, errors = errors_after_a_kill(random.Random(seed), tmp_path, works, seed, str(tmp_path))
    # Between machines, the error may name another rank that exited because of the victim's death.
    named = f"rank {victim}" if HOSTS == 1 else "rank "
    for error in errors:
        assert named in error, error
        assert "exited" in error


def raises() -> None:
    tensor = torch.ones(300_000, device=DEVICE)
    dist.all_reduce(tensor)
    if dist.get_rank() == 0:
        raise ValueError("a defect of the program")
    dist.all_reduce(tensor)
    torch.openreg.synchronize()


def test_a_rank_that_raises_ends_the_others() -> None:
    start = time.monotonic()
    with Ranks(3, raises) as ranks:
        first, *others = ranks.outcomes()
    assert time.monotonic() - start < 20
    assert "a defect of the program" in str(first.error)
    for other in others:
        assert "rank 0" in str(other.error)
        assert other.exit_code == 1


def makes_groups() -> None:
    def held() -> tuple[int, int, int]:
        gc.collect()
        with open("/proc/self/maps") as maps:
            mappings = sum("memfd:" in line for line in maps)
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), mappings

    dist.all_reduce(torch.ones(3, device=DEVICE))
    counts = []
    for number in range(8):
        group = dist.new_group([0, 1, 2])
        dist.all_reduce(torch.ones(300_000, device=DEVICE), group=group)
        if number % 2:
            # One rank aborts, and the other ranks detect it.
            dist.barrier()
            if dist.get_rank() == 0:
                group.abort()
            message(dist.all_reduce, torch.ones(3, device=DEVICE), dist.ReduceOp.SUM, group)
        dist.destroy_process_group(group)
        del group
        dist.barrier()
        counts.append(held())
    # The first groups create pooled streams and their threads. These resources remain.
    assert all(last <= first for first, last in zip(counts[3], counts[-1], strict=True)), counts


def test_destroyed_groups_release_everything() -> None:
    run(3, makes_groups)
