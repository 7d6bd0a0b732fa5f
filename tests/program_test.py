# SPDX-License-Identifier: BSD-3-Clause
"""Random programs, on the CPU and on the device side by side.

A program makes tensors, views and in-place changes of them, copies between devices and pinned
memory, switches streams, and lets streams fall behind, so that tensors are freed, resized and
written again while kernels that use them are still queued. After each read, and at its end, all
values must be those of the CPU, bit for bit: the numbers are small integers, so that no sum depends
on its order. A call that fails must fail alike.

``OPENREG_PROGRAMS`` sets how many programs run (default: 40).
"""

import os
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from torch import Tensor

DEVICES = (torch.device("openreg:0"), torch.device("openreg:1"))
DTYPES = (torch.int64, torch.float32, torch.float64, torch.int32)
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
MOST = 12  # tensors at a time

indices = st.integers(0, 1 << 16)
small = st.integers(-3, 3)


class Failed:
    """What a call raised."""

    def __init__(self, error: Exception) -> None:
        self.kind = type(error)

    def __eq__(self, other: object) -> bool:
        # The exceptions may be of different classes: others look at that more closely.
        return isinstance(other, Failed)

    __hash__ = None  # type: ignore[assignment]


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (RuntimeError, IndexError, ValueError) as error:
        return Failed(error)


def wrap(tensor: Tensor) -> Tensor:
    """Keep the numbers small, so that floating-point arithmetic stays exact."""
    return tensor.remainder(97)


