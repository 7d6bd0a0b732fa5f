# SPDX-License-Identifier: BSD-3-Clause
"""The cases of the services benchmark: memory, copies, events, streams and graphs.

The CPU has no streams. The device is compared with what a program on the CPU uses instead: the
clock for an event with timing, a threading.Event for an event without timing, and an empty ``with``
block for a stream switch. Steps without a result return a 0-dim tensor, because all steps must
return a tensor. The replay of a graph is compared with the same program without a graph.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor

from benchmarks.cases import Case, Step, random, read, transformer_pass

#: The number of allocations of each thread in a step with two threads. The number is large, because
#: handing the step to the threads takes longer than one allocation.
ALLOCATIONS = 200

#: The number of operators in a step that a graph replays.
OPERATORS = 200

DONE = torch.zeros(())


def allocation(size: int, device: torch.device) -> Step:
    """Makes a step that allocates and frees a block of the given size."""
    return lambda: torch.empty(size, dtype=torch.uint8, device=device)


def allocations_of_two_threads(size: int, device: torch.device) -> Step:
    """Makes a step in which two threads, each on its own stream, allocate ALLOCATIONS times."""
    begin = threading.Barrier(2)

    def prepare() -> None:
        if device.type != "cpu":
            torch.accelerator.set_stream(torch.Stream(device))

    pool = ThreadPoolExecutor(2, initializer=prepare)

    def work() -> None:
        begin.wait()
        for _ in range(ALLOCATIONS):
            torch.empty(size, dtype=torch.uint8, device=device)

    def step() -> Tensor:
        for done in [pool.submit(work), pool.submit(work)]:
            done.result()
        return torch.empty(size, dtype=torch.uint8, device=device)

    return step


def copy_in(size: int, pinned: bool, device: torch.device) -> Step:
    """Makes a step that copies the given number of bytes from the host to the device."""
    host = random(size // 4)
    if pinned and device.type != "cpu":
        host = host.pin_memory()
    target = torch.empty(size // 4, device=device)
    return lambda: target.copy_(host, non_blocking=pinned)


def copy_out(size: int, pinned: bool, device: torch.device) -> Step:
    """Makes a step that copies the given number of bytes from the device to the host."""
    source = random(size // 4).to(device)
    host = torch.empty(size // 4, pin_memory=pinned and device.type != "cpu")
    return lambda: host.copy_(source, non_blocking=pinned)


def copies_beside_computing(device: torch.device) -> Step:
    """Makes a step that copies 16 MiB in and out during a product; with streams, concurrently."""
    size = 16 << 20
    into, out = copy_in(size, True, device), copy_out(size, True, device)
    x = random(512, 512).to(device)
    if device.type == "cpu":

        def in_turn() -> Tensor:
            into()
            out()
            return x @ x

        return in_turn
    streams = torch.Stream(device), torch.Stream(device)
    torch.accelerator.synchronize(device)  # after this, the inputs of the copies are ready

    def at_once() -> Tensor:
        for stream, copy in zip(streams, (into, out), strict=True):
            with stream:
                copy()
        return x @ x

    return at_once


def _returning(done: Tensor, action: Callable[[], object]) -> Step:
    def step() -> Tensor:
        action()
        return done

    return step


def event_record(device: torch.device) -> Step:
    """Makes a step that records an event on the current stream; the CPU reads the clock."""
    if device.type == "cpu":
        return _returning(DONE, time.perf_counter_ns)
    event = torch.Event(device, enable_timing=True)
    return _returning(DONE, event.record)


def event_query(device: torch.device) -> Step:
    """Makes a step that queries whether an event is complete."""
    if device.type == "cpu":
        return _returning(DONE, threading.Event().is_set)
    event = torch.Event(device)
    event.record()
    return _returning(DONE, event.query)


def event_wait(device: torch.device) -> Step:
    """Makes a step in which a stream waits for another's event; the CPU sets and clears a flag."""
    if device.type == "cpu":
        flag = threading.Event()

        def set_and_wait() -> None:
            flag.set()
            flag.wait()
            flag.clear()

        return _returning(DONE, set_and_wait)
    side, event = torch.Stream(device), torch.Event(device)

    def record_and_wait() -> None:
        event.record()
        side.wait_event(event)

    return _returning(DONE, record_and_wait)


