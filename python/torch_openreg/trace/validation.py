# SPDX-License-Identifier: BSD-3-Clause
"""Finds inconsistencies in a trace."""

from collections.abc import Iterator
from itertools import pairwise

from torch_openreg.trace.events import Trace

#: The tolerance in microseconds: torch writes times with three decimals.
_ROUNDING = 0.002


def faults(trace: Trace) -> Iterator[str]:
    """Yield one sentence per fault. A valid trace has no faults."""
    if trace.dropped:
        yield (
            f"{trace.dropped} records are missing because the profiler ran out of memory: profile "
            "for a shorter time, or give it more memory (docs/profiler.md)"
        )
    elif not trace.work:
        yield (
            "the trace contains no device work: profile with "
            "activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]"
        )
    for correlation, count in trace.calls.items():
        if count > 1:
            yield f"{count} calls have the correlation {correlation}"
    for work in trace.work:
        place = f"{work.name} at {work.begin:.3f} us on device {work.device}, stream {work.stream}"
        if work.duration < 0:
            yield f"{place} ends before it begins"
        if trace.calls and work.correlation not in trace.calls:
            yield f"{place} has no call with correlation {work.correlation}"
        operators = trace.operators
        if operators and work.external_id is not None and work.external_id not in operators:
            yield f"{place} is linked to operator {work.external_id}, which does not exist"
    for (device, stream), row in trace.streams().items():
        for before, after in pairwise(row):
            if after.begin < before.end - _ROUNDING:
                yield (
                    f"{after.name} begins on device {device}, stream {stream} at "
                    f"{after.begin:.3f} us, before {before.name} ends at {before.end:.3f} us"
                )
    yield from _broken_arrows(trace)


def _broken_arrows(trace: Trace) -> Iterator[str]:
    ends: dict[str, set[int]] = {"s": set(), "f": set()}
    for event in trace.document["traceEvents"]:
        if event.get("cat") == "ac2g" and event.get("ph") in ends:
            ends[event["ph"]].add(event["id"])
    for work in trace.work:
        for phase, text in (("s", "begins"), ("f", "ends")):
            if trace.calls and work.correlation not in ends[phase]:
                yield f"{work.name}: no arrow {text} with correlation {work.correlation}"
