# SPDX-License-Identifier: BSD-3-Clause
"""Measures the cost of torch.profiler for a small operator, on the CPU and on the device.

The variants run in turn in one process. The result is the ratio of the time to the time on the same
device without a profiler in the same round. The times to start and to end a session are excluded.
"""

import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

from benchmarks.eager import machine
from benchmarks.measurement import quartiles
from tools.flags.flags import Flags, output, whole_number

CALLS = 2000  # The number of calls in a session.
DEVICE_BOUND = 1.5  # The bound for device activity only, relative to no profiler.
_CPU, _DEVICE = ProfilerActivity.CPU, ProfilerActivity.PrivateUse1

#: The activities that each variant records.
WAYS: dict[str, list[ProfilerActivity]] = {
    "none": [],
    "device": [_DEVICE],
    "cpu": [_CPU],
    "cpu and device": [_CPU, _DEVICE],
}


@dataclass(frozen=True)
class Row:
    """One variant on one device.

    Attributes:
        ns: the median time of a call in nanoseconds.
        low: the first quartile of the relative time (1 means the same device without a profiler).
        median: the median of the relative time.
        high: the third quartile of the relative time.
        bound: the largest acceptable median; None if there is no limit.
    """

    device: str
    way: str
    ns: float
    low: float
    median: float
    high: float
    bound: float | None

    @property
    def met(self) -> bool | None:
        """Whether the bound is met; None if there is no bound."""
        return None if self.bound is None else self.median <= self.bound


def measure(device: str, way: str) -> float:
    """Times a small addition in one session.

    Returns:
        The nanoseconds per call.
    """
    x, y = torch.ones(16, device=device), torch.ones(16, device=device)
    add = torch.add
    activities = WAYS[way]
    with profile(activities=activities) if activities else nullcontext():
        for _ in range(CALLS // 10):
            add(x, y)
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            add(x, y)
        return (time.perf_counter_ns() - start) / CALLS


def rows(times: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Row]:
    """Returns the figures of each variant.

    Args:
        times: nanoseconds by device ("cpu" first), variant and round.
    """
    found: list[Row] = []
    cpu_ratios: dict[str, float] = {}
    for device, ways in times.items():
        for way, each in ways.items():
            ratios = [t / plain for t, plain in zip(each, ways["none"], strict=True)]
            low, median, high = quartiles(ratios)
            bound = None
            if device == "cpu":
                cpu_ratios[way] = median
            elif way == "device":
                bound = DEVICE_BOUND
            elif way == "cpu":
                bound = cpu_ratios.get(way)  # the profiler must not cost more than on the CPU
            found.append(Row(device, way, statistics.median(each), low, median, high, bound))
    return found


def table(found: Sequence[Row]) -> str:
    """Formats the rows as aligned text."""
    lines = [f"{'device':<10}{'recorded':<16}{'ns':>9}{'ratio':>8}  quartiles     bound"]
    for row in found:
        verdict = {None: "", True: "met", False: "missed"}[row.met]
        bound = "" if row.bound is None else f"<= {row.bound:.2f} {verdict}"
        lines.append(
            f"{row.device:<10}{row.way:<16}{row.ns:>9.0f}{row.median:>8.2f}  "
            f"{row.low:.2f} - {row.high:.2f}   {bound}".rstrip()
        )
    return "\n".join(lines)


def document(found: Sequence[Row], rounds: int, here: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the rows as JSON objects; times are in nanoseconds."""
    return {
        "machine": here,
        "rounds": rounds,
        "rows": [{**asdict(row), "met": row.met} for row in found],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark.

    Returns:
        Always 0, because the status does not depend on times.
    """
    parser = Flags("profiler", __doc__)
    parser.add_argument(
        "--rounds", type=whole_number(1), default=15, metavar="N", help="rounds of all variants"
    )
    parser.add_argument("--json", type=output, metavar="FILE", help="write the figures to FILE")
    flags = parser.parse_args(argv)
    here = machine()
    print(f"{here['processor']}, {here['cores']} cores, torch {here['torch']}", flush=True)
    torch.set_num_threads(1)
    times: dict[str, dict[str, list[float]]] = {
        "cpu": {"none": [], "cpu": []},
        "openreg": {way: [] for way in WAYS},
    }
    for round_ in tqdm(range(flags.rounds + 1), unit="round", disable=None, leave=False):
        for device, ways in times.items():
            for way, each in ways.items():
                found = measure(device, way)
                if round_:  # the first round is a warm-up
                    each.append(found)
    measured = rows(times)
    print(table(measured))
    if flags.json:
        flags.json.write_text(json.dumps(document(measured, flags.rounds, here), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
