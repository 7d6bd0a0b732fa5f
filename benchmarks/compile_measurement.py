# SPDX-License-Identifier: BSD-3-Clause
"""Measures what torch.compile gives and costs on the device, beside the CPU.

The parent process never computes. Windows of compiled functions alternate between a worker of the
CPU and one of the device; compile times are those of processes that compile one function and end.
"""

import importlib
import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch_device_conformance.execution.worker import Worker
from tqdm import tqdm

from benchmarks.cases import Step
from benchmarks.compile_cases import CompileCase, Compiler, case_named
from benchmarks.compile_report import Row, ratio
from benchmarks.measurement import Effort, Timing, Window, alternate, answering, synchronize

VALIDATOR_BOUND = 1.05
WARM_BOUND = 1.25
TIMEOUT = 600.0  # seconds for one window, that of compiling included

COMPILERS: dict[str, Compiler] = {
    "eager": lambda function: function,
    "compiled": torch.compile,
    "reduce-overhead": lambda function: torch.compile(function, mode="reduce-overhead"),
    "validator": lambda function: torch.compile(function, backend="openreg"),
}


def prepare(device: str, threads: int | None) -> Callable[[Window], Timing]:
    """Makes the function that times windows on one device; runs in the worker.

    The ``device`` of a window is a name of COMPILERS here.
    """
    _leave_nothing()

    def make(window: Window) -> Step:
        return case_named(window.case).make(torch.device(device), COMPILERS[window.device])

    return answering(make, lambda _: device, threads, torch.compiler.reset)


def _leave_nothing() -> None:
    # Torch shows its progress by tqdm, whose lock between processes would be left behind when the
    # worker is killed.
    tqdm.set_lock(threading.RLock())


@dataclass(frozen=True)
class FirstCall:
    """What the first call of a compiled function took.

    Attributes:
        seconds: until the device was done.
        missed: how many graphs were not in the caches on disk.
    """

    seconds: float
    missed: int


def prepare_first(device: str, threads: int | None, cache: str) -> Callable[[str], FirstCall]:
    """Makes the function that compiles the case of a name; runs in a fresh worker.

    Args:
        device: where the case runs.
        threads: for kernels; None leaves torch's default.
        cache: the folder for all that torch's compiler keeps on disk.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    _leave_nothing()
    if threads is not None:
        torch.set_num_threads(threads)
    importlib.import_module("torch._inductor.compile_fx")
    # Torch imports another hundred modules, setuptools among them, when it compiles the first
    # function of a process. That is neither device's time.
    torch.compile(lambda x: x + 1)(torch.ones(1))
    counters = importlib.import_module("torch._dynamo.utils").counters
    counters.clear()

    def answer(name: str) -> FirstCall:
        step = case_named(name).make(torch.device(device), torch.compile)
        synchronize(device)
        start = time.perf_counter()
        step()
        synchronize(device)
        seconds = time.perf_counter() - start
        found = counters["aot_autograd"], counters["inductor"]
        keys = (
            "autograd_cache_miss",
            "autograd_cache_bypass",
            "fxgraph_cache_miss",
            "fxgraph_cache_bypass",
        )
        return FirstCall(seconds, sum(counter[key] for counter in found for key in keys))

    return answer


@dataclass
class Bench:
    """Where cases are measured.

    Attributes:
        device: the one that is compared with the CPU.
        threads: for kernels; None for torch's default.
        effort: how much to measure.
        processes: how many fresh ones measure each compile time.
        cache: folder for what they keep on disk.
    """

    device: str
    threads: int | None
    effort: Effort
    processes: int
    cache: str

    def __post_init__(self) -> None:
        self._workers: dict[str, Worker[Window, Timing]] = {}

    def times(self, case: str, ways: Sequence[tuple[str, str]]) -> dict[str, list[float]]:
        """Seconds a call by "device mode", round by round; windows of all ways alternate."""
        sides = []
        for device, mode in ways:
            if device not in self._workers:
                self._workers[device] = Worker(prepare, device, self.threads)
            sides.append((self._workers[device], mode))
        seconds, _ = alternate(case, sides, self.effort, TIMEOUT)
        return {" ".join(way): times for way, times in zip(ways, seconds, strict=True)}

    def first_call(self, case: str, device: str) -> FirstCall:
        """The first call in a fresh process."""
        with Worker[str, FirstCall](prepare_first, device, self.threads, self.cache) as worker:
            return worker.ask(case, TIMEOUT)

    def close(self) -> None:
        """Ends the workers; whoever asks next gets new ones."""
        for worker in self._workers.values():
            worker.close()
        self._workers = {}


def medians(seconds: dict[str, list[float]], per_second: float) -> dict[str, float]:
    """The median of each way, in a unit of which so many are a second."""
    return {way: per_second * statistics.median(times) for way, times in seconds.items()}


def measure_modes(case: CompileCase, bench: Bench) -> Row:
    """Eager and compiled on both devices, and reduce-overhead on the device: microseconds."""
    both = [(device, mode) for device in ("cpu", bench.device) for mode in ("eager", "compiled")]
    seconds = bench.times(case.name, [*both, (bench.device, "reduce-overhead")])
    reference = seconds["cpu compiled"]
    ratios = tuple(
        ratio(way, bound, seconds[way], reference)
        for way, bound in (
            (f"{bench.device} compiled", case.bound),
            (f"{bench.device} reduce-overhead", case.replay_bound),
        )
    )
    remark = f"held back by {case.gate}" if case.gate else ""
    return Row(case.name, medians(seconds, 1e6), ratios, remark)


def measure_validator(case: CompileCase, bench: Bench) -> Row:
    """Backend "openreg" beside eager mode, in one process: microseconds."""
    seconds = bench.times(case.name, [(bench.device, "eager"), (bench.device, "validator")])
    eager, ours = seconds.values()
    found = ratio(f"{bench.device} validator", VALIDATOR_BOUND, ours, eager)
    return Row(case.name, medians(seconds, 1e6), (found,))


def measure_warm(case: CompileCase, bench: Bench) -> Row:
    """The first call with full caches, in processes that alternate: milliseconds."""
    devices = ["cpu", bench.device]
    for device in devices:
        bench.first_call(case.name, device)  # fills the caches
    seconds: dict[str, list[float]] = {device: [] for device in devices}
    for number in range(bench.processes):
        for device in devices[:: 1 if number % 2 == 0 else -1]:
            first = bench.first_call(case.name, device)
            if first.missed:
                raise RuntimeError(f"{first.missed} graphs were not in the caches of {device}")
            seconds[device].append(first.seconds)
    cpu, ours = seconds.values()
    return Row(case.name, medians(seconds, 1e3), (ratio(bench.device, WARM_BOUND, ours, cpu),))
