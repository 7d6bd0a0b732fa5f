# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for events."""

import time

import torch
from torch_device_conformance.contract.row import (
    Backend,
    missing,
    require,
    require_error,
    row,
)
from torch_device_conformance.contract.streams import slow_value

FILE = "runtime/c10/guard.cc"
GUARD = "DeviceGuardImplInterface: record, block, queryEvent, synchronizeEvent, destroyEvent"

# Seconds after which an event that has not fired counts as broken.
PATIENCE = 10.0


@row(
    "events",
    "query",
    requires="an event is done when the work before it is done, and not earlier",
    implement=GUARD,
    without="allocators and data loaders that poll events wait forever",
    shown_by=FILE,
    seconds=30,
)
def query(backend: Backend) -> None:
    event = torch.Event(backend.device)
    require(event.query(), "an event that was never recorded is not done")
    delayed = backend.delay()
    event.record()
    if delayed:
        require(not event.query(), "the event is done while a kernel before it runs")
    deadline = time.monotonic() + PATIENCE
    while not event.query():
        require(time.monotonic() < deadline, f"the event did not fire within {PATIENCE:g} s")
        time.sleep(0.001)


@row(
    "events",
    "synchronize",
    requires="event.synchronize() returns when the event has fired",
    implement="synchronizeEvent",
    without="the host reads values too early",
    shown_by=FILE,
    seconds=30,
)
def synchronize(backend: Backend) -> None:
    side = backend.stream()
    with side:
        x = slow_value(backend, 4.0)
        event = torch.Event(backend.device)
        event.record()
    event.synchronize()
    require(event.query(), "the event is not done after synchronize()")
    host = torch.empty_like(x, device="cpu")
    with backend.stream():
        host.copy_(x)
    require(bool((host == 4).all()), "the value is not there after synchronize()")


@row(
    "events",
    "wait",
    requires="stream.wait_event delays later work of the stream without blocking the host",
    implement="block",
    without="data races between streams",
    shown_by=FILE,
)
def wait(backend: Backend) -> None:
    for _ in range(3):
        side, other = backend.stream(), backend.stream()
        event = torch.Event(backend.device)
        with side:
            x = slow_value(backend, 5.0)
        event.record(side)
        other.wait_event(event)
        with other:
            y = x + 1
        other.synchronize()
        require(bool((y == 6).all()), "a stream that waited read the old value")


@row(
    "events",
    "elapsed_time",
    requires="elapsed_time returns the duration of the work between two events, in milliseconds",
    implement="elapsedTime; torch.Event(enable_timing=True)",
    without="benchmarks and schedulers that measure time fail",
    shown_by=FILE,
)
def elapsed_time(backend: Backend) -> None:
    first, last = (torch.Event(backend.device, enable_timing=True) for _ in range(2))
    x = torch.ones(1 << 20, device=backend.device)
    backend.synchronize()
    before = time.monotonic()
    first.record()
    delayed = backend.delay()
    for _ in range(10):
        x.add_(1)
    last.record()
    last.synchronize()
    wall = (time.monotonic() - before) * 1e3
    found = first.elapsed_time(last)
    require(found > 0, f"{found} ms between two events with kernels between them")
    require(found <= wall * 1.05 + 1, f"{found:.3f} ms between events, {wall:.3f} ms on the clock")
    if delayed:
        require(found > wall / 4, f"{found:.3f} ms between events, {wall:.3f} ms on the clock")


@row(
    "events",
    "timing_disabled",
    requires="elapsed_time of events without timing raises an error",
    implement="a check in elapsedTime",
    without="elapsed_time returns a meaningless number",
    shown_by=FILE,
)
def timing_disabled(backend: Backend) -> None:
    first, last = (torch.Event(backend.device, enable_timing=False) for _ in range(2))
    first.record()
    last.record()
    last.synchronize()
    require_error("elapsed_time without timing", lambda: first.elapsed_time(last))


@row(
    "events",
    "record_again",
    requires="an event that is recorded again refers to the new position",
    implement="record on an event that was recorded before",
    without="loops that reuse events race",
    shown_by=FILE,
)
def record_again(backend: Backend) -> None:
    event = torch.Event(backend.device)
    event.record()
    event.synchronize()
    delayed = backend.delay()
    if not delayed:
        missing(f"torch.{backend.type}._sleep: this row needs a delay kernel")
    event.record()
    require(not event.query(), "the event still refers to its first position")
    event.synchronize()
