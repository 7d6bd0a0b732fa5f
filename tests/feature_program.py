# SPDX-License-Identifier: BSD-3-Clause
"""Programs that mix the features of the device, and the model that says what they compute.

A program is a list of steps; a step is the name of a method of ``Program`` that ``rule`` decorates,
and its arguments. To cover another feature, add a rule: hypothesis then draws it.

The model is a CPU tensor for each tensor of the device, changed by the same calls. All numbers are
small integers, so that the comparison is exact. Of random numbers the model is the pair (seed,
offset) of each generator: what an eager call draws there is what every other way must draw.

Steps run with the least ordering that the documentation asks for. ``Memory`` knows which streams
use a piece of memory, ``order`` makes the next user wait for them, and nothing else waits. A kernel
that fails leaves its error pending; ``failed`` has the streams with such an error, and the first
wait for one of them must raise it, once.

Each step leaves the statistics of the allocator consistent. At its end a program compares all
values, gives everything back, and must then hold no more memory than when it began.
"""

import contextlib
import copy
import dataclasses
import functools
import gc
import pickle
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import torch
from torch import Tensor

from tests import peer
from tests.peer import Peer

Step = tuple[str, dict[str, Any]]
Place = tuple[int, int]  # a stream: its device, and its number in Program.streams
Operator = Callable[..., Any]

MOST = 10  # values at a time; the oldest goes first
DEVICES = 2
STREAMS = 3  # of each device; number 0 is the default stream
PATIENCE = 10.0  # seconds until memory is taken to be lost

#: Of each rule: its name and the strategy of its arguments.
RULES: dict[str, st.SearchStrategy[Step]] = {}
RULES_OF_PROCESSES: dict[str, st.SearchStrategy[Step]] = {}  # slower ones

# What rules choose from. Numbers select one of those that exist, modulo how many there are.
some = st.integers(0, 7)
devices = st.integers(0, DEVICES - 1)
streams = st.integers(0, STREAMS - 1)
flags = st.booleans()


def rule(**arguments: st.SearchStrategy[Any]) -> Callable[[Operator], Operator]:
    """Have programs call the method with such arguments."""

    def register(method: Operator) -> Operator:
        name = method.__name__
        RULES[name] = st.tuples(st.just(name), st.fixed_dictionaries(arguments))
        return method

    return register


def rule_of_processes(**arguments: st.SearchStrategy[Any]) -> Callable[[Operator], Operator]:
    """Have programs of several processes call the method, too."""
    register = rule(**arguments)

    def move(method: Operator) -> Operator:
        register(method)
        RULES_OF_PROCESSES[method.__name__] = RULES.pop(method.__name__)
        return method

    return move


class Missing(Exception):
    """What a step wants to use does not exist. Raised before the step does anything."""


class GivenUp(Exception):
    """Raised by a program inside of a capture."""


# --------------------------------------------------------------------------------------- operators


# A kernel in Python: the thread that runs it takes the GIL. Only operators of torch are queued.
library = torch.library.Library("aten", "IMPL")
with warnings.catch_warnings(action="ignore"):
    library.impl("trace", lambda x: x.diagonal().sum(), "CPU", allow_override=True)


def wrap(x: Tensor) -> Tensor:
    return x.remainder(97)


VIEWS: dict[str, Operator] = {
    "all": lambda x, n: x[:],
    "detach": lambda x, n: x.detach(),
    "flatten": lambda x, n: x.view(-1),
    "narrow": lambda x, n: x[n:],
    "step": lambda x, n: x[..., n % 2 :: 2],
    "transpose": lambda x, n: x.transpose(0, -1),
}


def indices(x: Tensor) -> Tensor:
    return torch.empty(0, dtype=torch.int64, device=x.device)


# New tensors.
FUNCTIONS: dict[str, Operator] = {
    "add": lambda x: wrap(x + 1),
    "autocast": lambda x: x.float().remainder(3).view(-1, 1) @ x.float().view(1, -1)[:, :1],
    "cat": lambda x: torch.cat([x, x]),
    "clone": torch.clone,
    "cumsum": lambda x: wrap(x.cumsum(-1)),
    "double": torch.Tensor.double,
    "large": lambda x: wrap(torch.arange(70_000, device=x.device).add_(x.sum().long())).sum() % 97,
    "kthvalue": lambda x: x.flatten().kthvalue(1).values,
    "mask": lambda x: x[x > 3],
    "median": lambda x: x.flatten().median(),
    "nonzero": torch.nonzero,
    "sort": lambda x: x.sort(dim=-1, stable=True).values,
    "square": lambda x: wrap(x * x),
    "unique": torch.unique,
}
# Operators that wait, for sizes or for a copy of host memory.
WAITING = {"gradient", "host_argument", "index_put_", "large", "mask", "nonzero", "out", "unique"}
# Functions that can be captured.
QUEUED: dict[str, Operator] = {name: FUNCTIONS[name] for name in ("add", "clone", "square")}
CHANGES: dict[str, Operator] = {
    "add_": lambda x, n: x.add_(n).remainder_(97),
    "copy_": lambda x, n: x.copy_(wrap(x + n)),
    "fill_": lambda x, n: x.fill_(n),
    "foreach": lambda x, n: torch._foreach_add_([x], n),
    "index_put_": lambda x, n: x.index_put_((x > n,), torch.full((), n, device=x.device).to(x)),
    "out": lambda x, n: torch.neg(x, out=x),
    "zero_": lambda x, n: x.zero_(),
}
# Functions of a leaf, whose gradient is compared.
GRADIENTS: dict[str, Operator] = {
    "cumsum": lambda x: x.cumsum(-1) * x,
    "index": lambda x: x.flatten()[torch.tensor([0, 0, -1], device=x.device)] * 2,
    "matmul": lambda x: x.view(-1, 1) @ x.view(1, -1),
    "median": lambda x: x.median() + 2 * x.flatten().median(0).values,
    "product": lambda x: x * x * 3,
    "sort": lambda x: x.sort(stable=True).values * x,
    "where": lambda x: torch.where(x > 2, x, x * 2),
}
# What spoils a tensor that a backward pass needs; torch must notice.
SPOILS: dict[str, Operator] = {
    "nothing": lambda x: None,
    "add_": lambda x: x.add_(1),
    "foreach": lambda x: torch._foreach_mul_([x], 3.0),
    "out": lambda x: torch.neg(x.detach(), out=x.detach()),
}
DRAWS: dict[str, Operator] = {
    "bernoulli_": lambda x, g: x.bernoulli_(0.5, generator=g),
    "random_": lambda x, g: x.random_(0, 97, generator=g),
    "randperm": lambda x, g: x.copy_(torch.randperm(len(x), generator=g, device=x.device)),
}
OUTS: dict[str, Operator] = {
    "add": lambda x, out: torch.add(x, 1, out=out),
    "cumsum": lambda x, out: torch.cumsum(x.flatten(), 0, out=out),
    "kthvalue": lambda x, out: torch.kthvalue(x.flatten(), 1, out=(out, indices(x)))[0],
    "sort": lambda x, out: torch.sort(x.flatten(), stable=True, out=(out, indices(x)))[0],
}


