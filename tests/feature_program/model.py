# SPDX-License-Identifier: BSD-3-Clause
"""The model of random programs: the results that the device must produce.

For each device tensor, the model contains a CPU tensor, to which it applies the same calls. All
values are small integers, so the comparison is exact. The model of a random generator is a pair
(seed, offset): every way to draw must return the numbers of an eager call.
"""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tests.feature_program.operators import DRAWS, Operator

Place = tuple[int, int]  # a stream: its device, and its index in Program.streams

MOST = 10  # maximum number of values; when it is exceeded, the oldest value is dropped
DEVICES = 2
STREAMS = 3  # streams per device; number 0 is the default stream


@dataclass(eq=False)
class Memory:
    """The ordering state of a piece of memory: the streams that use it since the last write.

    All tensors in graphs that share a pool also share one ``users`` object, because a replay of one
    graph may overwrite another graph's results.
    """

    place: Place | None  # the stream on which it was allocated
    users: dict[Place, torch.Event] = field(default_factory=dict)
    defined: bool = True  # whether the tensors have values; false before a replay
    recorded: bool = True  # if true, record_stream() is called; if false, the owner's stream waits
    fixed: int = 0  # number of graphs and DLPack consumers that rely on its address


@dataclass(eq=False)
class Value:
    """A tensor in the model, and its counterpart on the device or in pinned memory."""

    theirs: Tensor
    ours: Tensor
    memory: Memory


@dataclass(eq=False)
class Numbers:
    """The state of a generator. Several generators may share a state."""

    seed: int = 0
    offset: int = 0


@dataclass(eq=False)
class Generator:
    real: torch.Generator
    device: int
    numbers: Numbers


@dataclass(eq=False)
class Graph:
    """A captured graph: a replay's effect on the model, and the memory that a replay uses."""

    real: Any
    device: int
    pool: "GraphPool"
    actions: list[Callable[[], Any]] = field(default_factory=list)
    # The memory that replays use, with the device tensor that owns the memory.
    uses: list[tuple[Memory, Tensor | None]] = field(default_factory=list)
    outputs: list[Memory] = field(default_factory=list)  # memory in the pool
    own: list[Memory] = field(default_factory=list)  # pinned memory that replays write to
    fails: bool = False  # whether a kernel fails in each replay
    spoilt: bool = False  # whether the capture must end with an error
    doubtful: bool = False  # whether the capture may end with an error


@dataclass(eq=False)
class GraphPool:
    """Graphs that share memory, in the order of their captures."""

    graphs: list[Graph] = field(default_factory=list)
    users: dict[Place, torch.Event] = field(default_factory=dict)


def attempt(function: Operator, *arguments: Any) -> Any:
    """Calls a function. Returns its result, or the exception that it raised."""
    try:
        return function(*arguments)
    except (RuntimeError, IndexError, ValueError, NotImplementedError) as error:
        # The traceback of the error would keep tensors alive.
        return error.with_traceback(None)


@functools.cache
def oracle() -> ThreadPoolExecutor:
    """Returns the thread that computes expected values. The modes of programs do not affect it."""

    def start() -> None:
        for device in range(DEVICES):
            torch.openreg.set_stream(torch.openreg.Stream(device))

    return ThreadPoolExecutor(1, initializer=start)


@functools.lru_cache(4096)
def drawn(operator: str, size: int, device: int, seed: int, offset: int) -> tuple[Tensor, int]:
    """Returns the numbers that an eager call draws, and by how much it advances the offset."""

    def draw() -> tuple[Tensor, int]:
        generator = torch.Generator(f"openreg:{device}").manual_seed(seed)
        generator.set_offset(offset)
        x = torch.empty(size, device=f"openreg:{device}")
        return DRAWS[operator](x, generator).cpu(), generator.get_offset() - offset

    return oracle().submit(draw).result()


def expect(numbers: Numbers, operator: str, size: int, device: int) -> Tensor:
    """Draws from the model's sequence of random numbers."""
    values, count = drawn(operator, size, device, numbers.seed, numbers.offset)
    numbers.offset += count
    return values.clone()
