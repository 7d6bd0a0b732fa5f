# SPDX-License-Identifier: BSD-3-Clause
"""Measures compiled functions and their compile times on the device and on the CPU.

The parent process runs no kernels. One worker process measures the CPU, and another measures the
device. They run their windows in turn. Compile times are measured in processes that compile one
function and exit.
"""

import importlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch_device_conformance.execution.worker import Worker

from benchmarks.cases import Step
from benchmarks.compile_cases import CompileCase, Compiler, case_named
from benchmarks.compile_report import Row, ratio
from benchmarks.measurement import Effort, Timing, Window, alternate, answering, synchronize

VALIDATOR_BOUND = 1.05
WARM_BOUND = 1.25
TIMEOUT = 600.0  # seconds for one window, including compilation

COMPILERS: dict[str, Compiler] = {
    "eager": lambda function: function,
    "compiled": torch.compile,
    "reduce-overhead": lambda function: torch.compile(function, mode="reduce-overhead"),
    "validator": lambda function: torch.compile(function, backend="openreg"),
}


def prepare(device: str, threads: int | None) -> Callable[[Window], Iterator[Timing]]:
    """Returns the function that times windows on one device. It is called in the worker.

    In this module, ``Window.device`` is a key of COMPILERS instead of a device.
    """

    def make(window: Window) -> Step:
        return case_named(window.case).make(torch.device(device), COMPILERS[window.device])

    return answering(make, lambda _: device, threads, torch.compiler.reset)


@dataclass(frozen=True)
class FirstCall:
    """The cost of the first call to a compiled function.

    Attributes:
        seconds: the time from the call until the device has finished.
        missed: the number of graphs that were not in the on-disk caches.
    """

    seconds: float
    missed: int


def prepare_first(
    device: str, threads: int | None, cache: str
) -> Callable[[str], Iterator[FirstCall]]:
    """Returns the function that compiles the case with a given name. Called in a new worker.

    Args:
        device: the case's device.
        threads: the number of threads for kernels; None for torch's default.
        cache: the folder for the compiler's caches.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    if threads is not None:
        torch.set_num_threads(threads)
    importlib.import_module("torch._inductor.compile_fx")
    # When a process compiles its first function, torch imports about a hundred more modules, such
    # as setuptools. Compile a function here to exclude this time for both devices.
    torch.compile(lambda x: x + 1)(torch.ones(1))
    counters = importlib.import_module("torch._dynamo.utils").counters
    counters.clear()

    def answer(name: str) -> Iterator[FirstCall]:
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
        yield FirstCall(seconds, sum(counter[key] for counter in found for key in keys))

    return answer


@dataclass
class Bench:
    """The workers that measure the cases.

    Attributes:
        device: the device to compare with the CPU.
        threads: the number of threads for kernels; None for torch's default.
        effort: the amount of measurement.
        processes: the number of new processes that measure each compile time.
        cache: the folder for the compiler's caches in these processes.
    """

    device: str
    threads: int | None
    effort: Effort
    processes: int
    cache: str

    def __post_init__(self) -> None:
        self._workers: dict[str, Worker[Window, Timing]] = {}

    def times(self, case: str, ways: Sequence[tuple[str, str]]) -> dict[str, list[float]]:
        """Measures the variants: one window of each variant in turn.

        Returns:
            The seconds per call in each round, by variant ("device mode").
        """
        sides = []
        for device, mode in ways:
            if device not in self._workers:
                self._workers[device] = Worker(prepare, device, self.threads)
            sides.append((self._workers[device], mode))
        seconds, _ = alternate(case, sides, self.effort, TIMEOUT)
        return {" ".join(way): times for way, times in zip(ways, seconds, strict=True)}

    def first_call(self, case: str, device: str) -> FirstCall:
        """Measures the first call to a compiled function, in a new process."""
        with Worker[str, FirstCall](prepare_first, device, self.threads, self.cache) as worker:
            return worker.ask(case, TIMEOUT)

    def close(self) -> None:
        """Ends the workers. The next measurement starts new workers."""
        for worker in self._workers.values():
            worker.close()
        self._workers = {}


def medians(seconds: dict[str, list[float]], per_second: float) -> dict[str, float]:
    """Returns the median of each variant, in the unit that is 1 / `per_second` of a second."""
    return {way: per_second * statistics.median(times) for way, times in seconds.items()}


def measure_modes(case: CompileCase, bench: Bench) -> Row:
    """Times eager and compiled calls on both devices, and reduce-overhead on the device, in µs."""
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
    remark = f"limited by {case.gate}" if case.gate else ""
    return Row(case.name, medians(seconds, 1e6), ratios, remark)


def measure_validator(case: CompileCase, bench: Bench) -> Row:
    """Times backend "openreg" and eager mode in one process, in microseconds."""
    seconds = bench.times(case.name, [(bench.device, "eager"), (bench.device, "validator")])
    eager, ours = seconds.values()
    found = ratio(f"{bench.device} validator", VALIDATOR_BOUND, ours, eager)
    return Row(case.name, medians(seconds, 1e6), (found,))


def measure_warm(case: CompileCase, bench: Bench) -> Row:
    """Times the first call with full caches, in ms, in new processes, on each device in turn."""
    devices = ["cpu", bench.device]
    for device in devices:
        bench.first_call(case.name, device)  # fills the caches
    seconds: dict[str, list[float]] = {device: [] for device in devices}
    for number in range(bench.processes):
        for device in devices[:: 1 if number % 2 == 0 else -1]:
            first = bench.first_call(case.name, device)
            if first.missed:
                raise RuntimeError(
                    f"{case.name} on {device}: the first call compiled {first.missed} graph(s), "
                    "but all graphs should be in the caches"
                )
            seconds[device].append(first.seconds)
    cpu, ours = seconds.values()
    return Row(case.name, medians(seconds, 1e3), (ratio(bench.device, WARM_BOUND, ours, cpu),))
