# SPDX-License-Identifier: BSD-3-Clause
"""Reports a benchmark as a table, as JSON and as a bar chart."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.measurement import Result, within


@dataclass(frozen=True)
class Run:
    """The results of all cases for one number of threads.

    Attributes:
        device: the device that was compared with the CPU.
        threads: the number of threads for kernels.
        results: one result per case.
        mean_bound: the bound for the geometric mean; None if there is none.
    """

    device: str
    threads: int
    results: list[Result]
    mean_bound: float | None = None

    @property
    def title(self) -> str:
        """The title of this run in a report."""
        return f"{self.threads} thread{'s' * (self.threads != 1)}"

    @property
    def geometric_mean(self) -> float | None:
        """The geometric mean of the ratios of all cases that ran; None if no case ran."""
        logs = [math.log(r.ratio) for r in self.results if not r.error]
        return math.exp(sum(logs) / len(logs)) if logs else None


def verdict(met: bool | None) -> str:
    """Returns one word for whether a bound is met; empty if there is no bound."""
    return {None: "", True: "met", False: "missed"}[met]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table: the first column left-aligned, figures right-aligned."""
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    lines = []
    for name, *figures, last in rows:
        cells = [f"{text:>{width}}" for text, width in zip(figures, widths[1:], strict=True)]
        lines.append("  ".join([f"{name:{widths[0]}}", *cells, last]).rstrip())
    return lines


def table(run: Run) -> str:
    """Formats a run as aligned text."""
    rows = [("case", "cpu us", f"{run.device} us", "ratio", "quartiles", "bound", "")]
    for r in run.results:
        name = f"{r.group}: {r.name}"
        bound = "" if r.bound is None else f"<= {r.bound:.2f}"
        if r.error:
            rows.append((name, "-", "-", "-", "-", bound, f"failed: {r.error}"))
            continue
        spread = f"{r.low:.2f} - {r.high:.2f}"
        times = f"{r.cpu_us:,.2f}", f"{r.device_us:,.2f}"
        rows.append((name, *times, f"{r.ratio:.2f}", spread, bound, verdict(r.met)))
    lines = [run.title, "-" * len(run.title), *aligned(rows)]
    if run.geometric_mean is not None:
        bounded = [r for r in run.results if r.bound is not None]
        met = sum(bool(r.met) for r in bounded)
        mean = f"geometric mean of the ratios {run.geometric_mean:.3f}"
        if run.mean_bound is not None:
            judged = verdict(within(run.geometric_mean, run.mean_bound))
            mean += f"  <= {run.mean_bound:.2f}  {judged}"
        lines.append(f"{mean}; cases within their bounds: {met} of {len(bounded)}")
    return "\n".join(lines)


def document(runs: list[Run], machine: dict[str, Any]) -> dict[str, Any]:
    """Returns the runs as JSON objects.

    Args:
        runs: the runs.
        machine: the description of the machine.

    Returns:
        JSON objects; times are in microseconds per call.
    """
    return {
        "machine": machine,
        "runs": [
            {
                "device": run.device,
                "threads": run.threads,
                "geometric_mean": run.geometric_mean,
                "geometric_mean_bound": run.mean_bound,
                "results": [{**asdict(r), "met": r.met} for r in run.results],
            }
            for run in runs
        ],
    }


def chart(runs: list[Run], path: Path) -> None:
    """Draws one panel of bars per run. A bar to the left of 1 means that the device is faster.

    Args:
        runs: the runs, at least one.
        path: the output file; its suffix is the format.
    """
    rows = max(len(run.results) for run in runs)
    figure = Figure(figsize=(6.5 * len(runs) + 1, 1.6 + 0.24 * rows), layout="constrained")
    figure.suptitle(f"Time on {runs[0].device} / time on the CPU (quartiles as whiskers)")
    for axes, run in zip(figure.subplots(1, len(runs), squeeze=False)[0], runs, strict=True):
        shown = [r for r in run.results if not r.error]
        colours = {None: "tab:gray", True: "tab:green", False: "tab:red"}
        for place, r in enumerate(shown):
            low, high = max(0.0, r.ratio - r.low), max(0.0, r.high - r.ratio)
            # A bar starts at 1, where the times of the devices are equal.
            axes.barh(
                place,
                r.ratio - 1,
                left=1,
                color=colours[r.met],
                xerr=[[low], [high]],
                error_kw={"elinewidth": 0.8},
            )
            if r.bound is not None:
                axes.plot([r.bound] * 2, [place - 0.45, place + 0.45], color="black", linewidth=2)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xscale("log", base=2)
        # The axis covers at least 0.5 to 2, so that noise does not look like a result.
        ends = [0.5, 2.0, *(r.low for r in shown), *(r.high for r in shown)]
        axes.set_xlim(min(ends) / 1.05, max(ends) * 1.05)
        axes.set_ylim(-0.8, rows - 0.2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_yticks(range(len(shown)), [f"{r.group}: {r.name}" for r in shown], fontsize=8)
        axes.invert_yaxis()
        axes.grid(axis="x", alpha=0.3)
        mean = "" if run.geometric_mean is None else f", geometric mean {run.geometric_mean:.2f}"
        axes.set_title(run.title + mean, fontsize=9)
    figure.supxlabel("black mark: the bound; green: met, red: missed, grey: no bound", fontsize=8)
    figure.savefig(path, dpi=110)
