# SPDX-License-Identifier: BSD-3-Clause
"""Eight threads use two devices with four streams each, and check every result.

OPENREG_STRESS_SECONDS sets the duration in seconds. The default is a few seconds: ``./bazelw test
//tests:stress_test --test_env=OPENREG_STRESS_SECONDS=60``.
"""

import os
import random
import threading
import time
from collections.abc import Callable

import torch
from torch import Tensor

THREADS = 8
DEVICES = 2
STREAMS = 4
SECONDS = float(os.environ.get("OPENREG_STRESS_SECONDS", "4"))
N = 512


class Worker:
    """The actions of one thread. All values are small integers, so their sums are exact."""

    def __init__(self, number: int, streams: list[list[torch.Stream]]) -> None:
        self.random = random.Random(number)
        self.streams = streams
        self.steps = 0

    def value(self) -> float:
        return float(self.random.randrange(1, 9))

    def place(self) -> tuple[int, torch.Stream]:
        device = self.random.randrange(DEVICES)
        return device, self.random.choice(self.streams[device])

    def chain_over_streams(self) -> None:
        """Adds to a tensor on several streams in turn. Events order the additions."""
        device, stream = self.place()
        with torch.openreg.stream(stream):
            x = torch.zeros(N, device=f"openreg:{device}")
        total = 0.0
        for _ in range(8):
            following = self.random.choice(self.streams[device])
            if self.random.random() < 0.5:
                following.wait_stream(stream)
            else:
                following.wait_event(stream.record_event())
            stream = following
            value = self.value()
            with torch.openreg.stream(stream):
                x.add_(value)
            x.record_stream(stream)
            total += value
        with torch.openreg.stream(stream):
            assert x.tolist() == [total] * N

    def gradients(self) -> None:
        """Runs a backward pass over two streams."""
        device, first = self.place()
        second = self.random.choice(self.streams[device])
        value = self.value()
        with torch.openreg.stream(first):
            x = torch.full((N,), value, device=f"openreg:{device}", requires_grad=True)
            y = x * 2
        second.wait_stream(first)
        with torch.openreg.stream(second):
            z = (y * y).sum()
            z.backward()
            assert x.grad is not None
            assert x.grad.tolist() == [8 * value] * N

    def peers(self) -> None:
        """Copies back and forth between streams of two devices."""
        device, stream = self.place()
        other = (device + 1) % DEVICES
        value = self.value()
        with (
            torch.openreg.stream(self.random.choice(self.streams[other])),
            torch.openreg.stream(stream),
        ):
            x = torch.full((N,), value, device=f"openreg:{device}")
            y = x.to(f"openreg:{other}").mul_(3).to(f"openreg:{device}") + x
            assert y.tolist() == [4 * value] * N

    def pinned(self) -> None:
        """Copies through pinned memory that is freed immediately."""
        device, stream = self.place()
        value = self.value()
        with torch.openreg.stream(stream):
            moved = torch.full((N,), value).pin_memory().to(f"openreg:{device}", non_blocking=True)
            back = torch.empty(N, pin_memory=True)
            back.copy_(moved * 2, non_blocking=True)
            done = stream.record_event()
        done.synchronize()
        assert back.tolist() == [2 * value] * N

    def short_lives(self) -> None:
        """Allocates and frees memory repeatedly. A new tensor must not contain earlier contents."""
        device, stream = self.place()
        with torch.openreg.stream(stream):
            kept = []
            for index in range(12):
                size = self.random.randrange(1, 4 * N)
                tensor = torch.full((size,), float(index), device=f"openreg:{device}")
                if index % 3 == 0:
                    kept.append((tensor, float(index)))
            for tensor, expected in kept:
                assert tensor.eq(expected).all().item()

    def parallel(self) -> None:
        """Runs a kernel with a team of threads."""
        device, stream = self.place()
        value = self.value()
        with torch.openreg.stream(stream):
            x = torch.full((200_000,), value, device=f"openreg:{device}")
            assert (x * 2 + 1).sum().item() == 200_000 * (2 * value + 1)

    def run(self, end: float) -> None:
        actions: list[Callable[[], None]] = [
            self.chain_over_streams,
            self.gradients,
            self.peers,
            self.pinned,
            self.short_lives,
            self.parallel,
        ]
        while time.monotonic() < end:
            self.random.choice(actions)()
            self.steps += 1


def test_threads_devices_and_streams() -> None:
    streams = [[torch.openreg.Stream(device) for _ in range(STREAMS)] for device in range(DEVICES)]
    workers = [Worker(number, streams) for number in range(THREADS)]
    failures: list[BaseException] = []
    end = time.monotonic() + SECONDS

    def work(worker: Worker) -> None:
        try:
            worker.run(end)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        raise failure
    for device in range(DEVICES):
        torch.openreg.synchronize(device)
    counts = [worker.steps for worker in workers]
    print(f"{sum(counts)} programs in {SECONDS:g} s, of each thread {min(counts)} to {max(counts)}")
    assert min(counts) > 0


def test_an_error_reaches_the_thread_that_waits_for_its_stream() -> None:
    """Some threads' kernels fail. The error must be raised by a wait for the kernel's stream."""
    index = torch.tensor([N], device="openreg")
    torch.ones(N, device="openreg").index_select(0, index - 1)  # the first call waits
    torch.openreg.synchronize()
    seen: list[bool] = []

    def work(fails: bool) -> None:
        stream = torch.openreg.Stream()
        failed = 0
        for _ in range(20):
            with torch.openreg.stream(stream):
                x: Tensor = torch.ones(N, device="openreg")
                if fails:
                    x.index_select(0, index)
                try:
                    stream.synchronize()
                except IndexError:
                    failed += 1
        seen.append(failed == (20 if fails else 0))

    # The pool has more streams than there are threads, so threads do not share a stream.
    threads = [threading.Thread(target=work, args=(number % 2 == 0,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * THREADS
