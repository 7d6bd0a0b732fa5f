# SPDX-License-Identifier: BSD-3-Clause
"""Compares torch.compile on the device with torch.compile on the CPU, beside both eager modes.

Each device has a process of its own. Short windows of all four ways alternate; the ratio is the
median, over the rounds, of compiled on the device / compiled on the CPU. Compiling takes a minute.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field

import torch
from matplotlib.figure import Figure
from tqdm import tqdm

from benchmarks.cases import Step
from benchmarks.compile_cases import COMPILE_CASES, CompileCase
from benchmarks.eager import machine
from benchmarks.measurement import SETTLE, Effort, Timing, Window, answering, quartiles
from tools.flags.flags import Flags, device, output, picture, whole_number
from tools.worker.worker import Died, Worker

FULL = Effort(window=0.05, rounds=15)
QUICK = Effort(window=0.002, rounds=3)
TIMEOUT = 600.0  # seconds for one window, that of compiling included
MODES = ("eager", "compiled")


def prepare(device: str, threads: int | None) -> Callable[[Window], Timing]:
    """Makes the function that times windows on one device; runs in the worker.

    The ``device`` of a window is the mode here.
    """

    def make(window: Window) -> Step:
        torch._dynamo.reset()
        (case,) = (c for c in COMPILE_CASES if c.name == window.case)
        compiler = torch.compile if window.device == "compiled" else lambda function: function
        return case.make(torch.device(device), compiler)

    return answering(make, lambda _: device, threads)


@dataclass(frozen=True)
class Row:
    """What was measured of one case: microseconds a call, by ``device mode``.

    Attributes:
        ratio: median over the rounds of compiled on the device / compiled on the CPU.
        low: lower quartile of these ratios.
        high: upper quartile.
        error: why there are no figures; else empty.
    """

    name: str
    bound: float
    us: dict[str, float] = field(default_factory=dict)
    ratio: float = 0.0
    low: float = 0.0
    high: float = 0.0
    error: str = ""

    @property
    def met(self) -> bool:
        """Whether the ratio, as printed with two decimals, is within the bound."""
        return not self.error and round(self.ratio, 2) <= self.bound


def measure(case: CompileCase, workers: dict[str, Worker[Window, Timing]], effort: Effort) -> Row:
    """Measures one case on all workers, each of which has a device."""
    sides = [(device, mode) for device in workers for mode in MODES]
    calls = {
        side: workers[side[0]].ask(Window(case.name, side[1], 0, effort.window), TIMEOUT).calls
        for side in sides
    }
    seconds: dict[tuple[str, str], list[float]] = {side: [] for side in sides}
    for number in range(effort.rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            time.sleep(SETTLE)
            timing = workers[side[0]].ask(Window(case.name, side[1], calls[side]), TIMEOUT)
            seconds[side].append(timing.seconds / timing.calls)
    cpu, ours = (seconds[name, "compiled"] for name in workers)
    low, ratio, high = quartiles([b / a for a, b in zip(cpu, ours, strict=True)])
    us = {" ".join(side): 1e6 * statistics.median(times) for side, times in seconds.items()}
    return Row(case.name, case.bound, us, ratio, low, high)


def measured(flags: argparse.Namespace) -> list[Row]:
    """All rows, under a progress bar if a person is watching."""
    effort = QUICK if flags.quick else FULL
    rows = []
    with ExitStack() as stack:
        workers: dict[str, Worker[Window, Timing]] = {}
        for case in tqdm(flags.cases, unit="case", disable=None, leave=False):
            for name in ("cpu", str(flags.device)):
                if name not in workers:
                    workers[name] = stack.enter_context(Worker(prepare, name, flags.threads))
            try:
                rows.append(measure(case, workers, effort))
            except (RuntimeError, TimeoutError, Died) as error:
                lines = str(error).splitlines() or [type(error).__name__]
                rows.append(Row(case.name, case.bound, error=lines[0]))
                for worker in workers.values():
                    worker.close()
                workers = {}  # the next case gets new ones
    return rows


def table(rows: Sequence[Row]) -> str:
    """The rows as aligned text."""
    names = next((list(row.us) for row in rows if row.us), [])
    lines = [("case", *(f"{name} us" for name in names), "ratio", "quartiles", "bound", "")]
    for row in rows:
        bound = f"<= {row.bound:.2f}"
        if row.error:
            lines.append((row.name, *("-" for _ in names), "-", "-", bound, f"failed: {row.error}"))
            continue
        times = [f"{row.us[name]:,.1f}" for name in names]
        spread = f"{row.low:.2f} - {row.high:.2f}"
        verdict = "met" if row.met else "missed"
        lines.append((row.name, *times, f"{row.ratio:.2f}", spread, bound, verdict))
    widths = [max(map(len, column)) for column in list(zip(*lines, strict=True))[:-1]]
    return "\n".join(
        "  ".join(
            [f"{name:{widths[0]}}"]
            + [f"{text:>{width}}" for text, width in zip(figures, widths[1:], strict=True)]
            + [word]
        ).rstrip()
        for name, *figures, word in lines
    )


def chart(rows: Sequence[Row], path: str) -> None:
    """Writes bars of all four times of each case, relative to the CPU's compiled one."""
    shown = [row for row in rows if not row.error]
    figure = Figure(figsize=(9, 1.8 + 0.6 * len(shown)), layout="constrained")
    axes = figure.subplots()
    names = list(shown[0].us) if shown else []
    for place, name in enumerate(names):
        offset = (place - len(names) / 2) * 0.2
        times = [row.us[name] / row.us["cpu compiled"] for row in shown]
        axes.barh([i + offset for i in range(len(shown))], times, height=0.18, label=name)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(shown)), [row.name for row in shown])
    axes.invert_yaxis()
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("time / time compiled on the CPU")
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def find(text: str) -> list[CompileCase]:
    """The cases with ``text`` in their names."""
    found = [case for case in COMPILE_CASES if text in case.name]
    if not found:
        raise argparse.ArgumentTypeError(f"no case has {text!r} in its name")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark.

    Returns:
        0, or 1 if a case could not be measured.
    """
    parser = Flags("compile", __doc__)
    parser.add_argument("--device", type=device, default="openreg", help="to compare with the CPU")
    parser.add_argument(
        "--threads", type=whole_number(1), metavar="N", help="intra-op; default: torch's"
    )
    parser.add_argument(
        "--filter",
        type=find,
        default="",
        dest="cases",
        metavar="TEXT",
        help="measure the cases that have it in their names",
    )
    parser.add_argument("--quick", action="store_true", help="a rough look: tiny windows, 3 rounds")
    parser.add_argument("--json", type=output, metavar="FILE", help="write the figures")
    parser.add_argument("--plot", type=picture, metavar="FILE", help="write a bar chart")
    flags = parser.parse_args(argv)
    here = machine()
    print(f"{here['processor']}, {here['cores']} cores, torch {here['torch']}", flush=True)
    rows = measured(flags)
    print(f"\n{table(rows)}", flush=True)
    if flags.json:
        results = [{**asdict(row), "met": row.met} for row in rows]
        flags.json.write_text(json.dumps({"machine": here, "results": results}, indent=1) + "\n")
    if flags.plot:
        chart(rows, flags.plot)
    return int(any(row.error for row in rows))


if __name__ == "__main__":
    sys.exit(main())
