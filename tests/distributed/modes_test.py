# SPDX-License-Identifier: BSD-3-Clause
"""Tests collectives with diagnostics of launches and memory, and at exit and after a fork."""

import os
import time

import pytest
import torch
import torch.distributed as dist

from tests.distributed.ranks import Group, Ranks, run

DEVICE = "openreg"


def collectives() -> None:
    ranks, rank = dist.get_world_size(), dist.get_rank()
    for size in (5, 60_000):
        for _ in range(3):
            tensor = torch.ones(size, device=DEVICE)
            work = dist.all_reduce(tensor, async_op=True)
            assert work is not None
            work.wait()
            tensor *= 2
            gathered = torch.empty(ranks * size, device=DEVICE)
            dist.all_gather_single(gathered, tensor)
            assert gathered.eq(2 * ranks).all()
            received = torch.empty(size, device=DEVICE)
            operations = [
                dist.P2POp(dist.isend, tensor, (rank + 1) % ranks),
                dist.P2POp(dist.irecv, received, (rank - 1) % ranks),
            ]
            for work in dist.batch_isend_irecv(operations):
                work.wait()
            assert received.eq(2 * ranks).all()


@pytest.mark.parametrize(
    "mode",
    [
        "OPENREG_LAUNCH_BLOCKING",
        "OPENREG_LAUNCH_SITES",
        "OPENREG_MEMCHECK",
        "OPENREG_STREAM_SANITIZER",
    ],
)
def test_diagnostics_find_nothing(mode: str) -> None:
    run(2, collectives, group=Group(environment={mode: "1"}))


def leaves_without_goodbye() -> None:
    tensor = torch.ones(3, device=DEVICE)
    dist.all_reduce(tensor)
    # The test harness must not destroy the group.
    setattr(dist, "destroy_process_group", lambda: None)  # noqa: B010
    if dist.get_rank() == 1:
        dist.all_reduce(tensor)


def test_a_process_that_ends_without_destroying_its_group_ends_the_others() -> None:
    start = time.monotonic()
    with Ranks(2, leaves_without_goodbye) as ranks:
        first, second = ranks.outcomes(40)
    assert first.exit_code == 0
    assert second.exit_code == 1
    assert "rank 0" in str(second.error)
    assert time.monotonic() - start < 20


def forked() -> None:
    tensor = torch.ones(3, device=DEVICE)
    dist.all_reduce(tensor)
    child = os.fork()
    if child == 0:
        # A forked child can exit, although it can use neither the device nor the group.
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0
    dist.all_reduce(tensor)
    assert tensor.eq(4).all()


def test_a_fork_does_not_affect_the_group() -> None:
    run(2, forked)
