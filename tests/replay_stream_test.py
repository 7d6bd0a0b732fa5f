# SPDX-License-Identifier: BSD-3-Clause
"""Compiled functions replay captured graphs on several streams, threads and devices."""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.testing import assert_close

from tests.kernel_cache import own_cache as own_cache
from tests.replay_compiler import captures, random
from tests.replay_compiler import fresh_compiler as fresh_compiler
from tests.replay_compiler import replaying as replaying


def test_within_a_graph_of_the_program(replaying: Callable[[Any], Any]) -> None:
    """If the program is capturing a graph, a compiled function adds its kernels to that graph."""
    compiled = replaying(lambda x: (x * 2).sin())
    x = random(6)
    for _ in range(3):
        compiled(x)
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        y = compiled(x)
    x.copy_(random(6))
    graph.replay()
    assert_close(y, (x * 2).sin())
    assert_close(compiled(x), (x * 2).sin())


def test_streams(replaying: Callable[[Any], Any]) -> None:
    """A replay on one stream must not overwrite a result that another stream still reads."""
    compiled = replaying(lambda x: x * 2)
    x = random(100_000)
    for _ in range(3):
        compiled(x)
    streams = [torch.openreg.Stream() for _ in range(3)]
    torch.openreg.synchronize()
    sums = []
    for number in range(12):
        with torch.openreg.stream(streams[number % 3]):
            given = torch.full_like(x, float(number))
            result = compiled(given)
            torch.openreg._sleep(1_000_000)  # without a wait, the next replay would run first
            sums.append((number, result + 1))
            del result
    torch.openreg.synchronize()
    for number, result in sums:
        assert (result == 2 * number + 1).all()


def test_a_stream_of_the_program_may_go(replaying: Callable[[Any], Any]) -> None:
    compiled = replaying(lambda x: x * 2)
    for _ in range(6):
        x = random(10)
        with torch.openreg.stream(torch.openreg.Stream()):
            assert_close(compiled(x), x * 2)
    assert captures() > 0


def test_threads(replaying: Callable[[Any], Any]) -> None:
    compiled = replaying(lambda x: (x * 2).cumsum(0))
    x = random(50)
    for _ in range(3):
        compiled(x)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            with torch.openreg.stream(torch.openreg.Stream()):
                for number in range(60):
                    given = torch.full((50,), float(seed * 100 + number), device="openreg")
                    result = compiled(given)
                    assert_close(result, (given * 2).cumsum(0))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_a_thread_that_compiles() -> None:
    """The policy for graphs applies to all threads, although torch's settings are thread-local."""
    before = captures()

    def work() -> None:
        compiled = torch.compile(lambda x: x * 3, mode="reduce-overhead")
        for _ in range(3):
            compiled(torch.ones(3, device="openreg"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert captures() > before


def test_each_device(replaying: Callable[[Any], Any]) -> None:
    compiled = replaying(lambda x: (x * 2).sum())
    for index in (0, 1):
        for _ in range(4):
            x = torch.randn(9, device=f"openreg:{index}")
            result = compiled(x)
            assert result.device == x.device
            assert_close(result, (x * 2).sum())
    assert captures() == 4
    assert torch.openreg.current_device() == 0
