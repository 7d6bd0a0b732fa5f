# SPDX-License-Identifier: BSD-3-Clause
"""Compares occl's collectives on the device with Gloo's on the CPU, and training with each of them.

A time is measured on the slowest rank, from the call to the end of the synchronized collective.
After a warm-up, windows of calls alternate between the two backends in the same processes. The
report contains the medians, over the rounds, of the times and of their ratios. The size is that of
each rank's larger buffer. Gloo's reduce-scatter is an all-reduce of which each rank keeps a part,
because torch has no other implementation for Gloo.
"""

import argparse
import json
import sys
from collections.abc import Sequence

from tqdm import tqdm

from benchmarks.collective_cases import COLLECTIVE_CASES, PROCESSES, CollectiveCase
from benchmarks.collective_measurement import Measured, measure
from benchmarks.collective_report import chart, document, goals, table
from benchmarks.eager import machine
from benchmarks.measurement import Effort
from benchmarks.selection import found_by
from tools.flags.flags import Flags, output, picture

FULL = Effort(window=0.03, rounds=11)
QUICK = Effort(window=0.003, rounds=3)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parses the flags; exits if a flag is wrong."""
    parser = Flags(
        "collectives",
        __doc__,
        "Exit status: 0, or 1 if a case could not be measured; it does not depend on times.",
    )
    parser.add_argument(
        "--filter",
        type=found_by(COLLECTIVE_CASES),
        default="",
        dest="cases",
        metavar="REGEX",
        help="measure the cases whose 'N processes: operation size' it matches",
    )
    parser.add_argument(
        "--quick", action="store_true", help="measure roughly: short windows, 3 rounds"
    )
    parser.add_argument("--json", type=output, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--plot", type=picture, metavar="FILE", help="write a picture")
    parser.add_argument("--list", action="store_true", help="only list the cases")
    return parser.parse_args(argv)


def measured(cases: Sequence[CollectiveCase], effort: Effort) -> list[Measured]:
    """Measures one table. Shows a progress bar if the output is a terminal."""
    results = []
    with tqdm(total=len(cases), unit="case", disable=None, leave=False) as bar:
        bar.set_description(cases[0].group)
        for result in measure(cases, effort):
            results.append(result)
            bar.set_postfix_str(result.case.name, refresh=False)
            bar.update()
    return results


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark.

    Returns:
        0, or 1 if a case could not be measured.
    """
    flags = parse(argv)
    if flags.list:
        for case in flags.cases:
            bound = f"  (<= {case.bound:.2f})" if case.bound is not None else ""
            print(f"{case.group}: {case.name}{bound}")
        return 0
    here = machine()
    print(f"{here['processor']}, {here['cores']} cores, torch {here['torch']}", flush=True)
    effort = QUICK if flags.quick else FULL
    found: list[Measured] = []
    for processes in PROCESSES:
        cases = [case for case in flags.cases if case.processes == processes]
        if cases:
            results = measured(cases, effort)
            print(f"\n{table(results)}", flush=True)
            found += results
    print()
    print("\n".join(goals(found)))
    if flags.json:
        text = json.dumps(document(found, effort.rounds, here), indent=1)
        flags.json.write_text(text + "\n")
    if flags.plot:
        chart(found, flags.plot)
        print(f"picture: {flags.plot}")
    return int(any(one.error for one in found))


if __name__ == "__main__":
    sys.exit(main())
