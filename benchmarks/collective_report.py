# SPDX-License-Identifier: BSD-3-Clause
"""Reports the collective benchmark as a table, as JSON and as an image."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.collective_cases import (
    BANDWIDTH_BOUND,
    LATENCY_BOUND,
    OPERATIONS,
    SIZES,
    TRAINING_BOUND,
    size_text,
)
from benchmarks.collective_measurement import Measured
from benchmarks.report import aligned, verdict

#: The text of each goal, keyed by the size of its cases.
GOALS = {
    SIZES[0]: f"latency at {size_text(SIZES[0])} <= {LATENCY_BOUND:g} of Gloo's",
    SIZES[-1]: f"bandwidth at {size_text(SIZES[-1])} >= {1 / BANDWIDTH_BOUND:g} times Gloo's",
    0: f"DDP step <= {TRAINING_BOUND:g} of the time on CPU and Gloo",
}
COLOURS = {"Gloo": "tab:gray", "occl": "tab:orange"}


def table(found: Sequence[Measured]) -> str:
    """Formats the rows for one number of processes as aligned text."""
    rows: list[tuple[str, ...]] = [
        (
            found[0].case.group,
            *("Gloo us", "least", "occl us", "least", "Gloo GB/s", "occl GB/s", "ratio"),
            *("quartiles", "bound", ""),
        )
    ]
    for one in found:
        bound = "" if one.case.bound is None else f"<= {one.case.bound:.2f}"
        if one.error:
            rows.append((one.case.name, *["-"] * 8, bound, f"failed: {one.error}"))
            continue
        times = one.gloo_us, one.gloo_least_us, one.occl_us, one.occl_least_us
        speeds = (one.bandwidth(us) for us in (one.gloo_us, one.occl_us))
        rows.append(
            (
                one.case.name,
                *(f"{us:,.1f}" for us in times),
                *("-" if speed is None else f"{speed:.3g}" for speed in speeds),
                f"{one.ratio:.2f}",
                f"{one.low:.2f} - {one.high:.2f}",
                bound,
                verdict(one.met),
            )
        )
    return "\n".join(aligned(rows))


def goals(found: Sequence[Measured]) -> list[str]:
    """Returns a line for each measured goal: how many cases meet it, and the worst case."""
    lines = []
    for size, text in GOALS.items():
        cases = [one for one in found if one.case.bytes == size]
        ran = [one for one in cases if not one.error]
        if not ran:
            continue
        met = sum(bool(one.met) for one in cases)
        worst = max(ran, key=lambda one: one.ratio)
        ratio = f"{1 / worst.ratio:.2f} times" if size == SIZES[-1] else f"{worst.ratio:.2f}"
        lines.append(
            f"{verdict(met == len(cases)):6} {text}: in {met} of {len(cases)} cases; worst {ratio} "
            f"({worst.case.name}, {worst.case.group})"
        )
    return lines


def document(found: Sequence[Measured], rounds: int, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the figures as JSON objects.

    Args:
        found: the results.
        rounds: the number of rounds per case.
        machine: the description of the machine.

    Returns:
        JSON objects; times are in microseconds per call.
    """
    return {
        "machine": machine,
        "rounds": rounds,
        "results": [{**asdict(one), "bound": one.case.bound, "met": one.met} for one in found],
    }


def chart(found: Sequence[Measured], path: Path) -> None:
    """Draws a panel for each operation and number of processes: the times of both backends by size.

    Args:
        found: the results, at least one.
        path: the output file; its suffix is the format.
    """
    groups = list(dict.fromkeys(one.case.group for one in found))
    names = [*(n for n in OPERATIONS if any(one.case.operation == n for one in found))]
    trainings = [one for one in found if not one.case.bytes and not one.error]
    columns = len(names) + bool(trainings)
    figure = Figure(figsize=(3.1 * columns + 1, 2.8 * len(groups) + 0.8), layout="constrained")
    figure.suptitle("Time of a synchronized collective: occl (openreg) and Gloo (CPU)")
    panels = figure.subplots(len(groups), columns, squeeze=False)
    for group, row in zip(groups, panels, strict=True):
        for name, axes in zip(names, row, strict=False):
            draw(axes, [o for o in found if o.case.group == group and o.case.operation == name])
            axes.set_title(f"{name}, {group}", fontsize=9)
        if trainings:
            draw_training(row[-1], [one for one in trainings if one.case.group == group])
            row[-1].set_title(f"DDP step, {group}", fontsize=9)
    figure.supxlabel(
        "bytes of a rank's larger buffer; dots: median of the rounds; lower end of the bar: "
        "minimum; black mark: the bound",
        fontsize=8,
    )
    figure.savefig(path, dpi=110)


def draw(axes: Axes, found: Sequence[Measured]) -> None:
    """Draws the times of one operation for one number of processes."""
    ran = [one for one in found if not one.error]
    sizes = [one.case.bytes for one in ran]
    for name, medians, least in (
        ("Gloo", [one.gloo_us for one in ran], [one.gloo_least_us for one in ran]),
        ("occl", [one.occl_us for one in ran], [one.occl_least_us for one in ran]),
    ):
        below = [median - best for median, best in zip(medians, least, strict=True)]
        axes.errorbar(
            sizes,
            medians,
            yerr=[below, [0.0] * len(below)],
            color=COLOURS[name],
            marker="o",
            markersize=3,
            label=name,
        )
    bounded = [one for one in ran if one.case.bound is not None]
    axes.plot(
        [one.case.bytes for one in bounded],
        [one.gloo_us * (one.case.bound or 0.0) for one in bounded],
        "_",
        color="black",
        markersize=10,
        markeredgewidth=2,
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(SIZES, [size_text(size) for size in SIZES], fontsize=7, rotation=45)
    axes.tick_params(axis="y", labelsize=7)
    axes.grid(alpha=0.3)
    axes.set_ylabel("microseconds", fontsize=8)
    if ran:
        axes.legend(fontsize=8)


def draw_training(axes: Axes, found: Sequence[Measured]) -> None:
    """Draws the times of a training step with both backends."""
    for one in found:
        times = {"Gloo": one.gloo_us / 1e3, "occl": one.occl_us / 1e3}
        axes.bar(list(times), list(times.values()), color=[COLOURS[name] for name in times])
        axes.plot([0.6, 1.4], [times["Gloo"] * TRAINING_BOUND] * 2, color="black", linewidth=2)
    axes.set_ylabel("milliseconds", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(axis="y", alpha=0.3)
