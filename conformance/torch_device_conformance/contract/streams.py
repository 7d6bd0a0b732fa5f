# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for streams: their order, their independence, and the dependencies between them.

If the backend has a delay kernel, a missing dependency is always detected. Otherwise it is detected
only by chance.
"""

import time

import torch
from torch_device_conformance.contract.row import Backend, missing, require, require_equal, row

FILE = "runtime/c10/stream.cc"
GUARD = "DeviceGuardImplInterface: getStream, exchangeStream, getNewStream, synchronizeStream"

# The number of elements for which a kernel takes a noticeable time. Backends without a delay kernel
# use such tensors instead.
MANY = 1 << 20


def slow_value(backend: Backend, value: float) -> torch.Tensor:
    """Returns a zero tensor to which the current stream writes `value` after a delay."""
    x = torch.zeros(MANY, device=backend.device)
    backend.synchronize()
    backend.delay()
    return x.fill_(value)


@row(
    "streams",
    "new",
    requires="torch.Stream creates streams that differ from each other and from the current one",
    implement=GUARD,
    without="work on different streams does not overlap",
    shown_by=FILE,
)
def new(backend: Backend) -> None:
    first, second = backend.stream(), backend.stream()
    require(first != second, "two new streams are equal")
    require(first != backend.current_stream(), "a new stream is the current one")
    require_equal("device", first.device, backend.device)
    require_equal("hash", hash(first) == hash(first), True)


@row(
    "streams",
    "context_restores",
    requires="`with stream:` makes the stream current in the block, then restores the previous one",
    implement="exchangeStream, which returns the stream that was current",
    without="later work runs on the wrong stream",
    shown_by=FILE,
)
def context_restores(backend: Backend) -> None:
    before, side = backend.current_stream(), backend.stream()
    with side:
        require_equal("stream in the block", backend.current_stream(), side)
        inner = backend.stream()
        with inner:
            require_equal("stream in the inner block", backend.current_stream(), inner)
        require_equal("stream after the inner block", backend.current_stream(), side)
    require_equal("stream after the block", backend.current_stream(), before)
    context = getattr(backend.module, "stream", None)
    if context is not None:
        own = backend.module.Stream()
        with context(own):
            require_equal("stream in the module's block", backend.current_stream(), own)
        require_equal("stream after the module's block", backend.current_stream(), before)


@row(
    "streams",
    "order",
    requires="kernels on one stream run in the order of their launches",
    implement="in-order queues",
    without="all results are undefined",
    shown_by="runtime/device/stream.cc",
)
def order(backend: Backend) -> None:
    side = backend.stream()
    with side:
        x = slow_value(backend, 1.0)
        for _ in range(20):
            x.mul_(2).add_(1)
    side.synchronize()
    expected = 1.0
    for _ in range(20):
        expected = expected * 2 + 1
    require_equal("result of 20 kernels on one stream", x[:3], torch.full((3,), expected))


@row(
    "streams",
    "wait_stream",
    requires="wait_stream orders later work on one stream after earlier work on another",
    implement="DeviceGuardImplInterface: record, block",
    without="data races between streams: results of DDP, FSDP and prefetching are wrong",
    shown_by="runtime/c10/guard.cc",
)
def wait_stream(backend: Backend) -> None:
    for _ in range(3):
        side, other = backend.stream(), backend.stream()
        with side:
            x = slow_value(backend, 5.0)
        other.wait_stream(side)
        with other:
            y = x * 2
        other.synchronize()
        require(bool((y == 10).all()), "a stream that waited for another stream read the old value")


@row(
    "streams",
    "synchronize",
    requires="stream.synchronize() waits for the stream's work; query() returns whether it is done",
    implement="synchronizeStream, queryStream",
    without="the host reads values too early",
    shown_by=FILE,
)
def synchronize(backend: Backend) -> None:
    side = backend.stream()
    with side:
        x = slow_value(backend, 3.0)
        delayed = backend.delay()
    if delayed:
        require(not side.query(), "query() is true while a kernel is running")
    side.synchronize()
    require(side.query(), "query() is false after synchronize()")
    require(bool((x == 3).all()), "the kernel's result is missing after synchronize()")


@row(
    "streams",
    "default_is_done_too",
    requires="the default stream can be queried, waited for and compared",
    implement="getDefaultStream",
    without="torch.accelerator.current_stream() fails",
    shown_by=FILE,
)
def default_is_done_too(backend: Backend) -> None:
    current = backend.current_stream()
    x = slow_value(backend, 2.0)
    current.synchronize()
    require(current.query(), "query() of the current stream is false after synchronize()")
    require_equal("a second query of the current stream", backend.current_stream(), current)
    require(bool((x == 2).all()), "the kernel's result is missing after synchronize()")


@row(
    "streams",
    "asynchronous",
    requires="a launch returns before its kernel runs",
    implement="a queue and a worker thread, or the driver's queue",
    without="host and device do not work at the same time",
    shown_by="runtime/device/stream.cc",
    required=False,
)
def asynchronous(backend: Backend) -> None:
    x = torch.ones(16, device=backend.device)
    backend.synchronize()
    if not backend.delay():
        missing(f"torch.{backend.type}._sleep: this row needs a delay kernel")
    x.add_(1)
    require(not backend.current_stream().query(), "the call waited for the previous kernel")
    require_equal("value", x.sum().item(), 32.0)


@row(
    "streams",
    "overlap",
    requires="work on different streams runs at the same time",
    implement="a queue per stream",
    without="using several streams makes nothing faster",
    shown_by="runtime/device/stream.cc",
    required=False,
)
def overlap(backend: Backend) -> None:
    slow, fast = backend.stream(), backend.stream()
    x = torch.ones(16, device=backend.device)
    backend.synchronize()
    with slow:
        if not backend.delay():
            missing(f"torch.{backend.type}._sleep: this row needs a delay kernel")
    with fast:
        x.add_(1)
    deadline = time.monotonic() + 5
    while not fast.query() and time.monotonic() < deadline:
        time.sleep(0.0005)
    finished_first = not slow.query()
    backend.synchronize()
    require(finished_first, "a short kernel waited for a long kernel on another stream")


@row(
    "streams",
    "backward",
    requires="backward runs on the streams used in forward, and the caller's stream waits for it",
    implement="the guard's getStream and record, called on autograd's threads",
    without="gradients are read before they are computed",
    shown_by="runtime/c10/guard.cc",
)
def backward(backend: Backend) -> None:
    side = backend.stream()
    w = torch.ones(1000, device=backend.device, requires_grad=True)
    side.wait_stream(backend.current_stream())
    with side:
        backend.delay()
        loss = (w * 3).sum()
    loss.backward()
    backend.current_stream().wait_stream(side)
    assert w.grad is not None
    require_equal("gradient", w.grad.sum().item(), 3000.0)
