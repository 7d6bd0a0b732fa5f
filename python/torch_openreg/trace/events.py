# SPDX-License-Identifier: BSD-3-Clause
"""Reads the device's events from a torch.profiler trace.

torch.profiler exports traces in Chrome's Trace Event Format. Times are in microseconds, and
complete events have phase "X".
"""

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KERNEL, COPY, FILL = "kernel", "gpu_memcpy", "gpu_memset"
WORK = (KERNEL, COPY, FILL)
CALL = "privateuse1_runtime"


@dataclass(frozen=True)
class Work:
    """A kernel, a copy or a fill.

    Attributes:
        category: an element of WORK.
        begin: the start time in microseconds.
        duration: the run time in microseconds.
        correlation: the correlation id of the driver call that queued the work.
        external_id: the id of the operator that made that call; None outside of operators.
    """

    name: str
    category: str
    device: int
    stream: int
    begin: float
    duration: float
    correlation: int
    external_id: int | None
    bytes: int

    @property
    def end(self) -> float:
        """The time in microseconds at which the work ended."""
        return self.begin + self.duration


@dataclass
class Trace:
    """A trace, and the parts of the trace that concern the device.

    Attributes:
        document: the whole trace, as read from the file.
        work: the device's work, sorted by start time.
        calls: the number of driver calls with each correlation id.
        operators: the names of CPU operators by external id.
    """

    document: dict[str, Any]
    work: list[Work] = field(default_factory=list)
    calls: dict[int, int] = field(default_factory=dict)
    operators: dict[int, str] = field(default_factory=dict)

    @property
    def dropped(self) -> int:
        """The number of records that the profiler dropped because it ran out of memory."""
        return int(self.document.get("openreg_dropped_records", 0))

    def streams(self) -> dict[tuple[int, int], list[Work]]:
        """Return the work of each (device, stream), sorted by start time."""
        rows: dict[tuple[int, int], list[Work]] = {}
        for each in self.work:
            rows.setdefault((each.device, each.stream), []).append(each)
        return rows


def read(path: Path) -> Trace:
    """Read a trace.

    Args:
        path: a file written by ``export_chrome_trace`` (.json or .json.gz).

    Raises:
        OSError: if the file cannot be read.
        ValueError: if the file is not such a trace.
        EOFError: if the end of the file is missing. zlib.error: if the file is damaged.
    """
    content = path.read_bytes()
    document = json.loads(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise ValueError(f"{path} has no 'traceEvents': it is not a torch.profiler trace")
    trace = Trace(document)
    try:
        _sort(document["traceEvents"], trace)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"an event in the trace is malformed: {error!r}") from error
    trace.work.sort(key=lambda work: (work.begin, work.end))
    return trace


def _sort(events: Iterable[dict[str, Any]], trace: Trace) -> None:
    for event in events:
        category, arguments = event.get("cat"), event.get("args", {})
        if event.get("ph") != "X":
            continue
        if category in WORK:
            trace.work.append(
                Work(
                    name=event["name"],
                    category=category,
                    device=int(event["pid"]),
                    stream=int(event["tid"]),
                    begin=float(event["ts"]),
                    duration=float(event["dur"]),
                    correlation=int(arguments.get("correlation", 0)),
                    external_id=arguments.get("External id"),
                    bytes=int(arguments.get("bytes", 0)),
                )
            )
        elif category == CALL:
            correlation = int(arguments.get("correlation", 0))
            trace.calls[correlation] = trace.calls.get(correlation, 0) + 1
        elif category == "cpu_op" and "External id" in arguments:
            trace.operators[int(arguments["External id"])] = event["name"]
