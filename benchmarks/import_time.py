# SPDX-License-Identifier: BSD-3-Clause
"""Measures how much time the device adds to `import torch`: the entry point, step by step.

Each round is a new process. The compiled Python files are in the page cache. The process imports
torch with autoload disabled. Then it does what torch would have done: it finds the entry points,
loads ours, and calls it.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tqdm import tqdm

from benchmarks.eager import machine
from benchmarks.measurement import quartiles
from tools.flags.flags import Flags, output, whole_number

BOUND = 30.0  # milliseconds, for the steps "find" and "call" together
_MARK = "=== the entry point is called"

# Prints one JSON object with the times in milliseconds.
_PROGRAM = f"""\
import json, os, sys, time
start = time.perf_counter()
import torch
torch_ms = 1e3 * (time.perf_counter() - start)
from importlib.metadata import entry_points
def spent(action):
    wall, cpu = time.perf_counter(), time.thread_time()
    result = action()
    return result, 1e3 * (time.perf_counter() - wall), 1e3 * (time.thread_time() - cpu)
found, find_ms, find_cpu = spent(lambda: [
    entry for entry in entry_points(group="torch.backends") if entry.name == "torch_openreg"])
os.write(2, b"{_MARK}\\n")
_, call_ms, call_cpu = spent(lambda: [entry.load()() for entry in found])
assert torch.openreg.device_count() > 0
print(json.dumps(dict(torch=torch_ms, find=find_ms, call=call_ms, cpu=find_cpu + call_cpu)))
"""

# A line of -X importtime: the module's time in microseconds without nested imports, and the module.
_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)$")

# The steps of the call, with patterns for the modules that each step imports. The first match
# applies.
_STEPS = {
    "libraries": r"torch_openreg\._C",
    "modules of torch.openreg": r"torch_openreg\.openreg",
    "entry point": r"torch_openreg_autoload",
    "torch.compile": r"torch_openreg_compile|openreg_graph",
    "register": r"torch_openreg",
    "modules of Python": r"",
}


@dataclass(frozen=True)
class Row:
    """The time of one step in milliseconds: the quartiles over all processes."""

    step: str
    low: float
    median: float
    high: float


def steps(importtime: str) -> dict[str, float]:
    """Returns the time of each step of the call in milliseconds.

    Args:
        importtime: the output of -X importtime.
    """
    found = dict.fromkeys(_STEPS, 0.0)
    for line in importtime.splitlines():
        match = _LINE.search(line)
        if match:
            own, module = int(match[1]) / 1e3, match[2]
            step = next(step for step, names in _STEPS.items() if re.match(names, module))
            found[step] += own
    return found


def measure(environment: Mapping[str, str]) -> dict[str, float]:
    """Returns the time of each step, and the total, of one new process, in milliseconds."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", _PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the process failed: {done.stderr.splitlines()[-1]}")
    times: dict[str, float] = json.loads(done.stdout)
    parts = steps(done.stderr.split(_MARK)[1])
    # The rest of the time is spent in the calls themselves, outside of imports.
    parts["register"] += max(0.0, times["call"] - sum(parts.values()))
    return {
        "find": times["find"],
        **parts,
        "all": times["find"] + times["call"],
        "all, CPU time": times["cpu"],
        "(import torch without it)": times["torch"],
    }


def table(rows: Sequence[Row]) -> str:
    """Formats the rows as aligned text."""
    lines = [f"{'step':<28}{'ms':>9}  quartiles"]
    lines += [f"{r.step:<28}{r.median:>9.2f}  {r.low:.2f} - {r.high:.2f}" for r in rows]
    return "\n".join(lines)


def document(rows: Sequence[Row], processes: int, here: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the rows as JSON objects; times are in milliseconds."""
    return {
        "machine": here,
        "processes": processes,
        "bound": BOUND,
        "steps": [asdict(row) for row in rows],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark.

    Returns:
        0, or 1 if a process failed.
    """
    parser = Flags("import", __doc__)
    parser.add_argument(
        "--processes",
        type=whole_number(1),
        default=15,
        metavar="N",
        help="number of processes to measure",
    )
    parser.add_argument("--json", type=output, metavar="FILE", help="write the figures to FILE")
    flags = parser.parse_args(argv)
    here = machine()
    print(f"{here['processor']}, {here['cores']} cores, torch {here['torch']}", flush=True)
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ,
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": cache,
        }
        try:
            measure(environment)  # compiles Python files and fills the page cache
            measured = [
                measure(environment)
                for _ in tqdm(range(flags.processes), unit="process", disable=None, leave=False)
            ]
        except RuntimeError as error:
            print(f"import: {error}", file=sys.stderr)
            return 1
    rows = []
    for step in measured[0]:
        low, median, high = quartiles([times[step] for times in measured])
        rows.append(Row(step, low, median, high))
    print(table(rows))
    total = statistics.median(times["all"] for times in measured)
    verdict = "met" if total <= BOUND else "missed"
    print(f"median of {len(measured)} processes at most {BOUND:g} ms: {verdict}")
    if flags.json:
        flags.json.write_text(json.dumps(document(rows, len(measured), here), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
