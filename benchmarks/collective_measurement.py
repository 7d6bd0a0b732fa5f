# SPDX-License-Identifier: BSD-3-Clause
"""Times collectives in short windows that alternate between occl and Gloo, on the same ranks.

The ranks are processes in a group with both backends. A window is a number of calls, each of which
waits for its result. All ranks start a window together. The time of a window is the time of the
slowest rank.
"""

import gc
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

import torch
import torch.distributed as dist

from benchmarks.collective_cases import Call, CollectiveCase, make
from benchmarks.measurement import WARM_UP, Effort, quartiles, within
from tests.distributed.ranks import Group, Ranks

GROUP = Group("cpu:gloo,openreg:occl")


@dataclass(frozen=True)
class Measured:
    """One row: microseconds per call for both backends, and their ratio.

    Attributes:
        case: the measured case.
        gloo_us: the median over the rounds, with CPU tensors.
        gloo_least_us: the minimum over the rounds.
        occl_us: the median over the rounds, with device tensors.
        occl_least_us: the minimum over the rounds.
        ratio: the median over the rounds of occl / Gloo.
        low: the lower quartile of these ratios.
        high: the upper quartile of these ratios.
        error: why there are no figures (they are then 0); empty if there are figures.
    """

    case: CollectiveCase
    gloo_us: float = 0.0
    gloo_least_us: float = 0.0
    occl_us: float = 0.0
    occl_least_us: float = 0.0
    ratio: float = 0.0
    low: float = 0.0
    high: float = 0.0
    error: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the ratio is within the bound; None if there is no bound."""
        bound = self.case.bound
        if bound is None:
            return None
        return not self.error and bool(within(self.ratio, round(bound, 2)))

    def bandwidth(self, us: float) -> float | None:
        """The bandwidth in GB/s for a time per call; None if the case is not one collective."""
        return self.case.bytes / us / 1e3 if self.case.bytes and us else None


def measure(cases: Sequence[CollectiveCase], effort: Effort) -> Iterator[Measured]:
    """Measures cases one by one. All cases have the same number of processes.

    Yields:
        The result of each case. After a failure, all remaining cases get its error.
    """
    reports, theirs = multiprocessing.get_context("forkserver").Pipe(duplex=False)
    left = list(cases)
    error = "the processes ended early"
    with Ranks(cases[0].processes, serve, left, effort, theirs, group=GROUP) as ranks:
        while left and reports in wait([reports, *ranks.connections]):
            yield reports.recv()
            left.pop(0)
        # A rank ends after the last case, or with an error.
        for outcome in ranks.outcomes():
            if outcome.error is not None or outcome.exit_code != 0:
                error = (outcome.error or f"exit status {outcome.exit_code}").splitlines()[-1]
                break
        while left and reports.poll():
            yield reports.recv()
            left.pop(0)
    for case in left:
        yield Measured(case, error=error)


def serve(cases: Sequence[CollectiveCase], effort: Effort, reports: Connection) -> None:
    """Measures the cases on each rank. The first rank reports each completed case."""
    for case in cases:
        found = alternate(case, effort)
        if dist.get_rank() == 0:
            reports.send(found)


def alternate(case: CollectiveCase, effort: Effort) -> Measured:
    """Times windows of both backends in turn, on all ranks of the group."""
    # Limit each rank to one core. This affects the training step.
    torch.set_num_threads(1)
    current = torch.accelerator.current_device_index()
    devices = torch.device("cpu"), torch.device("openreg", current)
    sides: list[tuple[Call, int, list[float]]] = []
    for device in devices:
        call = make(case, device)
        sides.append((call, calls_within(call, effort.window), []))
    for number in range(effort.rounds):
        # Alternate which side is first, so that caches and clock frequency favor neither side.
        for call, calls, times in sides[:: 1 if number % 2 == 0 else -1]:
            window(call, max(1, calls // 4))
            times.append(1e6 * slowest(window(call, calls)) / calls)
    gloo, occl = (times for _, _, times in sides)
    low, ratio, high = quartiles([d / c for c, d in zip(gloo, occl, strict=True)])
    return Measured(
        case,
        statistics.median(gloo),
        min(gloo),
        statistics.median(occl),
        min(occl),
        ratio,
        low,
        high,
    )


def calls_within(call: Call, seconds: float) -> int:
    """Warms up and returns how many calls fit into the time: the same number on all ranks."""
    # If two calls take longer than a window, they are a sufficient warm-up.
    if slowest(window(call, 2)) < seconds:
        window(call, WARM_UP)
    calls, took = 1, slowest(window(call, 1))
    while took < seconds / 2:
        calls *= min(4, max(2, int(seconds / max(took, 1e-9))))
        took = slowest(window(call, calls))
    return max(1, round(calls * seconds / took))


def window(call: Call, calls: int) -> float:
    """Returns the seconds that this rank takes for the calls, which all ranks start together."""
    dist.all_reduce(torch.zeros(1))
    gc.disable()
    try:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - start
    finally:
        gc.enable()


def slowest(seconds: float) -> float:
    """Returns the time of the slowest rank, given this rank's time."""
    everyone = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(everyone, dist.ReduceOp.MAX)
    return everyone.item()
