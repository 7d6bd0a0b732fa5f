# SPDX-License-Identifier: BSD-3-Clause
"""Times cases in short windows that alternate between two devices.

The parent process does not compute. It requests one window at a time from the workers. Thus a slow
drift of the machine (clock, other programs) affects both devices equally and cancels out in the
ratio. Each device has its own worker, because the OpenMP threads that one device starts in a
process would slow down the other device. All cases are measured several times, in passes. The
median over the passes is robust if the machine is busy during one of them.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch_device_conformance.execution.worker import Died, Worker

from benchmarks.cases import CASES as OPERATORS
from benchmarks.cases import Step
from benchmarks.service_cases import SERVICES

CASES = (*OPERATORS, *SERVICES)
REFERENCE = "cpu"
SETTLE = 0.02  # Seconds. The OpenMP threads of an idle process stop spinning earlier.
TIMEOUT = 120.0  # Seconds for one window. A window that takes longer is considered to hang.
# The number of calls before timing. A compiled function compiles in its first two calls (in the
# first call, an optimizer has no state). It warms up and captures a graph in up to four more calls.
WARM_UP = 8


@dataclass(frozen=True)
class Effort:
    """The amount of measurement.

    Attributes:
        window: the length of a window in seconds.
        rounds: the number of windows per device and case in a pass.
        passes: the number of passes through all cases.
    """

    window: float
    rounds: int
    passes: int = 1


@dataclass(frozen=True)
class Window:
    """A request to run `case` on `device` and to time the calls.

    Attributes:
        calls: the number of calls; 0 means to warm up and find the number that fits into `seconds`.
    """

    case: str
    device: str
    calls: int
    seconds: float = 0.0


@dataclass(frozen=True)
class Timing:
    """The result of a window: the number of calls, their total time, and the number of threads."""

    calls: int
    seconds: float
    threads: int


@dataclass(frozen=True)
class Result:
    """One row: median times in microseconds per call, and the ratio of the devices.

    Attributes:
        ratio: the ratio device / CPU: the median over the passes of the median over the rounds.
        low: the lower quartile over the passes.
        high: the upper quartile over the passes.
        error: why there are no figures (they are then 0); empty if there are figures.
    """

    group: str
    name: str
    bound: float | None
    cpu_us: float = 0.0
    device_us: float = 0.0
    ratio: float = 0.0
    low: float = 0.0
    high: float = 0.0
    error: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the ratio, rounded to two decimals as in the report, is within the bound."""
        return False if self.error and self.bound is not None else within(self.ratio, self.bound)


def within(ratio: float, bound: float | None) -> bool | None:
    """Returns whether a ratio, rounded to two decimals, is within a bound; None without a bound."""
    return None if bound is None else round(ratio, 2) <= bound


def prepare(threads: int | None) -> Callable[[Window], Iterator[Timing]]:
    """Returns the function that times windows. It is called in the worker.

    Args:
        threads: the number of threads for kernels; None for torch's default.
    """

    def make(window: Window) -> Step:
        (case,) = (c for c in CASES if c.name == window.case)
        return case.make(torch.device(window.device))

    return answering(make, lambda window: window.device, threads)


