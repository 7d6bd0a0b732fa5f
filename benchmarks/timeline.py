# SPDX-License-Identifier: BSD-3-Clause
"""Runs copies and computation on three streams, times them with events, and draws the streams."""

from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure

from benchmarks.cases import random

LANES = "copies in", "computation", "copies out"
COLOURS = "tab:blue", "tab:green", "tab:orange"


@dataclass(frozen=True)
class Span:
    """The time span of one operation on a stream.

    Attributes:
        lane: an element of LANES.
        start: the start in milliseconds after the first event.
        end: the end in milliseconds after the first event.
    """

    lane: str
    start: float
    end: float


def record(device: torch.device, chunks: int, size: int) -> list[Span]:
    """Runs batches through copy in, exp and copy out. Each step has its own stream.

    Args:
        device: an accelerator.
        chunks: the number of batches, at least two.
        size: the number of rows and columns of a float32 batch.

    Returns:
        The spans of all steps of all batches, sorted by lane.
    """
    streams = [torch.Stream(device) for _ in LANES]
    host = [random(size, size).pin_memory() for _ in range(chunks)]
    results = [torch.empty(size, size, pin_memory=True) for _ in range(chunks)]
    inputs = [torch.empty(size, size, device=device) for _ in range(chunks)]
    outputs = [torch.empty(size, size, device=device) for _ in range(chunks)]
    torch.accelerator.synchronize(device)
    origin = torch.Event(device, enable_timing=True)
    origin.record(streams[0])
    marks: dict[str, list[tuple[torch.Event, torch.Event]]] = {lane: [] for lane in LANES}
    for number in range(chunks):
        for lane, stream in zip(LANES, streams, strict=True):
            start, end = (torch.Event(device, enable_timing=True) for _ in range(2))
            if lane != LANES[0]:
                before = marks[LANES[LANES.index(lane) - 1]][number][1]
                stream.wait_event(before)
            with stream:
                start.record(stream)
                if lane == "copies in":
                    inputs[number].copy_(host[number], non_blocking=True)
                elif lane == "computation":
                    torch.exp(inputs[number], out=outputs[number])  # takes about as long as a copy
                else:
                    results[number].copy_(outputs[number], non_blocking=True)
                end.record(stream)
            marks[lane].append((start, end))
    torch.accelerator.synchronize(device)
    return [
        Span(lane, origin.elapsed_time(start), origin.elapsed_time(end))
        for lane in LANES
        for start, end in marks[lane]
    ]


def overlap(spans: list[Span]) -> float:
    """Returns the milliseconds in which computation ran at the same time as at least one copy."""
    total = 0.0
    for computing in (span for span in spans if span.lane == "computation"):
        done = computing.start  # the time up to which the overlap has been counted
        for copy in sorted(spans, key=lambda span: span.start):
            if copy.lane != computing.lane:
                end = min(computing.end, copy.end)
                total += max(0.0, end - max(done, copy.start))
                done = max(done, end)
    return total


def draw(spans: list[Span], path: Path) -> None:
    """Draws one lane of bars per stream.

    Args:
        spans: the spans of all lanes.
        path: the output file; its suffix is the format.
    """
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    axes = figure.subplots()
    for place, (lane, colour) in enumerate(zip(LANES, COLOURS, strict=True)):
        bars = [(span.start, span.end - span.start) for span in spans if span.lane == lane]
        axes.broken_barh(bars, (place - 0.4, 0.8), facecolors=colour, edgecolor="white")
    axes.set_yticks(range(len(LANES)), LANES)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds, from events of the three streams")
    axes.set_title(f"copies overlap computation for {overlap(spans):.1f} ms", fontsize=10)
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=110)
