# SPDX-License-Identifier: BSD-3-Clause
"""Summarizes device time by kernel and by stream, and the overlap of copies with kernels."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torch_openreg.trace.events import COPY, KERNEL, Trace, Work


@dataclass(frozen=True)
class Kind:
    """The totals of all work with the same name; times are in microseconds."""

    name: str
    count: int
    total: float
    longest: float


@dataclass(frozen=True)
class Row:
    """The work of one stream; times are in microseconds."""

    device: int
    stream: int
    count: int
    busy: float
    idle: float  # between the stream's first and last work


@dataclass(frozen=True)
class Summary:
    """The summary of one trace.

    Attributes:
        span: microseconds from the start of the first work to the end of the last, on any stream.
        overlap: microseconds in which a copy and a kernel ran at the same time.
        copies: microseconds in which a copy ran.
    """

    kinds: list[Kind]
    rows: list[Row]
    span: float
    overlap: float
    copies: float

    def lines(self, top: int) -> list[str]:
        """Return the summary as a table.

        Args:
            top: the number of names to list; one more line summarizes the rest.
        """
        total = sum(kind.total for kind in self.kinds)
        lines = [
            f"{'name':<48}{'count':>7}{'total us':>12}{'share':>8}{'mean us':>10}{'max us':>10}"
        ]
        shown = self.kinds[:top]
        rest = self.kinds[top:]
        if rest:
            shown = [
                *shown,
                Kind(
                    f"({len(rest)} more)",
                    sum(kind.count for kind in rest),
                    sum(kind.total for kind in rest),
                    max(kind.longest for kind in rest),
                ),
            ]
        for kind in shown:
            share = 100 * kind.total / total if total else 0.0
            name = kind.name if len(kind.name) < 48 else kind.name[:44] + "..."
            lines.append(
                f"{name:<48}{kind.count:>7}{kind.total:>12.1f}{share:>7.1f}%"
                f"{kind.total / kind.count:>10.1f}{kind.longest:>10.1f}"
            )
        lines += ["", f"{'stream':<24}{'count':>7}{'busy us':>12}{'idle us':>12}{'idle':>8}"]
        for row in self.rows:
            idle = 100 * row.idle / (row.busy + row.idle) if row.busy + row.idle else 0.0
            name = f"device {row.device}, stream {row.stream}"
            lines.append(f"{name:<24}{row.count:>7}{row.busy:>12.1f}{row.idle:>12.1f}{idle:>7.1f}%")
        part = 100 * self.overlap / self.copies if self.copies else 0.0
        lines += [
            "",
            f"from first to last work: {self.span:.1f} us; copies: {self.copies:.1f} us, of which "
            f"{part:.1f}% at the same time as kernels",
        ]
        return lines


Spans = list[tuple[float, float]]


def _union(work: Iterable[Work]) -> Spans:
    """Return the intervals in which at least one element of ``work`` ran."""
    spans: Spans = []
    for begin, end in sorted((each.begin, each.end) for each in work):
        if spans and begin <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((begin, end))
    return spans


def _length(spans: Spans) -> float:
    return sum(end - begin for begin, end in spans)


def _common(left: Spans, right: Spans) -> float:
    total, i, j = 0.0, 0, 0
    while i < len(left) and j < len(right):
        begin = max(left[i][0], right[j][0])
        end = min(left[i][1], right[j][1])
        total += max(0.0, end - begin)
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return total


def summarize(trace: Trace) -> Summary:
    """Summarize a trace."""
    by_name: dict[str, list[float]] = defaultdict(list)
    for work in trace.work:
        by_name[work.name].append(work.duration)
    kinds = [Kind(name, len(each), sum(each), max(each)) for name, each in by_name.items()]
    kinds.sort(key=lambda kind: -kind.total)
    rows = []
    for (device, stream), row in sorted(trace.streams().items()):
        busy = _length(_union(row))
        span = max(work.end for work in row) - min(work.begin for work in row)
        rows.append(Row(device, stream, len(row), busy, span - busy))
    copies = _union(work for work in trace.work if work.category == COPY)
    kernels = _union(work for work in trace.work if work.category == KERNEL)
    begin = min((work.begin for work in trace.work), default=0.0)
    end = max((work.end for work in trace.work), default=0.0)
    return Summary(kinds, rows, end - begin, _common(copies, kernels), _length(copies))


def draw(trace: Trace, path: Path, top: int) -> None:
    """Plot the streams over time, and the total time of the names with the largest share.

    Args:
        trace: the trace to plot.
        path: the image to write (.png, .svg, .pdf).
        top: the number of names with their own color.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    summary = summarize(trace)
    colors = {
        kind.name: plt.get_cmap("tab20")(i % 20) for i, kind in enumerate(summary.kinds[:top])
    }
    rows = trace.streams()
    figure, (timeline, bars) = plt.subplots(
        2, 1, figsize=(12, 3 + 0.5 * len(rows) + 0.3 * len(colors)), layout="constrained"
    )
    first = min((work.begin for work in trace.work), default=0.0)
    for y, (_, row) in enumerate(sorted(rows.items())):
        timeline.broken_barh(
            [(work.begin - first, work.duration) for work in row],
            (y - 0.4, 0.8),
            facecolors=[colors.get(work.name, "lightgray") for work in row],
        )
    timeline.set_yticks(
        range(len(rows)), [f"device {device}, stream {stream}" for device, stream in sorted(rows)]
    )
    timeline.set_xlabel("microseconds")
    names = list(colors)[::-1]
    totals = {kind.name: kind.total for kind in summary.kinds}
    bars.barh(names, [totals[name] for name in names], color=[colors[name] for name in names])
    bars.set_xlabel("total microseconds")
    figure.savefig(path)
    plt.close(figure)