def answering(
    make: Callable[[Window], Step],
    place: Callable[[Window], str],
    threads: int | None,
    forget: Callable[[], None] = lambda: None,
) -> Callable[[Window], Iterator[Timing]]:
    """Returns the function that answers requests for windows. It caches the steps of one case.

    Args:
        make: creates the step for a window's case and device.
        place: the device on which the calls of a window must finish.
        threads: the number of threads for kernels; None for torch's default.
        forget: a function that is called after the steps of the previous case were deleted.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    steps: dict[tuple[str, str], Step] = {}

    def answer(window: Window) -> Iterator[Timing]:
        key = window.case, window.device
        if any(case != window.case for case, _ in steps):
            steps.clear()
            forget()
        if key not in steps:
            steps[key] = make(window)
        yield timed(steps[key], place(window), window)

    return answer


def timed(step: Step, device: str, window: Window) -> Timing:
    """Answers a request: times the step, or finds how many calls fit into the window."""
    if window.calls:
        # Run half a window without timing. Afterwards, the scheduler has placed the threads that
        # were woken up, and the caches are warm.
        run(step, device, window.calls // 2)
        seconds = run(step, device, window.calls)
        return Timing(window.calls, seconds, torch.get_num_threads())
    run(step, device, WARM_UP)
    calls, seconds = 1, run(step, device, 1)
    while seconds < window.seconds / 2:
        # Increase the number at most by a factor of four, because the first calls are the slowest.
        calls *= min(4, max(2, int(window.seconds / max(seconds, 1e-9))))
        seconds = run(step, device, calls)
    return Timing(max(1, round(calls * window.seconds / seconds)), 0.0, torch.get_num_threads())


def run(step: Step, device: str, calls: int) -> float:
    """Returns the seconds from the first call until the device has finished all calls."""
    synchronize(device)
    gc.disable()
    try:
        start = time.perf_counter()
        for _ in range(calls):
            step()
        synchronize(device)
        return time.perf_counter() - start
    finally:
        gc.enable()


def synchronize(device: str) -> None:
    """Waits for the device. The CPU needs no synchronization."""
    if device != REFERENCE:
        torch.accelerator.synchronize(device)


def measure(
    names: list[str], device: str, threads: int | None, effort: Effort, bound: float | None = None
) -> Iterator[tuple[Result, int]]:
    """Measures cases one by one, in as many passes as the effort specifies.

    Args:
        names: the cases' names.
        device: the device to compare with the CPU.
        threads: the number of threads for kernels; None for torch's default.
        effort: the amount of measurement.
        bound: the bound for the ratio of each case without its own bound.

    Yields:
        For each case in each pass, the result over the passes so far, and the number of threads.
        The result of a failed case contains the error. The case is not run in later passes.
    """
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    failed: dict[str, Result] = {}
    with ExitStack() as stack:
        workers: list[Worker[Window, Timing]] = []
        for name in names * effort.passes:
            if name in failed:
                yield failed[name], 0
                continue
            if not workers:
                workers = [stack.enter_context(Worker(prepare, threads)) for _ in range(2)]
            (case,) = (c for c in CASES if c.name == name)
            row = case.group, case.name, case.bound or bound
            try:
                sides = list(zip(workers, (REFERENCE, device), strict=True))
                (cpu, dev), used = alternate(name, sides, effort)
            except (RuntimeError, TimeoutError, Died) as error:
                lines = str(error).splitlines() or [type(error).__name__]
                failed[name] = Result(*row, error=lines[0])
                yield failed[name], 0
                for worker in workers:
                    worker.close()
                workers = []  # the next case starts new workers
                continue
            ratio = statistics.median(d / c for c, d in zip(cpu, dev, strict=True))
            found[name].append((statistics.median(cpu), statistics.median(dev), ratio))
            cpu_s, device_s, ratios = zip(*found[name], strict=True)
            low, ratio, high = quartiles(list(ratios))
            result = Result(
                *row,
                cpu_us=1e6 * statistics.median(cpu_s),
                device_us=1e6 * statistics.median(device_s),
                ratio=ratio,
                low=low,
                high=high,
            )
            yield result, used


def alternate(
    case: str,
    sides: Sequence[tuple[Worker[Window, Timing], str]],
    effort: Effort,
    timeout: float = TIMEOUT,
) -> tuple[list[list[float]], int]:
    """Times windows of all sides in turn.

    Args:
        case: the case's name.
        sides: pairs of a worker and the device name for its windows.
        effort: the amount of measurement.
        timeout: the time limit for one window, in seconds.

    Returns:
        The seconds per call, by side and round, and the number of threads that the first side used.
    """
    first = [worker.ask(Window(case, d, 0, effort.window), timeout) for worker, d in sides]
    apart = any(worker is not sides[0][0] for worker, _ in sides)
    seconds: list[list[float]] = [[] for _ in sides]
    for number in range(effort.rounds):
        # Alternate which side is first, so that caches and clock frequency favor neither side.
        for side in range(len(sides))[:: 1 if number % 2 == 0 else -1]:
            if apart:
                time.sleep(SETTLE)
            worker, device = sides[side]
            timing = worker.ask(Window(case, device, first[side].calls), timeout)
            seconds[side].append(timing.seconds / timing.calls)
    return seconds, first[0].threads


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """Returns the lower quartile, the median and the upper quartile."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high
