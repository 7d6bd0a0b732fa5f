# SPDX-License-Identifier: BSD-3-Clause
"""Compares torch.compile on the device with torch.compile on the CPU.

There are three tables. The first contains the time of a call: eager and compiled on both devices,
and with mode "reduce-overhead" on the device. The second compares backend "openreg", which checks
and runs a graph, with eager mode. The third contains the time of the first call if torch's caches
on disk already contain all graphs. The variants run in turn, and a ratio is the median over the
rounds. Most of the run time is compilation.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch_device_conformance.execution.worker import Died
from tqdm import tqdm

from benchmarks.compile_cases import COMPILE_CASES, CompileCase, case_named
from benchmarks.compile_measurement import Bench, measure_modes, measure_validator, measure_warm
from benchmarks.compile_report import Row, Table, chart, document, render
from benchmarks.eager import machine
from benchmarks.measurement import Effort
from tools.flags.flags import Flags, device, output, picture, whole_number

MEAN_BOUND = 1.0  # the bound for the geometric mean over all cases in a table
FULL = Effort(window=0.05, rounds=15)
QUICK = Effort(window=0.01, rounds=3)
FULL_PROCESSES, QUICK_PROCESSES = 7, 1  # the number of processes that measure each compile time


@dataclass(frozen=True)
class Section:
    """One table in the report.

    Attributes:
        name: the prefix of the table's case names for --filter; empty for the first table.
        title: what the table measures.
        unit: the unit of the times.
        reference: the variant whose times are the divisors; {} stands for the device.
        cases: the table's cases.
        measure: a function that measures one case.
        mean_of: the variant whose geometric mean has a bound; {} stands for the device.
    """

    name: str
    title: str
    unit: str
    reference: str
    cases: tuple[CompileCase, ...]
    measure: Callable[[CompileCase, Bench], Row]
    mean_of: str = ""

    def name_of(self, case: CompileCase) -> str:
        """Returns the name of a row for --filter."""
        return f"{self.name}: {case.name}" if self.name else case.name

    def table(self, device: str, rows: Sequence[Row]) -> Table:
        """Returns a table with the results on a device."""
        reference, mean_of = self.reference.format(device), self.mean_of.format(device)
        complete = len(rows) == len(self.cases) and not any(row.error for row in rows)
        bound = MEAN_BOUND if mean_of and complete else None
        return Table(self.title, self.unit, reference, rows, mean_of, bound)


_TRANSFORMER = tuple(case_named(f"transformer layer {name}") for name in ("inference", "training"))
SECTIONS = (
    Section(
        "", "a call", "us", "cpu compiled", COMPILE_CASES, measure_modes, mean_of="{} compiled"
    ),
    Section("validator", "validator", "us", "{} eager", _TRANSFORMER, measure_validator),
    Section(
        "warm caches",
        "first call, warm caches",
        "ms",
        "cpu",
        (*_TRANSFORMER, case_named("LSTM cell")),
        measure_warm,
    ),
)

Chosen = list[tuple[Section, CompileCase]]


def find(text: str) -> Chosen:
    """Returns the rows whose names contain ``text``."""
    found = [
        (section, case)
        for section in SECTIONS
        for case in section.cases
        if text in section.name_of(case)
    ]
    if not found:
        raise argparse.ArgumentTypeError(f"no case name contains {text!r}")
    return found


def measured(chosen: Chosen, bench: Bench) -> list[Table]:
    """Measures all tables. Shows a progress bar if the output is a terminal."""
    rows: dict[str, list[Row]] = {section.name: [] for section, _ in chosen}
    for section, case in tqdm(chosen, unit="case", disable=None, leave=False):
        try:
            row = section.measure(case, bench)
        except (RuntimeError, TimeoutError, Died) as error:
            lines = str(error).splitlines() or [type(error).__name__]
            row = Row(case.name, error=lines[0])
            bench.close()
        rows[section.name].append(row)
    return [
        section.table(bench.device, rows[section.name])
        for section in SECTIONS
        if section.name in rows
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark.

    Returns:
        0, or 1 if a case could not be measured.
    """
    parser = Flags("compile", __doc__)
    parser.add_argument(
        "--device", type=device, default="openreg", help="device to compare with the CPU"
    )
    parser.add_argument(
        "--threads", type=whole_number(1), metavar="N", help="intra-op; default: torch's"
    )
    parser.add_argument(
        "--filter",
        type=find,
        default="",
        dest="chosen",
        metavar="TEXT",
        help="measure the cases whose names contain it; the names of the other tables start with "
        '"validator: " and "warm caches: "',
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="measure roughly: short windows, 3 rounds, one process for each compile time",
    )
    parser.add_argument("--json", type=output, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--plot", type=picture, metavar="FILE", help="draw bar charts to FILE")
    flags = parser.parse_args(argv)
    if flags.device.type == "cpu":
        parser.error("--device cpu is the reference: choose another device")
    here = machine()
    print(f"{here['processor']}, {here['cores']} cores, torch {here['torch']}", flush=True)
    effort, processes = (QUICK, QUICK_PROCESSES) if flags.quick else (FULL, FULL_PROCESSES)
    with tempfile.TemporaryDirectory(prefix="openreg-compile-") as cache:
        bench = Bench(str(flags.device), flags.threads, effort, processes, cache)
        try:
            tables = measured(flags.chosen, bench)
        finally:
            bench.close()
    for table in tables:
        print(f"\n{render(table)}", flush=True)
    if flags.json:
        flags.json.write_text(json.dumps(document(tables, here), indent=1) + "\n")
    if flags.plot:
        chart(tables, flags.plot)
    return int(any(row.error for table in tables for row in table.rows))


if __name__ == "__main__":
    sys.exit(main())
