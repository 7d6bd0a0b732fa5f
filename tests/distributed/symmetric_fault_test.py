# SPDX-License-Identifier: BSD-3-Clause
"""Tests symmetric memory's errors if a rank is late, makes a different call or is killed."""

import itertools
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from torch import Tensor
from torch._C._distributed_c10d import _SymmetricMemory

from tests.distributed.faults import errors_after_a_kill, message
from tests.distributed.ranks import Group, Ranks, preload, run
from tests.distributed.symmetric import here, pads_are_zero, symmetric, world

preload("torch.distributed._symmetric_memory", "pytest")

ops = torch.ops.symm_mem


def differs() -> tuple[str, str]:
    rank = dist.get_rank()
    tensor = symm_mem.empty(8 + rank, device=here())
    sizes = message(symm_mem.rendezvous, tensor, world())
    tensor, _ = symmetric(8)  # the group still works
    requests = message(ops.one_shot_all_reduce, tensor[: 4 + rank], "sum", world())
    assert "ranks called different operations" in message(
        ops.one_shot_all_reduce, tensor, "sum", world()
    )
    other, handle = symmetric(8)  # the error does not affect other memory
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
            "rank 0 called one-shot all-reduce of float32[4] at byte 0, but "
            "rank 1 called one-shot all-reduce of float32[5] at byte 0"
        ) in requests


def waits(kind: str, tensor: Tensor, handle: _SymmetricMemory) -> str:
    """Makes the stream wait for a rank that never arrives. Returns the error."""
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
    assert time.monotonic() - start < 0.25  # the host did not wait
    with pytest.raises(RuntimeError) as caught:
        torch.openreg.synchronize()
    text = str(caught.value).partition("occl: ")[2]
    assert time.monotonic() - start < 5
    torch.openreg.synchronize()  # the error is reported only once
    assert text in message(handle.barrier)
    return text


#: The error on the waiting rank for each kind of wait. The late rank reports the same error.
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
    # If another rank's wait has failed, this rank cannot use the memory either.
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
        # The process exits while its stream is still waiting.
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