def event_elapsed(device: torch.device) -> Step:
    """Makes a step that reads the time between two events; the CPU subtracts two clock values."""
    if device.type == "cpu":
        first, last = time.perf_counter_ns(), time.perf_counter_ns()
        return _returning(DONE, lambda: (last - first) / 1e6)
    start, end = (torch.Event(device, enable_timing=True) for _ in range(2))
    start.record()
    end.record()
    end.synchronize()
    return _returning(DONE, lambda: start.elapsed_time(end))


def stream_create(device: torch.device) -> Step:
    """Makes a step that gets a stream from the pool; the CPU creates an object."""
    make = object if device.type == "cpu" else partial(torch.Stream, device)
    return _returning(DONE, make)


def stream_switch(device: torch.device) -> Step:
    """Makes a step that enters and exits a stream's context."""
    context = contextlib.nullcontext() if device.type == "cpu" else torch.Stream(device)

    def switch() -> None:
        with context:
            pass

    return _returning(DONE, switch)


def operators(device: torch.device) -> Step:
    """Makes a step that runs a chain of OPERATORS elementwise operators on 16 values."""
    x, y = random(2, 16).to(device)

    def step() -> Tensor:
        z: Tensor = x
        for _ in range(OPERATORS // 4):
            z = ((z + y) * y).sub(x).tanh()
        return z

    return step


def replayed(make: Callable[[torch.device], Step], device: torch.device) -> Step:
    """Makes a step that replays another step as a graph; the CPU, without graphs, runs it."""
    step = make(device)
    if device.type == "cpu":
        return step
    stream, graph = torch.Stream(device), torch.accelerator.Graph()
    for _ in range(2):
        step()  # the first calls to operators do work that cannot be captured
    with stream, graph:
        result = step()

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay


SIZES = {
    "64 B": 64,
    "4 KiB": 4 << 10,
    "256 KiB": 256 << 10,
    "1 MiB": 1 << 20,
    "16 MiB": 16 << 20,
    "64 MiB": 64 << 20,
}
COPIES = {"4 KiB": 4 << 10, "256 KiB": 256 << 10, "16 MiB": 16 << 20, "64 MiB": 64 << 20}

SERVICES = (
    *(
        Case("allocator", f"take {name}", partial(allocation, size), deterministic=False)
        for name, size in SIZES.items()
    ),
    *(
        Case(
            "allocator",
            f"take {name}, two threads, {ALLOCATIONS} each",
            partial(allocations_of_two_threads, size),
            deterministic=False,
        )
        for name, size in SIZES.items()
    ),
    *(
        Case("copies", f"{way} {name}, {kind}", partial(make, size, kind == "pinned"))
        for way, make in (("into", copy_in), ("out of", copy_out))
        for kind in ("pageable", "pinned")
        for name, size in COPIES.items()
    ),
    Case("copies", "both ways beside computing", copies_beside_computing),
    Case("events", "record", event_record),
    Case("events", "query", event_query),
    Case("events", "record and wait", event_wait),
    Case("events", "elapsed", event_elapsed),
    Case("streams", "create", stream_create),
    Case("streams", "switch", stream_switch),
    Case("graphs", f"{OPERATORS} operators, eager", operators),
    Case("graphs", f"{OPERATORS} operators, replay", partial(replayed, operators), bound=0.3),
    Case("graphs", "4 layers of a transformer, eager", partial(read, transformer_pass)),
    Case(
        "graphs",
        "4 layers of a transformer, replay",
        partial(read, partial(replayed, transformer_pass)),
    ),
)
