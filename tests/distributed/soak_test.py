# SPDX-License-Identifier: BSD-3-Clause
"""Runs mixed collectives continuously: results stay correct, and resources do not leak.

``OPENREG_STRESS_SECONDS`` sets the duration in seconds (default: 4).
"""

import gc
import os
import random
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

from tests.distributed.ranks import HANG_TIMEOUT, Group, run

DEVICE = "openreg"
#: The number of pooled streams. Groups use them round robin, and each stream starts its thread on
#: first use. The process may therefore start this many additional threads.
STREAMS = 32
SECONDS = float(os.environ.get("OPENREG_STRESS_SECONDS", "4"))


@dataclass
class Held:
    """The resources that a process uses: descriptors, threads, and bytes of memory."""

    descriptors: int
    threads: int
    resident: int
    allocated: int


def held() -> Held:
    torch.openreg.synchronize()
    gc.collect()
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    return Held(
        len(os.listdir("/proc/self/fd")),
        len(os.listdir("/proc/self/task")),
        pages * 4096,
        torch.openreg.memory_allocated(),
    )


def one(generator: random.Random, groups: list[dist.ProcessGroup]) -> None:
    """Runs one random operation. It is the same on all ranks: their generators have equal seeds."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    group = generator.choice(groups)
    size = generator.choice([1, 100, 5_000, 40_000, 300_000])
    dtype = generator.choice([torch.float32, torch.bfloat16, torch.float64])
    tensor = torch.full((size,), float(rank + 1), dtype=dtype, device=DEVICE)
    total = ranks * (ranks + 1) / 2
    kind = generator.randrange(6)
    if kind == 0:
        work = dist.all_reduce(tensor, group=group, async_op=True)
        assert work is not None
        work.wait()
        assert tensor[-1].item() == total
    elif kind == 1:
        root = generator.randrange(ranks)
        dist.broadcast(tensor, root, group=group)
        assert tensor[0].item() == root + 1
    elif kind == 2:
        outputs = torch.empty(ranks * size, dtype=dtype, device=DEVICE)
        dist.all_gather_single(outputs, tensor, group=group)
        assert outputs[-1].item() == ranks
    elif kind == 3:
        output = torch.empty(size, dtype=dtype, device=DEVICE)
        dist.reduce_scatter_single(output, tensor.repeat(ranks), group=group)
        assert output[0].item() == total
    elif kind == 4:
        after, before = (rank + 1) % ranks, (rank - 1) % ranks
        received = torch.empty_like(tensor)
        operations = [
            dist.P2POp(dist.isend, tensor, after, group=group),
            dist.P2POp(dist.irecv, received, before, group=group),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        assert received[-1].item() == before + 1
    else:
        everything = list(tensor.repeat(ranks).chunk(ranks))
        parts = [torch.empty_like(tensor) for _ in range(ranks)]
        dist.all_to_all(parts, everything, group=group)
        assert [part[0].item() for part in parts] == list(range(1, ranks + 1))


def soak() -> tuple[int, Held, Held]:
    generator = random.Random(1)
    everybody = list(range(dist.get_world_size()))
    groups: list[dist.ProcessGroup] = [dist.new_group(everybody) for _ in range(2)]
    rounds = 0
    first = None
    start = time.monotonic()
    go_on = torch.ones(1, device=DEVICE)
    while go_on.item():
        for _ in range(40):
            one(generator, groups)
        dist.destroy_process_group(groups.pop(0))
        groups.append(dist.new_group(everybody))
        rounds += 1
        # The process has warmed up after a quarter of the time. Record the resources that it uses
        # then.
        elapsed = time.monotonic() - start
        if first is None and elapsed > SECONDS / 4 and rounds >= 3:
            first = held()
        go_on.fill_(elapsed < SECONDS or first is None)
        dist.broadcast(go_on, 0)
        if not go_on.item():
            break
    if first is None:
        first = held()
    return rounds * 40, first, held()


def test_mixed_collectives() -> None:
    for operations, first, last in run(
        4, soak, group=Group(timeout=60), hang_timeout=HANG_TIMEOUT + 2 * SECONDS
    ):
        print(operations, first, last)
        assert last.descriptors <= first.descriptors + 2
        assert last.threads <= first.threads + STREAMS
        assert last.allocated == first.allocated
        assert last.resident < first.resident + (64 << 20)