# ------------------------------------------------------------------------------------------- model


@dataclass(eq=False)
class Memory:
    """What orders the uses of some memory: streams with a use of it since the last write.

    ``users`` is one object for all tensors of the graphs that share a pool, since a replay of one
    graph may write what another one left.
    """

    place: Place | None  # the stream that it was allocated on
    users: dict[Place, torch.Event] = field(default_factory=dict)
    defined: bool = True  # whether the tensors have values: before a replay they have none
    recorded: bool = True  # whether record_stream is called; else the owner's stream waits
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


#: Calls that were made, with all that may tell one from another.
called: set[tuple[Any, ...]] = set()


def modes() -> tuple[bool, ...]:
    """Return the modes of this thread."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("openreg"),
    )


def looks(x: Tensor) -> tuple[Any, ...]:
    """Return what a call can see of a tensor besides its elements."""
    return x.device, x.dtype, x.shape, x.stride(), x.storage_offset(), x.is_inference()


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


@functools.cache
def helper() -> ThreadPoolExecutor:
    """Return the second thread that steps run on."""
    return ThreadPoolExecutor(1)


@functools.cache
def other() -> Peer:
    """Return another process; it ends with this one."""
    process = Peer()
    process.call(gc.freeze)  # it collects garbage when it drops something
    return process


@functools.cache
def warm_up(device: int) -> None:
    """Call what is captured once before: the first call of some operators waits."""

    def call() -> None:
        generator = torch.Generator(f"openreg:{device}")
        for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8, torch.bfloat16):
            x = torch.ones(8, dtype=dtype, device=f"openreg:{device}")
            for function in QUEUED.values():
                function(x)
            torch.add(x.add_(1).remainder_(97), 1, out=x.double())
        for draw in DRAWS.values():
            draw(x.float(), generator)
        x[:1].float().index_select(0, torch.zeros(1, dtype=torch.int64, device=x.device))
        torch.openreg.current_stream(device).synchronize()

    oracle().submit(call).result()


def captured_operations() -> st.SearchStrategy[tuple[str, int, int]]:
    """Return what a capture consists of: methods of Program, and two numbers for each."""
    prefix, rest = "captured_", ("captured_value", "captured_result")
    names = [name for name in vars(Program) if name.startswith(prefix) and name not in rest]
    return st.tuples(st.sampled_from(names), some, some)


# ----------------------------------------------------------------------------------------- program


class Program:
    """The state of a program while it runs."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.pinned: list[Value] = []
        self.made = 0
        self.streams: dict[Place, torch.Stream] = {}
        self.failed: set[Place] = set()
        self.way = "event"  # how a stream waits for another one
        self.worker = 0  # 1: steps run on the helper thread
        self.current = [[0] * DEVICES, [0] * DEVICES]  # streams of each worker
        self.modes: list[list[contextlib.AbstractContextManager[Any]]] = [[], []]
        self.pools: dict[int, Any] = {}
        self.bad = self.table = torch.empty(0)  # for a kernel that fails in a graph
        self.graphs: list[Graph] = []
        self.states: list[tuple[Tensor, Numbers]] = []
        self.generators: list[Generator] = []

    def run(self, steps: list[Step]) -> None:
        """Run the steps and check all that they did.

        Raises:
            AssertionError: if the device did anything else than the model.
        """
        done = False
        self.start()
        try:
            for name, arguments in steps:
                with contextlib.suppress(Missing):
                    self.on_worker(self.worker, functools.partial(getattr(self, name), **arguments))
                self.check_statistics()
            self.compare_all()
            done = True
        finally:
            self.finish(strict=done)

    def start(self) -> None:
        for device in range(DEVICES):
            # Made in a way that leaves the first use of the device to the program.
            made = [torch.Stream(f"openreg:{device}", priority=-n) for n in range(1, STREAMS)]
            default = torch.Stream(0, device, made[0].device_type)
            for number, stream in enumerate([default, *made]):
                self.streams[device, number] = stream
            self.generators.append(
                Generator(torch.openreg.default_generators[device], device, Numbers())
            )
        for device in range(DEVICES):
            own = torch.Generator(f"openreg:{device}")
            self.generators.append(Generator(own, device, Numbers()))
        for generator in self.generators:
            generator.real.manual_seed(0)
        self.held = self.memory_held()

    def on_worker(self, worker: int, function: Callable[[], Any]) -> Any:
        return helper().submit(function).result() if worker else function()

    # -------------------------------------------------------------------------------- the program

    def pick(self, number: int, device: int | None = None) -> Value:
        """Return a value of the device, if one is named."""
        chosen = [
            value
            for value in self.values
            if value.memory.defined and device in (None, value.ours.device.index)
        ]
        if not chosen:
            raise Missing
        return chosen[number % len(chosen)]

    def pick_pinned(self, number: int) -> Value:
        chosen = [value for value in self.pinned if value.memory.defined]
        if not chosen:
            raise Missing
        return chosen[number % len(chosen)]

    def place(self, device: int) -> Place:
        """Return the current stream."""
        return device, self.current[self.worker][device]

    def place_of(self, value: Value) -> Place:
        return self.place(value.ours.device.index)

    def new_values(self, size: int) -> Tensor:
        self.made += 1
        return (torch.arange(size) * 7 + self.made * 13).remainder(97)

    def keep(self, theirs: Tensor, ours: Tensor, memory: Memory) -> Value:
        """Compare all but the elements, and let later steps use the two."""
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert ours.is_inference() == theirs.is_inference()
        if theirs.numel() > 0:
            steps = zip(theirs.shape, theirs.stride(), ours.stride(), strict=True)
            assert all(size == 1 or a == b for size, a, b in steps), (theirs, ours.stride())
        value = Value(theirs, ours, memory)
        self.values.append(value)
        if len(self.values) > MOST:
            self.values.pop(0)
        return value

    # ----------------------------------------------------------------------------------- ordering

    def order(self, place: Place, *all_memory: Memory) -> None:
        """Let the stream wait for what was queued with the memory on others."""
        for memory in all_memory:
            for user, event in list(memory.users.items()):
                if user == place:
                    continue
                if self.way == "event":
                    self.streams[place].wait_event(event)
                elif self.way == "stream":
                    self.streams[place].wait_stream(self.streams[user])
                else:
                    self.wait(user, event, self.way)

    def used(self, place: Place, *values: Value, write: bool = False) -> None:
        """Note that the stream uses the values, which have to stay until then."""
        event = self.streams[place].record_event()
        for value in values:
            memory = value.memory
            if write:
                memory.users.clear()
            memory.users[place] = event
            if memory.place in (None, place):
                continue
            if memory.recorded:
                value.ours.record_stream(self.streams[place])
            else:
                assert memory.place is not None
                self.streams[memory.place].wait_event(event)

    def wait(self, place: Place, event: torch.Event | None, way: str) -> None:
        """Have the host wait. What it waits for must be done then, and raise its error once."""
        stream = self.streams[place]
        if event is None or place in self.failed:
            event = stream.record_event()  # behind the kernel that failed
        if way == "query":
            while not event.query():
                pass
        elif way == "event":
            self.raising({place}, event.synchronize)
        elif way == "stream":
            self.raising({place}, stream.synchronize)
        else:
            wait = {"device": torch.openreg, "accelerator": torch.accelerator}[way].synchronize
            self.raising({p for p in self.streams if p[0] == place[0]}, lambda: wait(place[0]))
            for other, waited in self.streams.items():
                assert other[0] != place[0] or waited.query()
        assert event.query()

    def raising(self, places: set[Place], function: Callable[[], Any]) -> Any:
        """Call what waits for the streams: each pending error of them is raised once."""
        for _ in places & self.failed:
            try:
                function()
            except IndexError:
                continue
            raise AssertionError("the error of a kernel was lost")
        self.failed -= places
        return function()

    def settle(self, place: Place) -> None:
        """Take the stream's error: what comes next may wait without being asked to."""
        if place in self.failed:
            self.wait(place, None, "stream")

    # ------------------------------------------------------------------------------------ calling

    def both(
        self, call: tuple[Any, ...], function: Operator, *values: Value, write: bool = False
    ) -> tuple[Any, Any]:
        """Call a function with values of one device, in order; both sides fail or none does.

        ``call`` has the name of what is called, and its arguments besides the values.

        Returns:
            What the two sides returned. An exception in place of it, if they failed.
        """
        place = self.place_of(values[0])
        # A first call may wait, to learn what the operator takes and returns.
        seen = (*call, *modes(), *(looks(value.ours) for value in values))
        versions = [self.version(value) for value in values]
        theirs = attempt(function, *(value.theirs for value in values))
        # One that is refused is never known.
        if isinstance(theirs, Exception) or WAITING.intersection(call) or seen not in called:
            self.settle(place)
            called.add(seen)
        self.order(place, *(value.memory for value in values))
        ours = attempt(function, *(value.ours for value in values))
        if isinstance(ours, Exception) or isinstance(theirs, Exception):
            assert type(ours) is type(theirs), (theirs, ours)
        self.used(place, *values, write=write)
        assert versions == [self.version(value) for value in values], "versions differ"
        return theirs, ours

    def version(self, value: Value) -> int:
        """Return how much further the version of the model is."""
        return 0 if value.theirs.is_inference() else value.theirs._version - value.ours._version

    def keep_result(self, result: tuple[Any, Any], *values: Value) -> None:
        """Keep a new tensor, or a view of one of the values."""
        theirs, ours = result
        if isinstance(theirs, Exception):
            return
        memory = Memory(self.place(ours.device.index))
        memory.users[memory.place or (0, 0)] = self.streams[
            self.place(ours.device.index)
        ].record_event()
        for value in values:
            shared = theirs.untyped_storage()._cdata == value.theirs.untyped_storage()._cdata
            same = ours.untyped_storage()._cdata == value.ours.untyped_storage()._cdata
            assert shared == same
            memory = value.memory if shared else memory
        self.keep(theirs, ours, memory)

    def compare(self, value: Value) -> None:
        """Read a value. This makes the host wait for the current stream."""
        place = self.place_of(value)
        self.order(place, value.memory)
        empty = value.theirs.numel() == 0  # then there is nothing to wait for
        found = self.raising(set() if empty else {place}, value.ours.cpu)
        self.used(place, value)
        torch.testing.assert_close(found, value.theirs, rtol=0, atol=0, equal_nan=True)

    def compare_pinned(self, value: Value, way: str) -> None:
        self.release_pinned(value, way)
        torch.testing.assert_close(value.ours, value.theirs, rtol=0, atol=0, equal_nan=True)

    def release_pinned(self, value: Value, way: str) -> None:
        """Wait on the host until no copy uses the pinned memory any more."""
        for place, event in list(value.memory.users.items()):
            self.wait(place, event, way)
        value.memory.users.clear()

    # ------------------------------------------------------------------------------------- checks

    def check_statistics(self) -> None:
        for device in range(DEVICES):
            stats = torch.openreg.memory_stats_as_nested_dict(device)
            held = [stats[f"{name}_bytes"]["all"] for name in ("allocated", "active", "reserved")]
            assert 0 <= held[0]["current"] <= held[1]["current"] <= held[2]["current"], held
            assert all(figure["current"] <= figure["peak"] for figure in held), held

    def memory_held(self) -> dict[str, int]:
        """Return what nobody should hold more of after a program than before it."""
        torch.openreg.empty_cache()
        torch.openreg.empty_host_cache()
        held = {}
        for device in range(DEVICES):
            stats = torch.openreg.memory_stats_as_nested_dict(device)
            for name in ("allocated_bytes", "reserved_bytes"):
                held[f"{name} of device {device}"] = stats[name]["all"]["current"]
        host = torch.openreg.host_memory_stats()
        return held | {
            name: host[f"{name}.current"] for name in ("active_bytes", "allocated_bytes")
        }

    def compare_all(self) -> None:
        for worker in range(2):
            self.worker = worker
            self.on_worker(worker, self.leave_all)
        self.worker = 0
        for value in self.values:
            if value.memory.defined:
                self.compare(value)
        for value in self.pinned:
            if value.memory.defined:
                self.compare_pinned(value, "stream")
        for generator in self.generators:
            assert generator.real.initial_seed() == generator.numbers.seed
            assert generator.real.get_offset() == generator.numbers.offset

    def leave_all(self) -> None:
        while self.modes[self.worker]:
            self.modes[self.worker].pop().__exit__(None, None, None)
        for device in reversed(range(DEVICES)):
            torch.openreg.set_stream(self.streams[device, 0])
        self.current[self.worker] = [0] * DEVICES

    def finish(self, strict: bool) -> None:
        """Give everything back. Not strict: whatever state a failure has left."""
        for worker in range(2):
            self.worker = worker
            self.on_worker(worker, self.leave_all)
        self.bad = self.table = torch.empty(0)
        self.values.clear()
        self.pinned.clear()
        self.graphs.clear()
        self.pools.clear()
        for device in range(DEVICES):
            if strict:
                self.wait((device, 0), None, "device")
            for _ in range(STREAMS):
                error = attempt(torch.openreg.synchronize, device)
                assert error is None or not strict, error
        if strict:
            end = time.monotonic() + PATIENCE
            while (held := self.memory_held()) != self.held:
                gc.collect()
                torch.openreg.ipc_collect()
                assert time.monotonic() < end, f"before: {self.held}, after: {held}"

    def begin(self) -> None:
        """Make something to use. What comes before is the first use of the device."""
        for device in range(DEVICES):
            self.new(8, "float32", device)
        self.new_pinned(8, "float32")

    # ------------------------------------------------------------------------- rules: tensors

    @rule(size=st.integers(0, 9), dtype=st.sampled_from(["float32", "int64"]), device=devices)
    def new(self, size: int, dtype: str, device: int) -> None:
        """From pageable memory, which may change at once."""
        theirs = self.new_values(size).to(getattr(torch, dtype))
        source = theirs.clone()
        self.settle(self.place(device))  # if the stream is idle, the copy waits
        ours = source.to(f"openreg:{device}", non_blocking=True)
        source.fill_(-1)
        self.keep_result((theirs, ours))

    @rule(device=devices, size=st.sampled_from([1 << 12, 300_000]))
    def new_large(self, device: int, size: int) -> None:
        """In a segment of its own; mostly not written."""
        ours = torch.empty(size * 8, device=f"openreg:{device}")[-8:].fill_(5)
        self.keep_result((torch.full((8,), 5.0), ours))

    @rule(a=some, operator=st.sampled_from(sorted(VIEWS)), n=st.integers(0, 3))
    def view(self, a: int, operator: str, n: int) -> None:
        x = self.pick(a)
        self.keep_result(self.both((operator, n), lambda x: VIEWS[operator](x, n), x), x)

    @rule(a=some, operator=st.sampled_from(sorted(FUNCTIONS)))
    def compute(self, a: int, operator: str) -> None:
        x = self.pick(a)
        self.keep_result(self.both((operator,), FUNCTIONS[operator], x), x)

    @rule(a=some, b=some)
    def combine(self, a: int, b: int) -> None:
        """Two values, which may have been made on different streams."""
        x = self.pick(a)
        y = self.pick(b, x.ours.device.index)
        self.keep_result(self.both(("combine",), lambda x, y: wrap(x + wrap(y.sum())), x, y))

    @rule(a=some, n=st.integers(0, 9), operator=st.sampled_from(sorted(CHANGES)))
    def change(self, a: int, n: int, operator: str) -> None:
        x = self.pick(a)
        self.both((operator, n), lambda x: CHANGES[operator](x, n), x, write=True)

    @rule(a=some, b=some)
    def change_by(self, a: int, b: int) -> None:
        x = self.pick(a)
        y = self.pick(b, x.ours.device.index)
        self.both(
            ("change_by",),
            lambda x, y: x.add_(wrap(y.sum()).to(x.dtype)).remainder_(97),
            x,
            y,
            write=True,
        )

    @rule(
        a=some, b=some, operator=st.sampled_from(sorted(OUTS)), way=st.sampled_from(["new", "end"])
    )
    def out(self, a: int, b: int, operator: str, way: str) -> None:
        """To ``out=`` without elements, which grows: a new tensor, or behind all of another."""
        x = self.pick(a)
        if way == "new":
            self.keep_result(self.both(("out",), lambda x: OUTS[operator](x, x.new_empty(0)), x))
            return
        base = self.pick(b, x.ours.device.index)
        if (
            base.memory.fixed
            or base.memory is x.memory
            or base.theirs.dtype != x.theirs.dtype
            or not base.theirs.is_contiguous()
        ):
            raise Missing
        with self.moving(base):
            self.both(
                ("out",),
                lambda x, base: OUTS[operator](x, base.detach().view(-1)[base.numel() :]),
                x,
                base,
                write=True,
            )

    @contextlib.contextmanager
    def moving(self, value: Value) -> Iterator[None]:
        """The storage may get new memory, of the current stream."""
        before = value.ours.untyped_storage().data_ptr()
        yield
        if value.ours.untyped_storage().data_ptr() != before:
            value.memory.place = self.place_of(value)

    @rule(a=some, size=st.integers(0, 12), n=st.integers(0, 9))
    def resize(self, a: int, size: int, n: int) -> None:
        x = self.pick(a)
        if x.memory.fixed:
            raise Missing
        with self.moving(x):
            call = ("resize_", size, n)
            result = self.both(call, lambda x: x.resize_(size).fill_(n), x, write=True)
        # Outside inference mode torch resizes a tensor of it, and then refuses: nothing is filled.
        if isinstance(result[0], Exception):
            self.values.remove(x)

    @rule(a=some, b=some)
    def swap(self, a: int, b: int) -> None:
        """The old storage may go while it is in use."""
        x = self.pick(a)
        y = self.pick(b, x.ours.device.index)
        if x.theirs.dtype != y.theirs.dtype:
            raise Missing
        result = self.both(("set_",), lambda x, y: x.set_(y), x, y)
        if not isinstance(result[0], Exception):
            x.memory = y.memory

    @rule(a=some, device=devices, non_blocking=flags)
    def move(self, a: int, device: int, non_blocking: bool) -> None:
        """Both current streams take part."""
        x = self.pick(a)
        source, target = self.place_of(x), self.place(device)
        self.order(source, x.memory)
        theirs = x.theirs.clone()
        ours = x.ours.to(f"openreg:{device}", non_blocking=non_blocking, copy=True)
        self.used(source, x)
        self.used(target, x)
        self.keep_result((theirs, ours))

    @rule(a=some, n=st.integers(0, 5))
    def host_argument(self, a: int, n: int) -> None:
        """The caller may change a CPU tensor after the call that takes it."""
        x = self.pick(a)
        if x.theirs.numel() == 0:
            raise Missing

        def function(x: Tensor) -> Tensor:
            number, index = torch.tensor(n), torch.tensor([0, 0])
            result = (wrap(x + number), x.flatten()[index])
            number.fill_(50)
            index.fill_(-1)
            return torch.cat([part.flatten() for part in result])

        self.keep_result(self.both(("host_argument",), function, x))

    @rule(a=some)
    def queue_python(self, a: int) -> None:
        """A kernel that needs the GIL is queued: nobody may keep that and wait."""
        x = self.pick(a)
        self.settle(self.place_of(x))  # the kernel is waited for where its sizes are new
        self.fall_behind(x.ours.device.index, 2000)
        self.keep_result(self.both(("trace",), lambda x: x.reshape(1, -1).trace(), x))

    @rule(a=some)
    def forget(self, a: int) -> None:
        """Whatever is still queued."""
        self.values.remove(self.pick(a))

    @rule(a=some)
    def forget_elsewhere(self, a: int) -> None:
        """On the other thread."""
        last = [self.pick(a)]
        self.values.remove(last[0])
        self.on_worker(1 - self.worker, last.clear)

    @rule(a=some)
    def read(self, a: int) -> None:
        self.compare(self.pick(a))

    @rule(
        a=some,
        operator=st.sampled_from(sorted(GRADIENTS)),
        spoil=st.sampled_from(sorted(SPOILS)),
        stream=streams,
    )
    def gradient(self, a: int, operator: str, spoil: str, stream: int) -> None:
        """A backward pass, called on another stream than the forward pass."""
        x = self.pick(a)
        if x.theirs.numel() == 0:
            raise Missing
        device = x.ours.device.index
        place = (device, stream)
        self.settle(place)

        def function(x: Tensor) -> Tensor:
            leaf = x.float().remainder(5).detach().requires_grad_()
            with torch.enable_grad():
                h = leaf * 2
                y = GRADIENTS[operator](h)
            SPOILS[spoil](h)
            if x.is_cpu:
                return torch.autograd.grad(y.sum(), leaf)[0]
            before = torch.openreg.current_stream(device)
            self.streams[place].wait_stream(before)
            with torch.openreg.stream(self.streams[place]):
                gradient = torch.autograd.grad(y.sum(), leaf)[0]
                gradient.record_stream(before)
            before.wait_stream(self.streams[place])
            return gradient

        self.keep_result(self.both(("gradient",), function, x))

    # ------------------------------------------------------------------- rules: streams, errors

    @rule(device=devices, stream=streams)
    def switch_stream(self, device: int, stream: int) -> None:
        """Also makes the device current."""
        torch.openreg.set_stream(self.streams[device, stream])
        self.current[self.worker][device] = stream

    @rule(way=st.sampled_from(["event", "stream", "query"]))
    def switch_way(self, way: str) -> None:
        self.way = way

    @rule(worker=st.integers(0, 1))
    def switch_thread(self, worker: int) -> None:
        """Modes, streams and the device are of a thread."""
        self.worker = worker

    @rule(device=devices, us=st.sampled_from([200, 2000]))
    def fall_behind(self, device: int, us: int) -> None:
        """The current stream is busy; the host goes on."""
        with torch.openreg.device(device):
            torch.openreg._sleep(us * 1000)

    @rule(
        device=devices,
        stream=streams,
        way=st.sampled_from(["event", "query", "stream", "device", "accelerator"]),
    )
    def wait_for(self, device: int, stream: int, way: str) -> None:
        self.wait((device, stream), None, way)

    @rule(device=devices)
    def fail(self, device: int) -> None:
        """A kernel fails, and nobody waits."""
        place = self.place(device)
        self.settle(place)
        with torch.inference_mode(False):
            table = torch.zeros(3, device=f"openreg:{device}")
            index = torch.full((1,), 99, device=f"openreg:{device}")
            try:
                table.index_select(0, index)
            except IndexError:  # the first call of an operator waits
                return
        self.failed.add(place)

    # ------------------------------------------------------------------------------ rules: modes

    @rule(
        mode=st.sampled_from(
            ["no_grad", "enable_grad", "inference", "autocast", "pool 0", "pool 1"]
        )
    )
    def enter(self, mode: str) -> None:
        """A region that lasts until ``leave``, on this thread."""
        context = contextlib.ExitStack()
        if mode == "autocast":
            for kind in ("cpu", "openreg"):
                context.enter_context(torch.autocast(kind, torch.bfloat16))
        elif mode.startswith("pool"):
            device = int(mode[-1])
            if device not in self.pools:
                self.pools[device] = torch.openreg.MemPool(device)
            context.enter_context(torch.openreg.use_mem_pool(self.pools[device]))
        else:
            context.enter_context(
                {
                    "no_grad": torch.no_grad,
                    "enable_grad": torch.enable_grad,
                    "inference": torch.inference_mode,
                }[mode]()
            )
        self.modes[self.worker].append(context)

    @rule()
    def leave(self) -> None:
        if self.modes[self.worker]:
            self.modes[self.worker].pop().__exit__(None, None, None)

    # ----------------------------------------------------------------------------- rules: memory

    @rule(what=st.sampled_from(["device", "host", "pools", "peaks"]))
    def give_back(self, what: str) -> None:
        """Waits for memory, but takes no kernel's error."""
        if what == "device":
            torch.openreg.empty_cache()
        elif what == "host":
            torch.openreg.empty_host_cache()
        elif what == "pools":
            self.pools.clear()  # tensors in them live on
        else:
            for device in range(DEVICES):
                torch.openreg.reset_peak_memory_stats(device)

    @rule(device=devices, way=st.sampled_from(["huge", "limit"]))
    def exhaust(self, device: int, way: str) -> None:
        """An allocation fails, and the next one does not."""
        _, total = torch.openreg.mem_get_info(device)
        size = 1 << 50 if way == "huge" else 64 << 20
        if way == "limit":
            held = torch.openreg.memory_reserved(device)
            torch.openreg.set_per_process_memory_fraction(held / total, device)
        try:
            torch.empty(size, dtype=torch.uint8, device=f"openreg:{device}")
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError("there was room")
        finally:
            torch.openreg.set_per_process_memory_fraction(1.0, device)
        self.new(4, "int64", device)

    @rule(device=devices, stream=streams)
    def reclaim(self, device: int, stream: int) -> None:
        """The device is full, and memory that another stream still uses has to be waited for."""
        place, user = self.place(device), (device, stream)
        self.settle(place)
        self.settle(user)
        where = f"openreg:{device}"
        with torch.inference_mode():
            torch.openreg.empty_cache()
            size = 24 << 20
            x = torch.empty(size, dtype=torch.uint8, device=where)
            _, total = torch.openreg.mem_get_info(device)
            held = torch.openreg.memory_reserved(device)
            self.streams[user].wait_stream(self.streams[place])
            with torch.openreg.stream(self.streams[user]):
                torch.openreg._sleep(200_000)
                x[:8].fill_(1)
            x.record_stream(self.streams[user])
            del x
            torch.openreg.set_per_process_memory_fraction(held / total, device)
            try:
                y = torch.empty(size, dtype=torch.uint8, device=where)
            finally:
                torch.openreg.set_per_process_memory_fraction(1.0, device)
            y[:8].fill_(7)
            ours = y[:8].clone()
        self.keep_result((torch.full((8,), 7, dtype=torch.uint8), ours.clone()))

    # ----------------------------------------------------------------------- rules: pinned memory

    @rule(size=st.integers(0, 9), dtype=st.sampled_from(["float32", "int64"]))
    def new_pinned(self, size: int, dtype: str) -> None:
        with torch.inference_mode(False):
            theirs = self.new_values(size).to(getattr(torch, dtype))
            ours = torch.empty_like(theirs, pin_memory=True).copy_(theirs)
        self.pinned.append(Value(theirs, ours, Memory(None)))
        if len(self.pinned) > MOST:
            self.pinned.pop(0)

    @rule(p=some, device=devices, non_blocking=flags)
    def upload(self, p: int, device: int, non_blocking: bool) -> None:
        source = self.pick_pinned(p)
        place = self.place(device)
        if not non_blocking:
            self.settle(place)
        self.order(place, source.memory)
        ours = source.ours.to(f"openreg:{device}", non_blocking=non_blocking)
        self.used(place, source)
        self.keep_result((source.theirs.clone(), ours))

    @rule(a=some, p=some, non_blocking=flags)
    def download(self, a: int, p: int, non_blocking: bool) -> None:
        """To pinned memory that has the shape, or to new one."""
        x = self.pick(a)
        place = self.place_of(x)
        if not non_blocking:
            self.settle(place)
        target = self.pinned[p % len(self.pinned)] if self.pinned else None
        if target is None or target.theirs.shape != x.theirs.shape:
            with torch.inference_mode(False):
                theirs = torch.empty(x.theirs.shape, dtype=x.theirs.dtype)
                ours = torch.empty(x.theirs.shape, dtype=x.theirs.dtype, pin_memory=True)
            target = Value(theirs, ours, Memory(None))
            self.pinned.append(target)
        self.order(place, x.memory, target.memory)
        target.theirs.copy_(x.theirs)
        target.ours.copy_(x.ours, non_blocking=non_blocking)
        self.used(place, x)
        self.used(place, target, write=True)
        target.memory.defined = True

    @rule(p=some, n=st.integers(0, 9), way=st.sampled_from(["event", "query", "stream", "device"]))
    def write_pinned(self, p: int, n: int, way: str) -> None:
        """The host may write when the copies are done."""
        value = self.pick_pinned(p)
        self.release_pinned(value, way)
        value.theirs.fill_(n)
        value.ours.fill_(n)

    @rule(p=some, way=st.sampled_from(["event", "query", "stream", "device"]))
    def read_pinned(self, p: int, way: str) -> None:
        self.compare_pinned(self.pick_pinned(p), way)

    @rule(p=some)
    def forget_pinned(self, p: int) -> None:
        """Copies of it may be queued, or captured. Other memory is written at once."""
        value = self.pick_pinned(p)
        self.pinned.remove(value)
        shape = value.ours.shape
        del value
        torch.empty(shape, pin_memory=True).fill_(-1)

    # ---------------------------------------------------------------------- rules: random numbers

    @rule(g=some, operator=st.sampled_from(sorted(DRAWS)), size=st.integers(0, 9))
    def draw(self, g: int, operator: str, size: int) -> None:
        generator = self.generators[g % len(self.generators)]
        self.settle(self.place(generator.device))
        ours = torch.empty(size, device=f"openreg:{generator.device}")
        DRAWS[operator](ours, generator.real)
        self.keep_result((self.expect(generator.numbers, operator, size, generator.device), ours))

    def expect(self, numbers: Numbers, operator: str, size: int, device: int) -> Tensor:
        """Take numbers out of the model's sequence."""
        values, count = drawn(operator, size, device, numbers.seed, numbers.offset)
        numbers.offset += count
        return values.clone()

    @rule(g=some, seed=st.integers(0, 3), way=st.sampled_from(["generator", "torch", "all"]))
    def seed(self, g: int, seed: int, way: str) -> None:
        chosen = [self.generators[g % len(self.generators)]]
        if way == "generator":
            chosen[0].real.manual_seed(seed)
        else:
            chosen = self.generators[:DEVICES]
            (torch.manual_seed if way == "torch" else torch.openreg.manual_seed_all)(seed)
        for generator in chosen:
            generator.numbers.seed, generator.numbers.offset = seed, 0

    @rule(g=some)
    def save_state(self, g: int) -> None:
        generator = self.generators[g % len(self.generators)]
        self.states.append((generator.real.get_state(), dataclasses.replace(generator.numbers)))

    @rule(g=some, n=some)
    def load_state(self, g: int, n: int) -> None:
        if not self.states:
            raise Missing
        generator = self.generators[g % len(self.generators)]
        state, numbers = self.states[n % len(self.states)]
        generator.real.set_state(state)
        generator.numbers.seed, generator.numbers.offset = numbers.seed, numbers.offset

    @rule(seed=st.integers(0, 3))
    def fork_generators(self, seed: int) -> None:
        """What is drawn inside is not missing outside."""
        with torch.random.fork_rng(range(DEVICES), device_type="openreg"):
            torch.manual_seed(seed)
            for device in range(DEVICES):
                self.settle(self.place(device))
                ours = torch.empty(4, device=f"openreg:{device}").random_(0, 97)
                theirs = self.expect(Numbers(seed), "random_", 4, device)
                self.keep_result((theirs, ours))

    @rule(g=some, way=st.sampled_from(["share", "clone", "copy", "pickle"]))
    def copy_generator(self, g: int, way: str) -> None:
        """In place of the device's own one. Shared, both go on in one sequence."""
        generator = self.generators[g % len(self.generators)]
        numbers = dataclasses.replace(generator.numbers)
        if way == "share":
            numbers = generator.numbers
            real = torch.Generator(f"openreg:{generator.device}")
            real.graphsafe_set_state(generator.real.graphsafe_get_state())
        elif way == "clone":
            real = generator.real.clone_state()
        elif way == "copy":
            real = copy.deepcopy(generator.real)
        else:
            real = pickle.loads(pickle.dumps(generator.real))
        self.generators[DEVICES + generator.device] = Generator(real, generator.device, numbers)

    # -------------------------------------------------------------------------- rules: graphs

    @rule(
        device=devices,
        stream=streams,
        way=st.sampled_from(["context", "raw"]),
        mode=st.sampled_from(["global", "thread_local", "relaxed"]),
        share=flags,
        body=st.lists(st.deferred(captured_operations), min_size=1, max_size=6),
        end=st.sampled_from(["end", "end", "raise", "reset", "drop"]),
    )
    def capture(
        self,
        device: int,
        stream: int,
        way: str,
        mode: str,
        share: bool,
        body: list[tuple[str, int, int]],
        end: str,
    ) -> None:
        """Capture a few operations. Nothing of the model changes before a replay.

        ``raise``: the block ends by an exception, and what was captured until then counts.
        ``reset``, ``drop``: the capture is given up.
        """
        warm_up(device)
        for place in [p for p in self.streams if p[0] == device]:
            self.settle(place)
        self.capture_place = (device, stream)
        captured_stream = self.streams[self.capture_place]
        pools = [graph.pool for graph in self.graphs if graph.device == device]
        pool = pools[0] if share and pools else GraphPool()
        graph = Graph(torch.openreg.OpenRegGraph(), device, pool)
        own = self.generators[DEVICES + device].real
        graph.real.register_generator_state(own)
        handle = pool.graphs[0].real.pool() if pool.graphs else None
        results: list[Value] = []
        with torch.openreg.device(device):
            self.bad = torch.full((1,), 99, device=f"openreg:{device}")
            self.table = torch.zeros(3, device=f"openreg:{device}")
            where = self.place(device)
            self.made_before = Memory(where, {where: self.streams[where].record_event()})
            if way == "context" and end in ("end", "raise"):
                context: Any = torch.openreg.graph(graph.real, handle, captured_stream, mode)
            else:
                context = torch.openreg.stream(captured_stream)
            error = attempt(self.capture_in, context, graph, results, way, mode, handle, body, end)
        assert not torch.openreg.is_current_stream_capturing()
        if end in ("reset", "drop"):
            assert error is None, error
            graph.real = None
            return
        if error is not None or graph.spoilt:
            assert isinstance(error, RuntimeError), error
            assert graph.spoilt or graph.doubtful, error
            assert isinstance(attempt(graph.real.replay), RuntimeError)
            return
        for memory, _ in graph.uses:
            memory.fixed += 1
        pool.graphs.append(graph)
        self.graphs.append(graph)
        for value in results:
            chosen = self.pinned if value.memory.place is None else self.values
            chosen.append(value)
        del self.values[:-MOST], self.pinned[:-MOST]
        if len(self.graphs) > 3:
            self.drop_graph(0, "drop")

    def capture_in(
        self,
        context: Any,
        graph: Graph,
        results: list[Value],
        way: str,
        mode: str,
        handle: Any,
        body: list[tuple[str, int, int]],
        end: str,
    ) -> None:
        is_graph = isinstance(context, torch.openreg.graph)
        with contextlib.suppress(GivenUp), context:
            if not is_graph:
                graph.real.capture_begin(handle, mode)
            for name, i, n in body:
                if graph.spoilt:
                    break
                try:
                    getattr(self, name)(graph, results, i, n)
                except Missing:
                    continue
                except AssertionError:
                    graph.real.reset()  # the program has failed, the next one has not
                    raise
            if is_graph and end == "raise":
                raise GivenUp
            if end == "reset":
                graph.real.reset()
            elif end == "drop":
                graph.real = None
            elif not is_graph:
                graph.real.capture_end()

    def captured_value(self, graph: Graph, results: list[Value], number: int) -> Value:
        """Choose a value that captured work may use, and note that replays use it."""
        chosen = [
            value
            for value in self.values
            if value.memory.defined
            and value.ours.device.index == graph.device
            and (torch.is_inference_mode_enabled() or not value.theirs.is_inference())
        ]
        chosen += [value for value in results if value.memory.place is not None]
        if not chosen:
            raise Missing
        value = chosen[number % len(chosen)]
        # The storage: the tensor itself may get another one later.
        ours, theirs = value.ours.detach(), value.theirs.detach()
        graph.uses.append((value.memory, ours))
        return Value(theirs, ours, value.memory)

    def captured_result(
        self, graph: Graph, results: list[Value], theirs: Tensor, ours: Tensor
    ) -> Value:
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        memory = Memory(self.capture_place, graph.pool.users, defined=False, fixed=1)
        graph.outputs.append(memory)
        graph.uses.append((memory, None))
        results.append(Value(theirs, ours, memory))
        return results[-1]

    def captured_function(self, graph: Graph, results: list[Value], i: int, n: int) -> None:
        x = self.captured_value(graph, results, i)
        function = QUEUED[sorted(QUEUED)[n % len(QUEUED)]]
        theirs = function(x.theirs)
        self.captured_result(graph, results, theirs, function(x.ours))
        graph.actions.append(lambda: theirs.copy_(function(x.theirs)))

    def captured_temporary(self, graph: Graph, results: list[Value], i: int, n: int) -> None:
        """Memory that is used again within the graph."""
        x = self.captured_value(graph, results, i)

        def function(x: Tensor) -> Tensor:
            y = wrap(x + n)
            y = wrap(y * y)
            return wrap(y + x)

        theirs = function(x.theirs)
        self.captured_result(graph, results, theirs, function(x.ours))
        graph.actions.append(lambda: theirs.copy_(function(x.theirs)))

    def captured_change(self, graph: Graph, results: list[Value], i: int, n: int) -> None:
        x = self.captured_value(graph, results, i)
        x.ours.add_(n).remainder_(97)
        graph.actions.append(lambda: x.theirs.add_(n).remainder_(97))

    def captured_out(self, graph: Graph, results: list[Value], i: int, n: int) -> None:
        """To a result of another dtype."""
        x = self.captured_value(graph, results, i)
        theirs = torch.empty(x.theirs.shape, dtype=torch.float64)
        ours = torch.empty(x.theirs.shape, dtype=torch.float64, device=x.ours.device)
        torch.add(x.ours, n, out=ours)
        self.captured_result(graph, results, theirs, ours)
        graph.actions.append(lambda: theirs.copy_(x.theirs + n))

    def captured_draw(self, graph: Graph, results: list[Value], i: int, n: int) -> None:
        """Each replay draws what an eager call would."""
        generator = self.generators[graph.device + DEVICES * (i % 2)]
        operator = sorted(DRAWS)[n % len(DRAWS)]
        ours = torch.empty(8, device=f"openreg:{graph.device}")
        DRAWS[operator](ours, generator.real)
        theirs = torch.empty(8)
        numbers, device = generator.numbers, graph.device
        self.captured_result(graph, results, theirs, ours)
        graph.actions.append(lambda: theirs.copy_(self.expect(numbers, operator, 8, device)))

    def captured_upload(self, graph: Graph, results: list[Value], i: int, n: int) -> None:
        """Reads what pinned memory holds when it is replayed, forgotten or not."""
        source = self.pick_pinned(i)
        memory, source_theirs = source.memory, source.theirs
        theirs = torch.empty_like(source_theirs)
        ours = torch.empty_like(source.ours, device=f"openreg:{graph.device}", pin_memory=False)
        ours.copy_(source.ours, non_blocking=True)
        graph.uses.append((memory, None))
        self.captured_result(graph, results, theirs, ours)
        graph.actions.append(lambda: theirs.copy_(source_theirs))

    def captured_download(self, graph: Graph, results: list[Value], i: int, n: int) -> None:
        """To pinned memory of the capture."""
        x = self.captured_value(graph, results, i)
        theirs = torch.empty(x.theirs.shape, dtype=x.theirs.dtype)
        ours = torch.empty(x.theirs.shape, dtype=x.theirs.dtype, pin_memory=True)
        ours.copy_(x.ours, non_blocking=True)
        memory = Memory(None, defined=False)
        graph.uses.append((memory, None))
        graph.own.append(memory)
        results.append(Value(theirs, ours, memory))
        graph.actions.append(lambda: theirs.copy_(x.theirs))

    def captured_fork(self, graph: Graph, results: list[Value], i: int, n: int) -> None:
        """A branch on another stream."""
        x = self.captured_value(graph, results, i)
        device, number = self.capture_place
        main, side = self.streams[device, number], self.streams[device, (number + 1) % STREAMS]
        side.wait_stream(main)
        with torch.openreg.stream(side):
            ours = wrap(x.ours + n)
            ours = wrap(ours * ours)
        main.wait_stream(side)
        theirs = torch.empty_like(x.theirs)
        self.captured_result(graph, results, theirs, ours)
        graph.actions.append(lambda: theirs.copy_(wrap(wrap(x.theirs + n).square())))

    def captured_thread(self, graph: Graph, results: list[Value], i: int, n: int) -> None:
        """Launched by another thread on the captured stream."""
        x = self.captured_value(graph, results, i)
        inference = torch.is_inference_mode_enabled()

        def launch() -> Tensor:
            stream = self.streams[self.capture_place]
            with torch.openreg.stream(stream), torch.inference_mode(inference):
                return wrap(x.ours + n)

        theirs = torch.empty_like(x.theirs)
        ours = self.on_worker(1 - self.worker, launch)
        self.captured_result(graph, results, theirs, ours)
        graph.actions.append(lambda: theirs.copy_(wrap(x.theirs + n)))

    def captured_beside(self, graph: Graph, results: list[Value], i: int, n: int) -> None:
        """Another thread works on another stream, and is not captured."""
        device, number = self.capture_place
        place = device, (number + 2) % STREAMS

        def work() -> tuple[Tensor, Tensor]:
            with torch.openreg.stream(self.streams[place]):
                ours = torch.full((4,), float(n), device=f"openreg:{device}").add_(1)
            return torch.full((4,), n + 1.0), ours

        theirs, ours = self.on_worker(1 - self.worker, work)
        memory = Memory(place, {place: self.streams[place].record_event()})
        self.values.append(Value(theirs, ours, memory))

    def captured_failure(self, graph: Graph, results: list[Value], i: int, n: int) -> None:
        """Each replay fails in one kernel, and runs the others."""
        graph.uses += [(self.made_before, self.bad), (self.made_before, self.table)]
        self.table.index_select(0, self.bad)
        graph.fails = True

    def captured_forgetting(self, graph: Graph, results: list[Value], i: int, n: int) -> None:
        """Memory from before the capture is freed in it."""
        self.forget(i)

    def captured_give_back(self, graph: Graph, results: list[Value], i: int, n: int) -> None:
        """The capture may refuse that, and end. What a captured stream uses stays, no more."""
        before = torch.openreg.memory_reserved(graph.device)
        give_back = torch.openreg.empty_host_cache if n % 2 else torch.openreg.empty_cache
        error = attempt(give_back)
        assert torch.openreg.memory_reserved(graph.device) <= before
        if error is not None:
            assert "until the capture has ended" in str(error), error
            graph.doubtful = True

    def captured_exhaustion(self, graph: Graph, results: list[Value], i: int, n: int) -> None:
        error = attempt(torch.empty, 1 << 50)
        assert isinstance(error, RuntimeError)
        error = attempt(lambda: torch.empty(1 << 50, device=f"openreg:{graph.device}"))
        assert isinstance(error, torch.OutOfMemoryError), error
        graph.doubtful = True

    def captured_wait(self, graph: Graph, results: list[Value], i: int, n: int) -> None:
        """The host can not wait for what is captured."""
        x = self.captured_value(graph, results, i)
        assert isinstance(attempt(lambda: x.ours.sum().item()), RuntimeError)
        graph.spoilt = True

    @rule(g=some, times=st.integers(1, 3), then=st.sampled_from(["keep", "keep", "reset", "drop"]))
    def replay(self, g: int, times: int, then: str) -> None:
        if not self.graphs:
            raise Missing
        graph = self.graphs[g % len(self.graphs)]
        place = self.place(graph.device)
        self.order(place, Memory(None, graph.pool.users), *(memory for memory, _ in graph.uses))
        for _ in range(times):
            graph.real.replay()
        with torch.inference_mode():
            for action in graph.actions * times:
                action()
        if graph.fails:
            self.failed.add(place)
        event = self.streams[place].record_event()
        for memory, tensor in graph.uses:
            memory.users.clear()
            memory.users[place] = event
            if tensor is not None and memory.place not in (None, place):
                if memory.recorded:
                    tensor.record_stream(self.streams[place])
                else:
                    assert memory.place is not None
                    self.streams[memory.place].wait_event(event)
        for memory in graph.outputs + graph.own:
            memory.defined = True
        graph.pool.users[place] = event
        later = graph.pool.graphs[graph.pool.graphs.index(graph) + 1 :]
        for other in later:
            for memory in other.outputs:
                memory.defined = False
        if then != "keep":
            self.drop_graph(g, then)

    @rule(g=some, way=st.sampled_from(["reset", "drop"]))
    def drop_graph(self, g: int, way: str) -> None:
        """Replays may be queued; results stay."""
        if not self.graphs:
            raise Missing
        graph = self.graphs.pop(g % len(self.graphs))
        graph.pool.graphs.remove(graph)
        if way == "reset":
            graph.real.reset()
        graph.real = None
        for memory, _ in graph.uses:
            memory.fixed -= 1

    # ------------------------------------------------------------------------- rules: sharing

    @rule(a=some, device_stream=streams, n=st.integers(0, 9))
    def lend(self, a: int, device_stream: int, n: int) -> None:
        """By DLPack, to a consumer that uses another stream."""
        x = self.pick(a)
        place = self.place_of(x)
        consumer = (place[0], device_stream)
        self.order(place, x.memory)
        stream = self.streams[consumer]
        self.settle(consumer)
        # The consumer keeps the producer's tensor, whose storage set_() would take away.
        theirs = attempt(torch.from_dlpack, x.theirs.detach())
        handle = int(stream.native_handle)
        ours = attempt(lambda: torch.from_dlpack(x.ours.detach().__dlpack__(stream=handle)))
        assert isinstance(ours, Exception) == isinstance(theirs, Exception), (theirs, ours)
        if isinstance(theirs, Exception):
            return
        x.memory.recorded = False
        x.memory.fixed += 1
        self.used(place, x)
        value = self.keep(theirs, ours, x.memory)
        with torch.openreg.stream(stream):
            assert type(attempt(theirs.add_, n)) is type(attempt(ours.add_, n))
        self.used(consumer, value, write=True)

    # ----------------------------------------------------------------------- rules: processes

    @rule_of_processes(a=some, n=st.integers(0, 9), give_back=flags)
    def share(self, a: int, n: int, give_back: bool) -> None:
        """Another process changes the tensor, and may give it back."""
        x = self.pick(a)
        place = self.place_of(x)
        self.settle(place)
        self.order(place, x.memory)
        x.memory.fixed += 1
        other().call(peer.keep, "x", x.ours)
        other().call(peer.add, "x", n)
        with torch.inference_mode():
            x.theirs.add_(n)
        assert other().call(peer.values, "x") == x.theirs.tolist()
        if give_back:
            back = other().call(peer.give, "x")
            assert back.data_ptr() == x.ours.data_ptr() or x.ours.numel() == 0
            assert torch.equal(back.cpu(), x.theirs)
        other().call(peer.drop, "x")

    @rule_of_processes(device=devices, wait_there=flags)
    def share_event(self, device: int, wait_there: bool) -> None:
        place = self.place(device)
        event = torch.openreg.Event(device, interprocess=True)
        event.record(self.streams[place])
        other().call(peer.keep, "e", event)
        if wait_there:
            other().call(peer.wait, "e")
            assert event.query()
        else:
            self.settle(place)
            event.synchronize()
            assert other().call(peer.query, "e")
        other().call(peer.drop, "e")


def run(steps: list[Step]) -> None:
    """Run a program in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Program().run(steps)
