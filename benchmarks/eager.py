# SPDX-License-Identifier: BSD-3-Clause
"""Compares the device with the CPU, both in eager mode, case by case.

Each device has its own process, and the processes run short windows in turn. The result of a case
is the median ratio of the times over five passes through all cases. Bounds are marked as met or
missed. The exit status does not depend on times.
"""

import argparse
import json
import os
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks.cases import CASES, Case
from benchmarks.measurement import Effort, Result, measure
from benchmarks.report import Run, chart, document, table
from benchmarks.selection import found_by
from tools.flags.flags import Flags, device, output, picture

FULL = Effort(window=0.02, rounds=5, passes=5)
QUICK = Effort(window=0.002, rounds=3)


@dataclass(frozen=True)
class Bounds:
    """The project's bounds for the ratios.

    Attributes:
        case: the bound for each case without its own bound.
        mean: the bound for the geometric mean of all cases.
    """

    case: float | None = None
    mean: float | None = None


#: The bounds with one thread, and with several threads. With several threads, a case that takes
#: only microseconds on the CPU also includes the time to wake up threads.
ONE_THREAD, THREADS = Bounds(1.10, 0.80), Bounds(1.15, 0.90)


def thread_counts(text: str) -> list[int | None]:
    """Parses numbers of threads; None means torch's default."""
    counts: list[int | None] = []
    for part in text.split(","):
        if part != "default" and not re.fullmatch(r"[1-9]\d{0,3}", part):
            raise argparse.ArgumentTypeError(
                f"{part!r} is neither a number of threads nor 'default'"
            )
        counts.append(None if part == "default" else int(part))
    return counts


def parser(name: str, description: str | None, cases: Sequence[Case]) -> Flags:
    """Returns the flag parser for a benchmark with these cases."""
    parser = Flags(name, description)
    parser.add_argument(
        "--device", type=device, default="openreg", help="device to compare with the CPU"
    )
    parser.add_argument(
        "--threads",
        type=thread_counts,
        default="1,default",
        metavar="N,...",
        help="numbers of intra-op threads, one table for each; 'default' is torch's default",
    )
    parser.add_argument(
        "--filter",
        type=found_by(cases),
        default="",
        dest="cases",
        metavar="REGEX",
        help="measure the cases whose 'group: name' it matches",
    )
    parser.add_argument(
        "--quick", action="store_true", help="measure roughly: short windows, 3 rounds, 1 pass"
    )
    parser.add_argument("--json", type=output, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--plot", type=picture, metavar="FILE", help="draw a bar chart to FILE")
    parser.add_argument("--list", action="store_true", help="only list the cases")
    return parser


def machine() -> dict[str, str | int | None]:
    """Returns a description of the machine."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "processor": model.group(1) if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def measured(flags: argparse.Namespace, threads: int | None, bounds: Bounds, whole: bool) -> Run:
    """Measures one table. Shows a progress bar if the output is a terminal."""
    results: dict[str, Result] = {}
    used = 0
    effort = QUICK if flags.quick else FULL
    total = len(flags.cases) * effort.passes
    with tqdm(total=total, unit="case", disable=None, leave=False) as bar:
        bar.set_description(f"{threads or 'default'} threads")
        names = [case.name for case in flags.cases]
        for result, count in measure(names, str(flags.device), threads, effort, bounds.case):
            results[result.name] = result  # replaces the result of the previous pass
            used = max(used, count)
            bar.set_postfix_str(result.name, refresh=False)
            bar.update()
    return Run(str(flags.device), used, list(results.values()), bounds.mean if whole else None)


def run(
    flags: argparse.Namespace,
    cases: Sequence[Case],
    bounds: tuple[Bounds, Bounds] = (Bounds(), Bounds()),
) -> int:
    """Measures the selected cases, prints the results, and writes the requested files.

    Args:
        flags: the parsed command line.
        cases: all cases of this benchmark.
        bounds: the bounds with one thread, and with more threads.

    Returns:
        0, or 1 if a case could not be measured.
    """
    if flags.list:
        for case in flags.cases:
            print(f"{case.group}: {case.name}" + (f"  (<= {case.bound:g})" if case.bound else ""))
        return 0
    here = machine()
    print(f"{here['processor']}, {here['cores']} cores, torch {here['torch']}", flush=True)
    runs: list[Run] = []
    for threads in flags.threads:
        one = measured(flags, threads, bounds[threads != 1], len(flags.cases) == len(cases))
        if any(one.threads == other.threads for other in runs):
            continue  # torch's default number equals another requested number
        runs.append(one)
        print(f"\n{table(one)}", flush=True)
    if flags.json:
        flags.json.write_text(json.dumps(document(runs, here), indent=1) + "\n")
    if flags.plot:
        chart(runs, flags.plot)
    return int(any(r.error for one in runs for r in one.results))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark.

    Returns:
        0, or 1 if a case could not be measured.
    """
    return run(parser("eager", __doc__, CASES).parse_args(argv), CASES, (ONE_THREAD, THREADS))


if __name__ == "__main__":
    sys.exit(main())
