# SPDX-License-Identifier: BSD-3-Clause
"""A running random program: its values and streams, and how they are ordered and compared.

Steps run with the minimum ordering that the documentation requires. ``Memory`` tracks which streams
use a piece of memory, and ``order`` makes the next user wait for these streams. Nothing else waits.
A failed kernel leaves a pending error on its stream. ``failed`` contains all streams with a pending
error. The first wait for such a stream must raise the error, exactly once.

The allocator's statistics must be consistent after each step. At the end, a program compares all
values and frees everything. It must then use no more memory than at its start.
"""

import contextlib
import functools
import gc
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from tests.feature_program.model import (
    DEVICES,
    MOST,
    STREAMS,
    Generator,
    Graph,
    Memory,
    Numbers,
    Place,
    Value,
    attempt,
)
from tests.feature_program.operators import WAITING, Operator

PATIENCE = 10.0  # memory that is not released after this many seconds counts as leaked

#: The calls made so far. Each one is represented by everything that distinguishes it.
called: set[tuple[Any, ...]] = set()


def modes() -> tuple[bool, ...]:
    """Returns the modes of this thread."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("openreg"),
    )


def looks(x: Tensor) -> tuple[Any, ...]:
    """Returns all properties of a tensor that a call can observe, except its elements."""
    return x.device, x.dtype, x.shape, x.stride(), x.storage_offset(), x.is_inference()


class Missing(Exception):
    """An object that a step needs does not exist. Raised before the step has had any effect."""


@functools.cache
def second_thread() -> ThreadPoolExecutor:
    """Returns the additional thread on which steps can run."""
    return ThreadPoolExecutor(1)


class Program:
    """The state of a running program."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.pinned: list[Value] = []
        self.made = 0
        self.streams: dict[Place, torch.Stream] = {}
        self.failed: set[Place] = set()
        self.way = "event"  # how one stream waits for another
        self.worker = 0  # if 1, steps run on the second thread
        self.current = [[0] * DEVICES, [0] * DEVICES]  # current streams of each worker
        self.modes: list[list[contextlib.AbstractContextManager[Any]]] = [[], []]
        self.pools: dict[int, Any] = {}
        self.bad = self.table = torch.empty(0)  # operands of a kernel that fails in a graph
        self.made_before = Memory(None)  # orders the uses of `bad` and `table`
        self.capture_place: Place = (0, 0)  # the stream of the capture
        self.graphs: list[Graph] = []
        self.states: list[tuple[Tensor, Numbers]] = []
        self.generators: list[Generator] = []

    def run(self, steps: Iterable[Callable[["Program"], Any]]) -> None:
        """Runs the steps and checks all of their results.

        Raises:
            AssertionError: the device and the model differ.
        """
        done = False
        self.start()
        try:
            for step in steps:
                with contextlib.suppress(Missing):
                    self.on_worker(self.worker, functools.partial(step, self))
                self.check_statistics()
            self.compare_all()
            done = True
        finally:
            self.finish(strict=done)

    def start(self) -> None:
        for device in range(DEVICES):
            # Creating streams does not use the device yet. The first use is a step of the program.
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
        return second_thread().submit(function).result() if worker else function()

    # ------------------------------------------------------------------------ values of the program

    def pick(self, number: int, device: int | None = None) -> Value:
        """Returns the value that a number selects. If `device` is specified, the value is on it."""
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
        """Returns the current stream of a device."""
        return device, self.current[self.worker][device]

    def place_of(self, value: Value) -> Place:
        return self.place(value.ours.device.index)

    def new_values(self, size: int) -> Tensor:
        self.made += 1
        return (torch.arange(size) * 7 + self.made * 13).remainder(97)

    def keep(self, theirs: Tensor, ours: Tensor, memory: Memory) -> Value:
        """Compares everything except the elements. Keeps both tensors for later steps."""
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

    # -------------------------------------------------------------------------- ordering of streams

    def order(self, place: Place, *all_memory: Memory) -> None:
        """Makes a stream wait for the work on the memory that other streams have queued."""
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
        """Records that the stream uses the values, and keeps them alive until it has done so."""
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
        """Makes the host wait. The work must then be done, and its error must be raised once."""
        stream = self.streams[place]
        if event is None or place in self.failed:
            event = stream.record_event()  # recorded after the failed kernel
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
        """Calls a function that waits for streams: once per pending error, and once more.

        Each of the first calls must raise one of the errors. Returns the result of the last call.
        """
        for _ in places & self.failed:
            try:
                function()
            except IndexError:
                continue
            raise AssertionError("a kernel's error was not raised")
        self.failed -= places
        return function()

    def settle(self, place: Place) -> None:
        """Consumes the stream's pending error, because the next call may wait implicitly."""
        if place in self.failed:
            self.wait(place, None, "stream")

    # -------------------------------------------------------------------------- calls on both sides

    def both(
        self, call: tuple[Any, ...], function: Operator, *values: Value, write: bool = False
    ) -> tuple[Any, Any]:
        """Calls a function with values on one device. Either both sides fail, or neither does.

        ``call`` contains the name of the function, and those arguments that are not values.

        Returns:
            The results of both sides. If a side failed, its exception is returned instead.
        """
        place = self.place_of(values[0])
        # The first call of a kind may wait in order to check dtypes and output metadata.
        seen = (*call, *modes(), *(looks(value.ours) for value in values))
        versions = [self.version(value) for value in values]
        theirs = attempt(function, *(value.theirs for value in values))
        # A call that raises an error is not cached, so the next one waits again.
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
        """Returns the version of the model's tensor, minus the version of the device's tensor."""
        return 0 if value.theirs.is_inference() else value.theirs._version - value.ours._version

    def keep_result(self, result: tuple[Any, Any], *values: Value) -> None:
        """Keeps a result, which is either a new tensor or a view of one of the values."""
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
        """Reads a value, which makes the host wait for the current stream, and checks it."""
        place = self.place_of(value)
        self.order(place, value.memory)
        empty = value.theirs.numel() == 0  # an empty tensor needs no wait
        found = self.raising(set() if empty else {place}, value.ours.cpu)
        self.used(place, value)
        torch.testing.assert_close(found, value.theirs, rtol=0, atol=0, equal_nan=True)

    def compare_pinned(self, value: Value, way: str) -> None:
        self.release_pinned(value, way)
        torch.testing.assert_close(value.ours, value.theirs, rtol=0, atol=0, equal_nan=True)

    def release_pinned(self, value: Value, way: str) -> None:
        """Makes the host wait until no copy uses a pinned tensor's memory."""
        for place, event in list(value.memory.users.items()):
            self.wait(place, event, way)
        value.memory.users.clear()

    # ----------------------------------------------------------- checks after a step and at the end

    def check_statistics(self) -> None:
        for device in range(DEVICES):
            stats = torch.openreg.memory_stats_as_nested_dict(device)
            held = [stats[f"{name}_bytes"]["all"] for name in ("allocated", "active", "reserved")]
            assert 0 <= held[0]["current"] <= held[1]["current"] <= held[2]["current"], held
            assert all(figure["current"] <= figure["peak"] for figure in held), held

    def memory_held(self) -> dict[str, int]:
        """Returns the quantities that must not grow during a program."""
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
        """Frees everything. If `strict` is false, accepts any state that a failure left."""
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
