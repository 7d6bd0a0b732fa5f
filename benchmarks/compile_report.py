# SPDX-License-Identifier: BSD-3-Clause
"""The figures of the compile benchmark as tables, as JSON and as bar charts."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.measurement import quartiles, within
from benchmarks.report import aligned, verdict

MEAN_BOUND = 1.0  # of the geometric mean over all cases


@dataclass(frozen=True)
class Ratio:
    """The time of one way to the time of another: median and quartiles over the rounds."""

    way: str
    bound: float | None
    median: float
    low: float
    high: float

    @property
    def met(self) -> bool | None:
        """Whether the ratio, as printed with two decimals, is within the bound."""
        return within(self.median, self.bound)


def ratio(way: str, bound: float | None, ours: list[float], theirs: list[float]) -> Ratio:
    """Divides the times of one way by those of another, round by round."""
    low, median, high = quartiles([a / b for a, b in zip(ours, theirs, strict=True)])
    return Ratio(way, bound, median, low, high)


@dataclass(frozen=True)
class Row:
    """What was measured of one case.

    Attributes:
        name: of the case.
        times: median of each way, in the unit of the table.
        ratios: of some ways to the table's reference.
        remark: what explains a bound.
        error: why there are no figures; else empty.
    """

    name: str
    times: Mapping[str, float] = field(default_factory=dict)
    ratios: tuple[Ratio, ...] = ()
    remark: str = ""
    error: str = ""


@dataclass(frozen=True)
class Table:
    """Rows that were measured in one way.

    Attributes:
        title: what was measured.
        unit: of the times.
        reference: the way that the others are divided by.
        rows: one for each case.
        mean_of: the way whose ratios have a bound of their geometric mean; empty for none.
    """

    title: str
    unit: str
    reference: str
    rows: Sequence[Row]
    mean_of: str = ""

    @property
    def good(self) -> list[Row]:
        """The rows with figures."""
        return [row for row in self.rows if not row.error]

    @property
    def geometric_mean(self) -> float | None:
        """Of the ratios of `mean_of`; None if there are none."""
        ratios = [r.median for row in self.good for r in row.ratios if r.way == self.mean_of]
        return statistics.geometric_mean(ratios) if ratios else None


def render(table: Table) -> str:
    """A table as aligned text, under its title."""
    good = table.good
    times = list(good[0].times) if good else []
    ways = [each.way for each in good[0].ratios] if good else []
    top, header = ["case"], [""]
    for way in times:
        device, _, mode = way.partition(" ")
        top.append(device)
        header.append(mode)
    for way in ways:
        top += ["ratio of", "", "", ""]
        header += [way, "quartiles", "bound", ""]
    rows = [(*top, ""), (*header, "")]
    for row in table.rows:
        if row.error:
            rows.append((row.name, *["-"] * (len(top) - 1), f"failed: {row.error}"))
            continue
        cells = [f"{row.times[way]:,.1f}" for way in times]
        for each in row.ratios:
            bound = "" if each.bound is None else f"<= {each.bound:.2f}"
            spread = f"{each.low:.2f} - {each.high:.2f}"
            cells += [f"{each.median:.2f}", spread, bound, verdict(each.met)]
        rows.append((row.name, *cells, row.remark))
    title = f"{table.title}; {table.unit}, ratios to {table.reference}"
    lines = [title, "-" * len(title), *aligned(rows)]
    mean = table.geometric_mean
    if mean is not None:
        word = verdict(within(mean, MEAN_BOUND))
        lines.append(
            f"geometric mean of the ratios of {table.mean_of}, {len(good)} cases: {mean:.2f} "
            f"<= {MEAN_BOUND:.2f} {word}"
        )
    return "\n".join(lines)


def document(tables: Sequence[Table], machine: Mapping[str, Any]) -> dict[str, Any]:
    """The tables for a program to read: objects of JSON."""

    def row_of(row: Row) -> dict[str, Any]:
        ratios = [{**asdict(each), "met": each.met} for each in row.ratios]
        return {**asdict(row), "ratios": ratios}

    return {
        "machine": machine,
        "tables": [
            {
                "title": table.title,
                "unit": table.unit,
                "reference": table.reference,
                "geometric_mean": table.geometric_mean,
                "rows": [row_of(row) for row in table.rows],
            }
            for table in tables
        ],
    }


def chart(tables: Sequence[Table], path: Path) -> None:
    """Writes a panel a table: bars of each way's time, divided by that of the reference."""
    # Height in bars, with the gaps between cases; a panel without figures keeps a line.
    heights = [sum(len(row.times) + 1 for row in table.good) + 3 for table in tables]
    figure = Figure(figsize=(10, 1 + 0.16 * sum(heights)), layout="constrained")
    panels = figure.subplots(len(tables), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, table in zip(panels, tables, strict=True):
        ways = list(table.good[0].times) if table.good else []
        for place, way in enumerate(ways):
            centres = [i * (len(ways) + 1) + place for i in range(len(table.good))]
            times = [row.times[way] / row.times[table.reference] for row in table.good]
            bars = axes.barh(centres, times, height=0.9, label=way, color=f"C{place}")
            axes.bar_label(bars, fmt="%.2f", padding=2, fontsize=6)
        for i, row in enumerate(table.good):
            first = i * (len(ways) + 1) - 0.45
            for each in row.ratios:
                if each.bound is not None:
                    middle = first + 0.45 + ways.index(each.way)
                    ends = [middle - 0.45, middle + 0.45]
                    axes.plot([each.bound] * 2, ends, color="black", linewidth=2)
        middles = [i * (len(ways) + 1) + (len(ways) - 1) / 2 for i in range(len(table.good))]
        axes.set_yticks(middles, [row.name for row in table.good], fontsize=8)
        axes.invert_yaxis()
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_title(f"{table.title}: time / {table.reference}", fontsize=9)
        if ways:
            axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.supxlabel("black mark: the bound", fontsize=8)
    figure.savefig(path, dpi=110)
