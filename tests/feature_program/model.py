# SPDX-License-Identifier: BSD-3-Clause
"""The model of random programs: what the device has to compute.

The model is a CPU tensor for each tensor of the device, changed by the same calls. All numbers are
small integers, so that the comparison is exact. Of random numbers the model is the pair (seed,
offset) of each generator: what an eager call draws there is what every other way must draw.
"""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tests.feature_program.operators import DRAWS, Operator

Place = tuple[int, int]  # a stream: its device, and its number in Program.streams

MOST = 10  # values at a time; the oldest goes first
DEVICES = 2
STREAMS = 3  # of each device; number 0 is the default stream


@dataclass(eq=False)
class Memory:
    """What orders the uses of some memory: streams with a use of it since the last write.

    ``users`` is one object for all tensors of the graphs that share a pool, since a replay of one
    graph may write what another one left.
    """

    place: Place | None  # the stream that it was allocated on
    users: dict[Place, torch.Event] = field(default_factory=dict)
    defined: bool = True  # whether the tensors have values: before a replay they have none
    recorded: bool = True  # whether record_stream is called; otherwise the owner's stream waits
    fixed: int = 0  # how many hold its address: graphs, other tensors of DLPack


@dataclass(eq=False)
class Value:
    """A tensor of the model and its counterpart on the device, or in pinned memory."""

    theirs: Tensor
    ours: Tensor
    memory: Memory


@dataclass(eq=False)
class Numbers:
    """The state of a generator. Generators may share one."""

    seed: int = 0
    offset: int = 0


@dataclass(eq=False)
class Generator:
    real: torch.Generator
    device: int
    numbers: Numbers


@dataclass(eq=False)
class Graph:
    """A captured graph: what a replay does to the model, and which memory it uses."""

    real: Any
    device: int
    pool: "GraphPool"
    actions: list[Callable[[], Any]] = field(default_factory=list)
    # What replays use, with the tensor of the device that keeps it.
    uses: list[tuple[Memory, Tensor | None]] = field(default_factory=list)
    outputs: list[Memory] = field(default_factory=list)  # of the pool
    own: list[Memory] = field(default_factory=list)  # pinned memory that replays write
    fails: bool = False  # whether a kernel of each replay fails
    spoilt: bool = False  # whether the capture has to end with an error
    doubtful: bool = False  # whether it may


@dataclass(eq=False)
class GraphPool:
    """Graphs that share memory, in the order of their captures."""

    graphs: list[Graph] = field(default_factory=list)
    users: dict[Place, torch.Event] = field(default_factory=dict)


def attempt(function: Operator, *arguments: Any) -> Any:
    """Return the result, or the exception."""
    try:
        return function(*arguments)
    except (RuntimeError, IndexError, ValueError, NotImplementedError) as error:
        # Its traceback holds tensors.
        return error.with_traceback(None)


@functools.cache
def oracle() -> ThreadPoolExecutor:
    """Return the thread that computes expected values: no mode of a program applies to it."""

    def start() -> None:
        for device in range(DEVICES):
            torch.openreg.set_stream(torch.openreg.Stream(device))

    return ThreadPoolExecutor(1, initializer=start)


@functools.lru_cache(4096)
def drawn(operator: str, size: int, device: int, seed: int, offset: int) -> tuple[Tensor, int]:
    """Return what an eager call draws, and how far it moves the offset."""

    def draw() -> tuple[Tensor, int]:
        generator = torch.Generator(f"openreg:{device}").manual_seed(seed)
        generator.set_offset(offset)
        x = torch.empty(size, device=f"openreg:{device}")
        return DRAWS[operator](x, generator).cpu(), generator.get_offset() - offset

    return oracle().submit(draw).result()


def expect(numbers: Numbers, operator: str, size: int, device: int) -> Tensor:
    """Take numbers out of the model's sequence."""
    values, count = drawn(operator, size, device, numbers.seed, numbers.offset)
    numbers.offset += count
    return values.clone()
