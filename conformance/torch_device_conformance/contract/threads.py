# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for Python threads that use the device."""

import threading
import time
from collections.abc import Callable

import torch
from torch_device_conformance.contract.row import Backend, missing, require, require_equal, row


def together(*functions: Callable[[], None]) -> None:
    """Runs each function in a separate thread. Raises their first exception."""
    errors: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(f,), daemon=True) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@row(
    "threads",
    "operators",
    requires="several threads can use the device at the same time",
    implement="a thread-safe allocator and thread-safe queues",
    without="servers crash",
    shown_by="runtime/device/stream.cc",
)
def operators(backend: Backend) -> None:
    def work() -> None:
        for i in range(50):
            x = torch.full((64, 64), float(i % 5), device=backend.device)
            require_equal("a sum", (x @ x).sum().item(), float(i % 5) ** 2 * 64**3)

    together(*[work] * 4)


@row(
    "threads",
    "current_stream",
    requires="each thread has its own current stream and device",
    implement="thread-local state in exchangeStream and exchangeDevice",
    without="threads change the device or stream of each other's work",
    shown_by="runtime/c10/stream.cc",
)
def current_stream(backend: Backend) -> None:
    side = backend.stream()
    seen = []
    with side:
        together(lambda: seen.append(backend.current_stream() == side))
        require_equal("stream of this thread", backend.current_stream(), side)
    require_equal("whether another thread sees this thread's stream", seen, [False])


@row(
    "threads",
    "gil",
    requires="a thread that waits for the device does not block other threads",
    implement="py::gil_scoped_release around every wait",
    without="data loaders and servers stall or deadlock",
    shown_by="python/csrc/module.cc",
    seconds=30,
)
def gil(backend: Backend) -> None:
    backend.synchronize()
    if not backend.delay(300_000_000):
        missing(f"torch.{backend.type}._sleep: this row needs a delay kernel")
    steps = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal steps
        while not stop.is_set():
            steps += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    start = time.monotonic()
    backend.function("synchronize")()
    waited = time.monotonic() - start
    seen = steps
    stop.set()
    thread.join()
    if waited > 0.05:
        require(
            seen >= 5,
            f"another thread made only {seen} steps while synchronize() waited {waited:.2f} s",
        )


@row(
    "threads",
    "backward",
    requires="several threads can run backward passes at the same time",
    implement="hooks and a guard that any thread may call",
    without="training several models in one process fails",
    shown_by="runtime/c10/guard.cc",
)
def backward(backend: Backend) -> None:
    def work() -> None:
        for _ in range(20):
            x = torch.ones(32, 32, device=backend.device, requires_grad=True)
            (x @ x).sum().backward()
            assert x.grad is not None
            require_equal("a gradient", x.grad.sum().item(), 65536.0)

    together(*[work] * 3)
