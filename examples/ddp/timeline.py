# SPDX-License-Identifier: BSD-3-Clause
"""Reads the work of all devices in training steps from torch.profiler traces, and draws it."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch_openreg.trace.events import CALL, Trace

REDUCTION = "occl::AllReduce"
PHASES = {"forward": "tab:blue", "backward": "tab:green", "optimizer": "tab:purple"}
# The colors of a collective: while its rank waits for another rank, and after all ranks have
# arrived.
WAITING, MOVING = "navajowhite", "tab:orange"
ELEMENT_BYTES = {"Float": 4, "Double": 8, "Half": 2, "BFloat16": 2}


@dataclass(frozen=True)
class Span:
    """A unit of work on the device.

    Attributes:
        rank: the rank of the process.
        step: the step in which the work was queued, starting at 0.
        phase: the part of the step: "forward", "backward", "optimizer", or "" for none of them.
        name: the name of the kernel, copy or fill.
        begin: the start in microseconds, on a clock that all processes of this machine share.
        end: the end on the same clock.
        sequence: for a collective, its number in the group, equal on all ranks; otherwise 0.
        bytes: for a collective, the input bytes of each rank; otherwise 0.
    """

    rank: int
    step: int
    phase: str
    name: str
    begin: float
    end: float
    sequence: int = 0
    bytes: int = 0

    @property
    def communicates(self) -> bool:
        """Whether the work is a collective."""
        return self.name.startswith("occl::")


class Ranges:
    """Finds a named range by time. The ranges do not overlap."""

    def __init__(self, found: Iterable[tuple[float, float, str]]) -> None:
        self._ranges = sorted(found)
        self._begins = [begin for begin, _, _ in self._ranges]

    def at(self, time: float) -> tuple[int, str] | None:
        """Returns the number and the name of the range that contains a time, or None."""
        number = bisect_right(self._begins, time) - 1
        if number < 0 or time > self._ranges[number][1]:
            return None
        return number, self._ranges[number][2]


def spans(trace: Trace, rank: int) -> list[Span]:
    """Returns the work that was queued in ranges named "step", with the phase that queued it.

    Args:
        trace: the trace of one process.
        rank: the rank of this process.
    """
    rows = [row for row in trace.document["traceEvents"] if row.get("ph") == "X"]

    def ranges(names: Iterable[str]) -> Ranges:
        wanted = frozenset(names)
        return Ranges(
            (float(row["ts"]), float(row["ts"]) + float(row["dur"]), str(row["name"]))
            for row in rows
            if row.get("cat") == "user_annotation" and row["name"] in wanted
        )

    steps, phases = ranges(["step"]), ranges(PHASES)
    # A kernel runs later than it is queued, so the time of the queuing call determines its phase.
    queued = {
        int(row["args"]["correlation"]): float(row["ts"]) for row in rows if row.get("cat") == CALL
    }
    collectives: dict[int, dict[str, Any]] = {
        int(row["args"]["correlation"]): row["args"]
        for row in rows
        if row.get("cat") == "kernel" and "Seq" in row["args"]
    }
    found = []
    for work in trace.work:
        step = steps.at(queued.get(work.correlation, -1.0))
        if step is None:
            continue
        phase = phases.at(queued[work.correlation])
        about = collectives.get(work.correlation, {})
        found.append(
            Span(
                rank=rank,
                step=step[0],
                phase=phase[1] if phase else "",
                name=work.name,
                begin=work.begin,
                end=work.end,
                sequence=int(about.get("Seq", 0)),
                bytes=int(about.get("In msg nelems", 0))
                * ELEMENT_BYTES.get(str(about.get("dtype")), 0),
            )
        )
    return found


def hidden_share(all_spans: Sequence[Span]) -> float | None:
    """Computes the share of the total time of gradient reductions that overlaps with backward.

    On each rank, backward ends with the last kernel that it queued, except for reductions. After
    that, the optimizer waits for the reductions. The result is None if there were no reductions.
    """
    ends: dict[tuple[int, int], float] = defaultdict(float)
    for span in all_spans:
        if span.phase == "backward" and not span.communicates:
            ends[span.rank, span.step] = max(ends[span.rank, span.step], span.end)
    reductions = reductions_of(all_spans)
    total = sum(span.end - span.begin for span in reductions)
    hidden = sum(
        max(0.0, min(span.end, ends[span.rank, span.step]) - span.begin) for span in reductions
    )
    return hidden / total if total else None


def bandwidth(all_spans: Sequence[Span]) -> float | None:
    """Computes the bandwidth of gradient reductions in bytes/s; returns None if there were none.

    The time of a reduction is measured on the rank that arrives last, because the others wait for
    it.
    """
    by_number: dict[int, list[Span]] = defaultdict(list)
    for span in reductions_of(all_spans):
        by_number[span.sequence].append(span)
    seconds = 1e-6 * sum(min(s.end - s.begin for s in each) for each in by_number.values())
    return sum(each[0].bytes for each in by_number.values()) / seconds if seconds else None


def reductions_of(all_spans: Iterable[Span]) -> list[Span]:
    """Returns the spans that are gradient reductions."""
    return [span for span in all_spans if span.name == REDUCTION and span.phase == "backward"]


def typical_step(all_spans: Sequence[Span]) -> list[Span]:
    """Returns the spans of the step with the median duration. At least one span is required."""
    by_step: dict[int, list[Span]] = defaultdict(list)
    for span in all_spans:
        by_step[span.step].append(span)

    def length(each: list[Span]) -> float:
        return max(span.end for span in each) - min(span.begin for span in each)

    return sorted(by_step.values(), key=length)[(len(by_step) - 1) // 2]


def draw(all_spans: Sequence[Span], path: Path) -> None:
    """Draws a typical step: the compute stream and the communication stream of each rank.

    Args:
        all_spans: the spans of all ranks, at least one.
        path: the output file; its suffix is the format.
    """
    step = typical_step(all_spans)
    ranks = sorted({span.rank for span in step})
    figure = Figure(figsize=(11, 1.9 + 0.9 * len(ranks)), layout="constrained")
    axes = figure.subplots()
    origin = min(span.begin for span in step)
    came: dict[int, float] = {}  # the time at which the last rank arrived at each collective
    for span in step:
        came[span.sequence] = max(came.get(span.sequence, 0.0), span.begin)
    labels: list[str] = []
    for rank in ranks:
        own = [span for span in step if span.rank == rank]
        draw_rank(axes, len(labels), own, origin, came)
        labels += [f"rank {rank}: computation", "communication"]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(-0.6, len(labels) - 0.4)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds")
    axes.grid(axis="x", alpha=0.3)
    share = hidden_share(step)
    text = "" if share is None else f": {share:.0%} of the all-reduce time overlaps backward"
    axes.set_title(f"One step on {len(ranks)} process{'es' * (len(ranks) > 1)}{text}", fontsize=11)
    colours = {
        **PHASES,
        "communication: waiting for a rank": WAITING,
        "communication: all ranks have arrived": MOVING,
    }
    handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
    figure.savefig(path, dpi=120)


def draw_rank(
    axes: Axes, row: int, own: Sequence[Span], origin: float, came: dict[int, float]
) -> None:
    """Draws the two rows of a rank. The time of its backward is behind both rows."""

    def bars(place: int, found: Iterable[tuple[float, float]], colour: str) -> None:
        pieces = [((begin - origin) / 1e3, (end - begin) / 1e3) for begin, end in found]
        # The edge keeps kernels of a few microseconds visible.
        axes.broken_barh(
            pieces, (place - 0.38, 0.76), facecolors=colour, edgecolor=colour, linewidth=0.4
        )

    backward = [s for s in own if s.phase == "backward" and not s.communicates]
    if backward:
        begin, end = backward[0].begin, max(span.end for span in backward)
        axes.broken_barh(
            [((begin - origin) / 1e3, (end - begin) / 1e3)],
            (row - 0.48, 1.96),
            facecolors=PHASES["backward"],
            alpha=0.12,
        )
    for phase, colour in {**PHASES, "": "tab:gray"}.items():
        bars(
            row, ((s.begin, s.end) for s in own if s.phase == phase and not s.communicates), colour
        )
    collectives = [span for span in own if span.communicates]
    bars(row + 1, ((s.begin, min(s.end, came[s.sequence])) for s in collectives), WAITING)
    bars(row + 1, ((min(s.end, came[s.sequence]), s.end) for s in collectives), MOVING)
