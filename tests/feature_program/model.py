# SPDX-License-Identifier: BSD-3-Clause
"""The model of random programs: the results that the device must produce.

The model has a CPU tensor for each device tensor, and applies the same calls to it. All values are
small integers, so the comparison is exact. For random numbers, the model is the pair (seed, offset)
of each generator: other ways to draw must give the same numbers as an eager call.
"""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tests.feature_program.operators import DRAWS, Operator

Place = tuple[int, int]  # a stream: its device and its index in Program.streams

MOST = 10  # maximum number of values; the oldest is dropped first
DEVICES = 2
STREAMS = 3  # per device; number 0 is the default stream


@dataclass(eq=False)
class Memory:
    """The ordering state of some memory: the streams that have used it since the last write.

    ``users`` is one object for all tensors in graphs that share a pool, because a replay of one
    graph may overwrite another graph's results.
    """

    place: Place | None  # the stream of its allocation
    users: dict[Place, torch.Event] = field(default_factory=dict)
    defined: bool = True  # whether the tensors have values; before a replay they do not
    recorded: bool = True  # whether record_stream is called; otherwise the owner's stream waits
    fixed: int = 0  # number of holders of its address: graphs, DLPack consumers


@dataclass(eq=False)
class Value:
    """A tensor in the model, and its counterpart on the device or in pinned memory."""

    theirs: Tensor
    ours: Tensor
    memory: Memory


@dataclass(eq=False)
class Numbers:
    """The state of a generator. Several generators may share one."""

    seed: int = 0
    offset: int = 0


@dataclass(eq=False)
class Generator:
    real: torch.Generator
    device: int
    numbers: Numbers


@dataclass(eq=False)
class Graph:
    """A captured graph: the effect of a replay on the model, and the memory that it uses."""

    real: Any
    device: int
    pool: "GraphPool"
    actions: list[Callable[[], Any]] = field(default_factory=list)
    # The memory that replays use, with the device tensor that owns it.
    uses: list[tuple[Memory, Tensor | None]] = field(default_factory=list)
    outputs: list[Memory] = field(default_factory=list)  # memory in the pool
    own: list[Memory] = field(default_factory=list)  # pinned memory that replays write to
    fails: bool = False  # whether a kernel fails in each replay
    spoilt: bool = False  # whether the capture must end with an error
    doubtful: bool = False  # whether it may end with an error


@dataclass(eq=False)
class GraphPool:
    """Graphs that share memory, in order of capture."""

    graphs: list[Graph] = field(default_factory=list)
    users: dict[Place, torch.Event] = field(default_factory=dict)


def attempt(function: Operator, *arguments: Any) -> Any:
    """Calls a function. Returns its result, or the exception that it raised."""
    try:
        return function(*arguments)
    except (RuntimeError, IndexError, ValueError, NotImplementedError) as error:
        # The error's traceback would keep tensors alive.
        return error.with_traceback(None)


@functools.cache
def oracle() -> ThreadPoolExecutor:
    """Returns the thread that computes expected values. No mode of a program applies to it."""

    def start() -> None:
        for device in range(DEVICES):
            torch.openreg.set_stream(torch.openreg.Stream(device))

    return ThreadPoolExecutor(1, initializer=start)


@functools.lru_cache(4096)
def drawn(operator: str, size: int, device: int, seed: int, offset: int) -> tuple[Tensor, int]:
    """Returns the numbers that an eager call draws, and how far it advances the offset."""

    def draw() -> tuple[Tensor, int]:
        generator = torch.Generator(f"openreg:{device}").manual_seed(seed)
        generator.set_offset(offset)
        x = torch.empty(size, device=f"openreg:{device}")
        return DRAWS[operator](x, generator).cpu(), generator.get_offset() - offset

    return oracle().submit(draw).result()


def expect(numbers: Numbers, operator: str, size: int, device: int) -> Tensor:
    """Draws from the model's sequence."""
    values, count = drawn(operator, size, device, numbers.seed, numbers.offset)
    numbers.offset += count
    return values.clone()
