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
from torch_device_conformance.subject.delay import LONG, delay_kernel

FILE = "runtime/c10/guard.cc"
GUARD = "DeviceGuardImplInterface: record, block, queryEvent, synchronizeEvent, destroyEvent"

# An event must complete within this many seconds.
PATIENCE = 10.0


def record_late(backend: Backend, event: torch.Event) -> bool:
    """Records an event after a delay kernel. Returns whether the kernel must still be running.

    Without such a kernel, the result is false. It is also false if record() waited for the kernel,
    which is slow but correct.
    """
    start = time.monotonic_ns()
    delayed = backend.delay()
    event.record()
    return delayed and time.monotonic_ns() - start < LONG // 2


@row(
    "events",
    "query",
    requires="an event completes when the work before it completes, and not earlier",
    implement=GUARD,
    without="allocators and data loaders that poll events wait forever",
    shown_by=FILE,
    seconds=30,
)
def query(backend: Backend) -> None:
    event = torch.Event(backend.device)
    require(event.query(), "query() is false for an event that was never recorded")
    if record_late(backend, event):
        require(not event.query(), "query() is true while a kernel before the event is running")
    deadline = time.monotonic() + PATIENCE
    while not event.query():
        require(time.monotonic() < deadline, f"the event did not complete within {PATIENCE:g} s")
        time.sleep(0.001)


@row(
    "events",
    "synchronize",
    requires="event.synchronize() returns when the event has completed",
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
    require(event.query(), "query() is false after event.synchronize()")
    host = torch.empty_like(x, device="cpu")
    with backend.stream():
        host.copy_(x)
    require(bool((host == 4).all()), "the kernel's result is missing after event.synchronize()")


@row(
    "events",
    "wait",
    requires="stream.wait_event delays later work on the stream without blocking the host",
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
        require(bool((y == 6).all()), "a stream that waited for an event read the old value")


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
    times = f"elapsed_time is {found:.3f} ms, but the host's clock measured {wall:.3f} ms"
    require(found > 0, f"elapsed_time is {found} ms although kernels ran between the events")
    require(found <= wall * 1.05 + 1, times)
    if delayed:
        require(found > wall / 4, times)


@row(
    "events",
    "timing_disabled",
    requires="elapsed_time raises an error for events without timing",
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
    without="data races in loops that reuse events",
    shown_by=FILE,
)
def record_again(backend: Backend) -> None:
    event = torch.Event(backend.device)
    event.record()
    event.synchronize()
    if record_late(backend, event):
        require(not event.query(), "query() still refers to the event's first recording")
    elif delay_kernel(backend.device) is None:
        missing(f"torch.{backend.type}._sleep: this row needs a delay kernel")
    event.synchronize()
