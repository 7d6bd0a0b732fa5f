# SPDX-License-Identifier: BSD-3-Clause
"""Reports the compile benchmark as tables, as JSON and as bar charts."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.measurement import quartiles, within
from benchmarks.report import aligned, verdict


@dataclass(frozen=True)
class Ratio:
    """The ratio of the times of two variants: its median and quartiles over the rounds."""

    way: str
    bound: float | None
    median: float
    low: float
    high: float

    @property
    def met(self) -> bool | None:
        """Whether the ratio, rounded to two decimals, is within the bound; None without a bound."""
        return within(self.median, self.bound)


def ratio(way: str, bound: float | None, ours: list[float], theirs: list[float]) -> Ratio:
    """Divides the times of one variant by the times of another, round by round."""
    low, median, high = quartiles([a / b for a, b in zip(ours, theirs, strict=True)])
    return Ratio(way, bound, median, low, high)


@dataclass(frozen=True)
class Row:
    """The results of one case.

    Attributes:
        name: the case's name.
        times: the median time of each variant, in the table's unit.
        ratios: the ratios of some variants to the table's reference.
        remark: the explanation of a bound.
        error: why there are no figures; empty if there are figures.
    """

    name: str
    times: Mapping[str, float] = field(default_factory=dict)
    ratios: tuple[Ratio, ...] = ()
    remark: str = ""
    error: str = ""


@dataclass(frozen=True)
class Table:
    """A table. All of its rows have the same variants.

    Attributes:
        title: what was measured.
        unit: the unit of the times.
        reference: the variant whose times are the divisors.
        rows: one row per case.
        mean_of: the variant whose ratios are averaged (geometric mean); empty for none.
        mean_bound: the bound of the geometric mean; None if cases are missing.
    """

    title: str
    unit: str
    reference: str
    rows: Sequence[Row]
    mean_of: str = ""
    mean_bound: float | None = None

    @property
    def good(self) -> list[Row]:
        """The rows with figures."""
        return [row for row in self.rows if not row.error]

    @property
    def geometric_mean(self) -> float | None:
        """The geometric mean of the ratios of `mean_of`; None if no case has such a ratio."""
        ratios = [r.median for row in self.good for r in row.ratios if r.way == self.mean_of]
        return statistics.geometric_mean(ratios) if ratios else None


def render(table: Table) -> str:
    """Formats a table with its title as aligned text."""
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
        header += [way.split()[-1], "quartiles", "bound", ""]
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
        line = f"geometric mean of {table.mean_of}: {mean:.2f}"
        if table.mean_bound is not None:
            line += f"  <= {table.mean_bound:.2f}  {verdict(within(mean, table.mean_bound))}"
        lines.append(line)
    return "\n".join(lines)


def document(tables: Sequence[Table], machine: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tables as JSON objects."""

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
                "geometric_mean_bound": table.mean_bound,
                "rows": [row_of(row) for row in table.rows],
            }
            for table in tables
        ],
    }


def chart(tables: Sequence[Table], path: Path) -> None:
    """Draws a panel per table, with a bar for each variant's time relative to the reference."""
    # The heights of the panels in bars, including the gaps between cases, the title and the axis
    # labels.
    heights = [sum(len(row.times) + 1 for row in table.good) + 3 for table in tables]
    figure = Figure(figsize=(10, 1 + 0.16 * sum(heights)), layout="constrained")
    panels = figure.subplots(len(tables), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, table in zip(panels, tables, strict=True):
        _draw(axes, table)
    figure.supxlabel("black mark: the bound", fontsize=8)
    figure.savefig(path, dpi=110)


def _draw(axes: Axes, table: Table) -> None:
    rows = table.good
    ways = list(rows[0].times) if rows else []
    pitch = len(ways) + 1  # The distance between cases, including a gap.
    # If the machine's speed changes, the median of the ratios differs from the ratio of the
    # medians. The median of the ratios is more accurate, so it replaces the ratio of the medians.
    relative = [
        {way: t / row.times[table.reference] for way, t in row.times.items()}
        | {each.way: each.median for each in row.ratios}
        for row in rows
    ]
    for place, way in enumerate(ways):
        centres = [i * pitch + place for i in range(len(rows))]
        axes.barh(centres, [times[way] for times in relative], height=0.9, label=way)
        for centre, times in zip(centres, relative, strict=True):
            # Put the text at the left end of the bar, where no bound is marked.
            style: dict[str, Any] = {"fontsize": 6, "color": "white", "va": "center"}
            left = axes.get_yaxis_transform()
            axes.text(0.005, centre, f"{times[way]:.2f}", transform=left, **style)
    for i, row in enumerate(rows):
        for each in row.ratios:
            if each.bound is not None:
                middle = i * pitch + ways.index(each.way)
                axes.plot([each.bound] * 2, [middle - 0.45, middle + 0.45], "black", linewidth=2)
    axes.set_yticks([i * pitch + (len(ways) - 1) / 2 for i in range(len(rows))])
    axes.set_yticklabels([row.name for row in rows], fontsize=8)
    axes.set_ylim(len(rows) * pitch - 0.5, -1)
    axes.set_xscale("log", base=2)
    # The axis covers at least 0.5 to 2, so that noise does not look like a result.
    ends = [0.5, 2.0, *(time for times in relative for time in times.values())]
    axes.set_xlim(min(ends) / 1.4, max(ends) * 1.1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_title(f"{table.title}: time / {table.reference}", fontsize=9)
    if ways:
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5))