class Program(RuleBasedStateMachine):
    """Pairs of tensors that must stay equal: of the CPU, of the device."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[Tensor, Tensor]] = []

    @initialize()
    def start(self) -> None:
        self.streams = {
            device: [torch.Stream(device) for _ in range(2)]
            + [torch.accelerator.current_stream(device)]
            for device in DEVICES
        }
        self.current = {device: streams[-1] for device, streams in self.streams.items()}
        self.before = dict(self.current)
        self.seed = 0

    # ----------------------------------------------------------------------------------- tensors

    def pick(self, index: int) -> tuple[Tensor, Tensor]:
        return self.pairs[index % len(self.pairs)]

    def keep(self, theirs: Any, ours: Any) -> None:
        assert isinstance(ours, Failed) == isinstance(theirs, Failed), (theirs, ours)
        if isinstance(theirs, Failed):
            torch.accelerator.synchronize(0)
            return
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if theirs.numel() <= 4096:
            self.pairs.append((theirs, ours))
        if len(self.pairs) > MOST:
            self.pairs.pop(0)  # freed, whatever is still queued

    def run(
        self, function: Callable[..., Any], picked: list[tuple[Tensor, Tensor]], theirs: Any
    ) -> Any:
        """Call it on the device. Errors of values come with the next synchronization."""
        ours = attempt(function, *(pair[1] for pair in picked))
        if isinstance(theirs, Failed) and not isinstance(ours, Failed):
            failed = attempt(torch.openreg.synchronize, picked[0][1].device)
            return ours if failed is None else failed
        return ours

    def both(self, function: Callable[..., Tensor], *chosen: int) -> None:
        picked = [self.pick(index) for index in chosen]
        theirs = attempt(function, *(pair[0] for pair in picked))
        self.keep(theirs, self.run(function, picked, theirs))

    def in_place(self, function: Callable[..., Any], *chosen: int) -> None:
        """As ``both``, for a function that changes its first argument and returns nothing new."""
        picked = [self.pick(index) for index in chosen]
        devices = {pair[1].device for pair in picked}
        if len(devices) > 1:
            return
        theirs = attempt(function, *(pair[0] for pair in picked))
        ours = self.run(function, picked, theirs)
        assert isinstance(ours, Failed) == isinstance(theirs, Failed), (theirs, ours)

    @rule(shape=SHAPES, dtype=st.sampled_from(DTYPES), device=st.sampled_from(DEVICES))
    def new(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.seed += 1
        generator = torch.Generator().manual_seed(self.seed)
        theirs = torch.randint(-9, 10, shape, generator=generator).to(dtype)
        self.keep(theirs, theirs.to(device))

    @precondition(lambda self: self.pairs)
    @rule(
        a=indices,
        view=st.sampled_from(
            [
                "transpose", "select", "narrow", "step", "flatten", "expand", "unsqueeze",
                "diagonal", "squeeze", "unfold", "detach",
            ]
        ),
        n=st.integers(0, 3),
    )  # fmt: skip
    def view(self, a: int, view: str, n: int) -> None:
        views: dict[str, Callable[[Tensor], Tensor]] = {
            "transpose": lambda t: t.transpose(0, -1),
            "select": lambda t: t.select(0, n),
            "narrow": lambda t: t[n:],
            "step": lambda t: t[..., :: n + 1],
            "flatten": lambda t: t.view(-1),
            "expand": lambda t: t.unsqueeze(0).expand(n + 1, *t.shape),
            "unsqueeze": lambda t: t.unsqueeze(-1),
            "diagonal": lambda t: t.diagonal(),
            "squeeze": lambda t: t.squeeze(),
            "unfold": lambda t: t.unfold(0, 2, 1),
            "detach": lambda t: t.detach(),
        }
        self.both(views[view], a)

    @precondition(lambda self: self.pairs)
    @rule(
        a=indices,
        b=indices,
        operator=st.sampled_from(["add", "sub", "mul", "max", "cat", "where", "stack"]),
    )
    def binary(self, a: int, b: int, operator: str) -> None:
        if self.pick(a)[1].device != self.pick(b)[1].device:
            return
        operators: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            "add": lambda x, y: wrap(x + y),
            "sub": lambda x, y: wrap(x - y),
            "mul": lambda x, y: wrap(x * y),
            "max": torch.maximum,
            "cat": lambda x, y: torch.cat([x, y]),
            "stack": lambda x, y: torch.stack([x, y]),
            "where": lambda x, y: torch.where(x > y, x, y),
        }
        self.both(operators[operator], a, b)

    @precondition(lambda self: self.pairs)
    @rule(
        a=indices,
        operator=st.sampled_from(
            ["sum", "cumsum", "flip", "sort", "clone", "double", "int", "contiguous", "amax",
             "nonzero", "unique", "roll", "tril", "square", "index", "mask"]
        ),
    )  # fmt: skip
    def unary(self, a: int, operator: str) -> None:
        operators: dict[str, Callable[[Tensor], Tensor]] = {
            "sum": lambda x: wrap(x.sum(0)),
            "cumsum": lambda x: wrap(x.cumsum(-1)),
            "flip": lambda x: x.flip(0),
            "sort": lambda x: x.sort(dim=-1, stable=True).values,
            "clone": torch.clone,
            "double": torch.Tensor.double,
            "int": torch.Tensor.int,
            "contiguous": torch.Tensor.contiguous,
            "amax": lambda x: x.amax(-1, keepdim=True),
            "nonzero": torch.nonzero,
            "unique": torch.unique,
            "roll": lambda x: x.roll(1, 0),
            "tril": torch.tril,
            "square": lambda x: wrap(x * x),
            "index": lambda x: x[torch.tensor([0, 0, 1], device=x.device)],
            "mask": lambda x: x[x > 0],
        }
        self.both(operators[operator], a)

    # ---------------------------------------------------------------------------------- in place

    @precondition(lambda self: self.pairs)
    @rule(
        a=indices,
        b=indices,
        operator=st.sampled_from(["copy_", "add_", "sub_", "mul_", "out", "index_add_", "clamp_"]),
    )
    def change(self, a: int, b: int, operator: str) -> None:
        operators: dict[str, Callable[[Tensor, Tensor], Any]] = {
            "copy_": lambda x, y: x.copy_(y),
            "add_": lambda x, y: x.add_(y).remainder_(97),
            "sub_": lambda x, y: x.sub_(y).remainder_(97),
            "mul_": lambda x, y: x.mul_(y).remainder_(97),
            "out": lambda x, y: torch.neg(y, out=x),
            "index_add_": lambda x, y: x.index_add_(
                0, torch.zeros(y.shape[0], dtype=torch.int64, device=x.device), y
            ).remainder_(97),
            "clamp_": lambda x, y: x.clamp_(max=y),
        }
        if operator == "out" and self.pick(a)[0].shape != self.pick(b)[0].shape:
            return  # torch warns and resizes: its views would then lie outside
        self.in_place(operators[operator], a, b)

    @precondition(lambda self: self.pairs)
    @rule(a=indices, n=small, operator=st.sampled_from(["fill_", "zero_", "neg_", "add", "set"]))
    def change_by_number(self, a: int, n: int, operator: str) -> None:
        operators: dict[str, Callable[[Tensor], Any]] = {
            "fill_": lambda x: x.fill_(n),
            "zero_": lambda x: x.zero_(),
            "neg_": lambda x: x.neg_(),
            "add": lambda x: x.add_(n).remainder_(97),
            "set": lambda x: x[x > n].add_(1),
        }
        self.in_place(operators[operator], a)

    @precondition(lambda self: self.pairs)
    @rule(a=indices, b=indices, operator=st.sampled_from(["set_", "resize_", "data"]))
    def swap_storage(self, a: int, b: int, operator: str) -> None:
        """What is queued keeps the memory that it was launched with."""
        if operator == "resize_":
            # A new tensor: a larger one has elements that nobody wrote.
            self.both(lambda x: x.clone().resize_(x.numel() // 2), a)
        elif operator == "set_":
            self.both(lambda x, y: torch.empty(0, dtype=y.dtype, device=y.device).set_(y), a, b)
        else:

            def replace(x: Tensor, y: Tensor) -> Tensor:
                x = x.clone()
                x.data = y
                return x

            if self.pick(a)[1].device == self.pick(b)[1].device:
                self.both(replace, a, b)

    # -------------------------------------------------------------------- copies, streams, events

    @precondition(lambda self: self.pairs)
    @rule(a=indices, device=st.sampled_from(DEVICES), non_blocking=st.booleans())
    def move(self, a: int, device: torch.device, non_blocking: bool) -> None:
        theirs, ours = self.pick(a)
        self.keep(theirs.clone(), ours.to(device, non_blocking=non_blocking, copy=True))

    @precondition(lambda self: self.pairs)
    @rule(a=indices)
    def round_trip(self, a: int) -> None:
        """Through pinned memory, whose last reference goes while the copy back is queued."""
        theirs, ours = self.pick(a)
        pinned = torch.empty(ours.shape, dtype=ours.dtype, pin_memory=True)
        pinned.copy_(ours, non_blocking=True)
        torch.accelerator.current_stream(ours.device).synchronize()
        self.keep(theirs.clone(), pinned.to(ours.device, non_blocking=True))

    @rule(device=st.sampled_from(DEVICES), number=st.integers(0, 2), by_event=st.booleans())
    def switch_stream(self, device: torch.device, number: int, by_event: bool) -> None:
        """The new stream goes on behind all that was queued, on both devices."""
        stream = self.streams[device][number]
        for earlier in self.current.values():
            if by_event:
                stream.wait_event(earlier.record_event())
            else:
                stream.wait_stream(earlier)
        with torch.openreg.device(device):
            torch.openreg.set_stream(stream)
        other = self.current[DEVICES[1 - DEVICES.index(device)]]
        other.wait_stream(self.current[device])
        self.current[device] = stream
        # Memory is used on another stream than the one that it was allocated on.
        for _, ours in self.pairs:
            if ours.device == device:
                ours.record_stream(stream)

    @rule(device=st.sampled_from(DEVICES))
    def fall_behind(self, device: torch.device) -> None:
        with torch.openreg.device(device):
            torch.openreg._sleep(200_000)

    @precondition(lambda self: self.pairs)
    @rule(a=indices)
    def forget(self, a: int) -> None:
        self.pairs.pop(a % len(self.pairs))

    @precondition(lambda self: self.pairs)
    @rule(a=indices)
    def read(self, a: int) -> None:
        theirs, ours = self.pick(a)
        assert torch.equal(ours.cpu(), theirs)

    def teardown(self) -> None:
        try:
            for theirs, ours in self.pairs:
                assert torch.equal(ours.cpu(), theirs)
        finally:
            for device, stream in getattr(self, "before", {}).items():
                with torch.openreg.device(device):
                    torch.openreg.set_stream(stream)
            torch.accelerator.synchronize(0)


Program.TestCase.settings = settings(
    max_examples=int(os.environ.get("OPENREG_PROGRAMS", "40")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestProgram = pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")(
    Program.TestCase
)
