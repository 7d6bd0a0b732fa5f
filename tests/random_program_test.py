# SPDX-License-Identifier: BSD-3-Clause
"""Runs random programs on the CPU and on the device, and compares the results.

A program creates tensors and views, changes tensors in place, and computes gradients and random
numbers. It copies between devices and pinned memory, and switches streams. It also keeps streams
busy, so that it frees, resizes and overwrites tensors while kernels that use them are still queued.
After each read and at the end, all values must be bitwise equal to the CPU's. The values are small
integers, so a sum does not depend on the order of its terms. A call that fails on one side must
also fail on the other.

Each step of a program calls a method of ``Program``. A program can be written as text, one step per
line. The driver aten/random_program/ runs the same programs without Python, for the sanitizers. The
tests at the end of this file exchange programs with the driver in both directions. A change to a
step or its arguments must therefore be made in both.

``OPENREG_PROGRAMS`` sets the number of programs (default: 40).
"""

import functools
import inspect
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, note, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)
from torch import Tensor

DRIVER = Path(
    os.environ.get("TEST_SRCDIR", ""),
    os.environ.get("TEST_WORKSPACE", ""),
    "aten/random_program/random_program_test",
)
MOST = 12  # maximum number of tensors

Operator = Callable[..., Tensor]


def wrap(tensor: Tensor) -> Tensor:
    """Keeps values small, so that floating-point arithmetic stays exact."""
    return tensor.remainder(97)


def foreach_add_(x: Tensor, y: Tensor) -> Tensor:
    torch._foreach_add_([x], [y])
    return x


def replace(x: Tensor, y: Tensor) -> Tensor:
    x = x.clone()
    x.data = y
    return x


VIEWS: dict[str, Operator] = {
    "transpose": lambda x, n: x.transpose(0, -1),
    "select": lambda x, n: x.select(0, n),
    "narrow": lambda x, n: x[n:],
    "step": lambda x, n: x[..., :: n + 1],
    "flatten": lambda x, n: x.view(-1),
    "expand": lambda x, n: x.unsqueeze(0).expand(n + 1, *x.shape),
    "unsqueeze": lambda x, n: x.unsqueeze(-1),
    "diagonal": lambda x, n: x.diagonal(),
    "squeeze": lambda x, n: x.squeeze(),
    "unfold": lambda x, n: x.unfold(0, 2, 1),
    "detach": lambda x, n: x.detach(),
}
BINARY: dict[str, Operator] = {
    "add": lambda x, y: wrap(x + y),
    "sub": lambda x, y: wrap(x - y),
    "mul": lambda x, y: wrap(x * y),
    "max": torch.maximum,
    "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack([x, y]),
    "where": lambda x, y: torch.where(x > y, x, y),
    "matmul": lambda x, y: wrap(x @ y),
}
UNARY: dict[str, Operator] = {
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
    "mode": lambda x: x.mode(-1).values,
    # Conversions to sparse and quantized tensors, and back.
    "sparse": lambda x: x.to_sparse().coalesce().to_dense(),
    "csr": lambda x: x.to_sparse_csr().to_dense(),
    "quantize": lambda x: torch.quantize_per_tensor(x.float(), 1, 0, torch.qint32).dequantize(),
    # This is large enough for a team of threads, but the sum fits into the 24 bits of a float.
    "large": lambda x: wrap(
        wrap(torch.arange(1 << 17, dtype=x.dtype, device=x.device) + wrap(x.sum())).sum()
    ),
}
CHANGES: dict[str, Operator] = {
    "copy_": lambda x, y: x.copy_(y),
    "add_": lambda x, y: x.add_(y).remainder_(97),
    "sub_": lambda x, y: x.sub_(y).remainder_(97),
    "mul_": lambda x, y: x.mul_(y).remainder_(97),
    # With different shapes, torch would resize x, and views of x could be out of bounds.
    "out": lambda x, y: torch.neg(y, out=x) if x.shape == y.shape else x,
    "index_add_": lambda x, y: x.index_add_(
        0, torch.zeros(y.shape[0], dtype=torch.int64, device=x.device), y
    ).remainder_(97),
    "clamp_": lambda x, y: x.clamp_(max=y),
    "foreach": lambda x, y: foreach_add_(x, y).remainder_(97),
}
CHANGES_BY_NUMBER: dict[str, Operator] = {
    "fill_": lambda x, n: x.fill_(n),
    "zero_": lambda x, n: x.zero_(),
    "neg_": lambda x, n: x.neg_(),
    "add": lambda x, n: x.add_(n).remainder_(97),
    "set": lambda x, n: x.index_put_((x > n,), torch.full((), n, dtype=x.dtype, device=x.device)),
    "shrink": lambda x, n: x.resize_(x.numel() // 2) if x.is_contiguous() else x,
}
SWAPS: dict[str, Operator] = {
    # A smaller size, because a larger tensor would have uninitialized elements.
    "resize_": lambda x, y: x.clone().resize_(x.numel() // 2),
    "set_": lambda x, y: torch.empty(0, dtype=y.dtype, device=y.device).set_(y),
    "data": replace,
}
DRAWS: dict[str, Operator] = {
    "random_": lambda x, g: torch.empty_like(x).random_(-9, 10, generator=g),
    "bernoulli_": lambda x, g: torch.empty_like(x).bernoulli_(0.5, generator=g),
    "geometric_": lambda x, g: torch.empty_like(x).geometric_(0.5, generator=g),
    "randperm": lambda x, g: wrap(torch.randperm(x.numel(), generator=g, device=x.device)),
}
DTYPES = ("int64", "float32", "float64", "int32")

# Strategies for arguments. A shape is written like 2x3, or as "number" for a 0-dim tensor.
shapes = st.lists(st.integers(0, 4), max_size=3).map(lambda sizes: shape_text(sizes))
tensors = st.integers(0, MOST - 1)  # modulo the number of tensors
devices = st.integers(0, 1)
flags = st.integers(0, 1)


def shape_text(sizes: list[int] | torch.Size) -> str:
    return "x".join(map(str, sizes)) or "number"


def strides(tensor: Tensor) -> list[int]:
    """Returns the strides, except in dimensions of size 0 or 1, where they affect no address."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in steps if size > 1 and tensor.numel()]


class Failed:
    """The result of a call that raised an exception."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __repr__(self) -> str:
        return f"Failed({self.error!r})"


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    # The device and the CPU may raise different exception classes. Other tests compare these.
    try:
        return function(*arguments)
    except (RuntimeError, IndexError, ValueError) as error:
        return Failed(error)


def step(function: Callable[..., None]) -> Callable[..., None]:
    """Decorates a step. Records each call as text, and skips it if there is no tensor to use."""
    parameters = list(inspect.signature(function).parameters)[1:]

    @functools.wraps(function)
    def written(self: "Program", **arguments: Any) -> None:
        words = (str(arguments[parameter]) for parameter in parameters)
        self.steps.append(" ".join([function.__name__, *words]))
        if self.pairs or "a" not in parameters:
            function(self, **arguments)

    return written


wants_tensor = precondition(lambda machine: bool(machine.pairs))


class Program(RuleBasedStateMachine):
    """A random program on pairs of a CPU tensor and a device tensor. Both must stay equal."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[Tensor, Tensor]] = []
        self.steps: list[str] = []
        self.threads: list[threading.Thread] = []
        self.events = [torch.Event(f"openreg:{device}") for device in range(2)]
        self.made = 0
        self.before = [torch.accelerator.current_stream(device) for device in range(2)]
        self.streams = [
            [torch.Stream(f"openreg:{device}"), torch.Stream(f"openreg:{device}"), before]
            for device, before in enumerate(self.before)
        ]
        self.current = list(self.before)

    # ------------------------------------------------------------------------------ current streams

    def make_current(self) -> None:
        for stream in self.current:
            with torch.openreg.device(stream.device):
                torch.openreg.set_stream(stream)

    # ----------------------------------------------------------------- comparison of device and CPU

    def pick(self, index: int) -> tuple[Tensor, Tensor]:
        return self.pairs[index % len(self.pairs)]

    def keep(self, theirs: Tensor, ours: Tensor) -> None:
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert strides(ours) == strides(theirs)
        if theirs.numel() <= 4096:
            self.pairs.append((theirs, ours))
        if len(self.pairs) > MOST:
            self.pairs.pop(0)  # the tensor is freed, even if work on it is queued

    def call(self, theirs: Any, function: Operator, where: Tensor, *others: Tensor) -> Any:
        """Calls a function on the device. The call must fail if it failed on the CPU (`theirs`).

        Some calls raise their error only in a later synchronization, which may be the second one:
        the first synchronization raises the error of queued work, and the second raises the error
        of the next call in the same step.
        """
        ours = attempt(function, where, *others)
        if isinstance(theirs, Failed):
            late = attempt(self.current[where.device.index].synchronize)
            ours = ours if isinstance(ours, Failed) else late
        assert isinstance(ours, Failed) == isinstance(theirs, Failed), (theirs, ours)
        return ours

    def both(self, function: Operator, *chosen: int) -> None:
        """Calls a function on the CPU and the device, compares the results, and keeps them.

        Args:
            function: returns a new tensor.
            chosen: indices of the arguments. The call is skipped if the tensors are on different
                devices.
        """
        theirs, ours = zip(*(self.pick(index) for index in chosen), strict=True)
        if len({tensor.device for tensor in ours}) == 1:
            expected = attempt(function, *theirs)
            found = self.call(expected, function, *ours)
            if not isinstance(expected, Failed):
                self.keep(expected, found)

    def in_place(self, function: Operator, *chosen: int) -> None:
        """Like ``both``, for a function that changes its first argument. Keeps no result."""
        theirs, ours = zip(*(self.pick(index) for index in chosen), strict=True)
        if len({tensor.device for tensor in ours}) == 1:
            self.call(attempt(function, *theirs), function, *ours)

    # ---------------------------------------------------------------------------- steps of programs

    @rule(shape=shapes, dtype=st.sampled_from(DTYPES), device=devices)
    @step
    def new(self, shape: str, dtype: str, device: int) -> None:
        self.made += 1
        sizes = [int(size) for size in shape.split("x")] if shape != "number" else []
        generator = torch.Generator().manual_seed(self.made)
        theirs = torch.randint(-9, 10, sizes, generator=generator).to(getattr(torch, dtype))
        self.keep(theirs, theirs.to(f"openreg:{device}"))

    @wants_tensor
    @rule(a=tensors, operator=st.sampled_from(sorted(VIEWS)), n=st.integers(0, 3))
    @step
    def view(self, a: int, operator: str, n: int) -> None:
        self.both(lambda x: VIEWS[operator](x, n), a)

    @wants_tensor
    @rule(a=tensors, b=tensors, operator=st.sampled_from(sorted(BINARY)))
    @step
    def binary(self, a: int, b: int, operator: str) -> None:
        self.both(BINARY[operator], a, b)

    @wants_tensor
    @rule(a=tensors, operator=st.sampled_from(sorted(UNARY)))
    @step
    def unary(self, a: int, operator: str) -> None:
        self.both(UNARY[operator], a)

    @wants_tensor
    @rule(a=tensors, b=tensors, operator=st.sampled_from(sorted(CHANGES)))
    @step
    def change(self, a: int, b: int, operator: str) -> None:
        self.in_place(CHANGES[operator], a, b)

    @wants_tensor
    @rule(a=tensors, n=st.integers(-3, 3), operator=st.sampled_from(sorted(CHANGES_BY_NUMBER)))
    @step
    def change_by_number(self, a: int, n: int, operator: str) -> None:
        self.in_place(lambda x: CHANGES_BY_NUMBER[operator](x, n), a)

    @wants_tensor
    @rule(a=tensors, b=tensors, operator=st.sampled_from(sorted(SWAPS)))
    @step
    def swap_storage(self, a: int, b: int, operator: str) -> None:
        """Replaces a storage. Queued work must continue to use the memory of its launch."""
        self.both(SWAPS[operator], a, b)

    @wants_tensor
    @rule(a=tensors, operator=st.sampled_from(sorted(DRAWS)), seed=st.integers(0, 9))
    @step
    def draw(self, a: int, operator: str, seed: int) -> None:
        """Draws twice with the same seed. Both draws must be equal, whatever work is queued."""
        like = self.pick(a)[1]
        generator = torch.Generator(like.device)
        first, second = (DRAWS[operator](like, generator.manual_seed(seed)) for _ in range(2))
        self.keep(first.cpu(), second)

    @wants_tensor
    @rule(a=tensors, b=tensors, number=st.integers(0, 2))
    @step
    def backward(self, a: int, b: int, number: int) -> None:
        """Computes gradients of (x * x * y).sum(). The second product runs on a given stream."""

        def leaf(tensor: Tensor) -> Tensor:
            return tensor.detach().to(torch.float64, copy=True).requires_grad_()

        def gradients(x: Tensor, y: Tensor) -> Tensor:
            x, y = leaf(x), leaf(y)
            square = x * x
            if x.is_cpu:
                total = (square * y).sum()
            else:
                here = self.current[x.device.index]
                there = self.streams[x.device.index][number]
                there.wait_stream(here)
                try:
                    with torch.openreg.stream(there):
                        total = (square * y).sum()
                finally:
                    square.record_stream(there)
                    y.record_stream(there)
                    here.wait_stream(there)
            total.backward()
            assert x.grad is not None
            assert y.grad is not None
            return wrap(torch.cat([x.grad.reshape(-1), y.grad.reshape(-1)]))

        self.both(gradients, a, b)

    @wants_tensor
    @rule(a=tensors, device=devices, non_blocking=flags)
    @step
    def move(self, a: int, device: int, non_blocking: int) -> None:
        theirs, ours = self.pick(a)
        moved = ours.to(f"openreg:{device}", non_blocking=bool(non_blocking), copy=True)
        self.keep(theirs.clone(), moved)

    @wants_tensor
    @rule(a=tensors, way=st.sampled_from(["stream", "event", "query"]))
    @step
    def round_trip(self, a: int, way: str) -> None:
        """Copies a tensor through pinned memory, and drops it while the copy back is queued."""
        theirs, ours = self.pick(a)
        stream = self.current[ours.device.index]
        pinned = torch.empty(ours.shape, dtype=ours.dtype, pin_memory=True)
        pinned.copy_(ours, non_blocking=True)
        if way == "stream":
            stream.synchronize()
        else:
            event = stream.record_event()
            if way == "event":
                event.synchronize()
            while not event.query():
                pass
        assert torch.equal(pinned, theirs)
        copy = theirs.clone(memory_format=torch.contiguous_format)
        self.keep(copy, pinned.to(ours.device, non_blocking=True))

    @wants_tensor
    @rule(a=tensors, operator=st.sampled_from(["clone", "forget", "nonzero", "square", "sum"]))
    @step
    def elsewhere(self, a: int, operator: str) -> None:
        """Runs an operator on another thread, but on the current streams.

        If the operator is ``forget``, the thread drops a tensor, and may outlive the step.
        """
        if operator == "forget":
            last = [self.pairs.pop(a % len(self.pairs))[1]]
            self.threads.append(threading.Thread(target=last.clear))
            self.threads[-1].start()
            return

        def compute(x: Tensor) -> Tensor:
            if x.is_cpu:
                return UNARY[operator](x)
            results: list[Tensor | Failed] = []

            def target() -> None:
                self.make_current()
                results.append(attempt(UNARY[operator], x))

            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
            (result,) = results
            if isinstance(result, Failed):
                raise result.error
            return result

        self.both(compute, a)

    @rule(device=devices, number=st.integers(0, 2), by_event=flags)
    @step
    def switch_stream(self, device: int, number: int, by_event: int) -> None:
        """Makes another stream current, which first waits for all queued work on both devices."""
        stream = self.streams[device][number]
        for earlier, event in zip(self.current, self.events, strict=True):
            if by_event:
                event.record(earlier)  # records again while streams wait for the earlier record
                stream.wait_event(event)
            else:
                stream.wait_stream(earlier)
        self.current[1 - device].wait_stream(stream)
        self.current[device] = stream
        self.make_current()
        # Later steps use the tensors on a different stream from the one that allocated them.
        for _, ours in self.pairs:
            if ours.device == stream.device:
                ours.record_stream(stream)

    @rule(device=devices)
    @step
    def fall_behind(self, device: int) -> None:
        with torch.openreg.device(device):
            torch.openreg._sleep(200_000)

    @wants_tensor
    @rule(a=tensors)
    @step
    def forget(self, a: int) -> None:
        self.pairs.pop(a % len(self.pairs))

    @wants_tensor
    @rule(a=tensors)
    @step
    def read(self, a: int) -> None:
        theirs, ours = self.pick(a)
        assert torch.equal(ours.cpu(), theirs)

    def teardown(self) -> None:
        note("\n".join(self.steps))  # input for aten/random_program/random_program_test --replay
        self.finish()

    def finish(self) -> None:
        try:
            for theirs, ours in self.pairs:
                assert torch.equal(ours.cpu(), theirs)
        finally:
            for thread in self.threads:
                thread.join()
            self.current = self.before
            self.make_current()
            for streams in self.streams:
                for stream in streams:
                    attempt(stream.synchronize)  # an error must not reach the next program

    # ----------------------------------------------------------------- programs and results as text

    def results(self) -> list[str]:
        """Returns the values of the CPU tensors as text, one line per tensor."""
        return [
            " ".join(
                [
                    f"= {str(theirs.dtype).removeprefix('torch.')} {shape_text(theirs.shape)}",
                    *(str(int(value)) for value in theirs.flatten().tolist()),
                ]
            )
            for theirs, _ in self.pairs
        ]

    def replay(self, steps: list[str]) -> None:
        for text in steps:
            name, *words = text.split()
            function = getattr(type(self), name)
            types = inspect.get_annotations(inspect.unwrap(function))
            parameters = list(inspect.signature(function).parameters)[1:]
            arguments = zip(parameters, words, strict=True)
            function(self, **{key: types[key](word) for key, word in arguments})


# Ignores torch's warnings about deprecated features and prototypes.
quiet = pytest.mark.filterwarnings(
    "ignore:An output with one or more elements was resized",
    "ignore:Sparse CSR tensor support",
    "ignore:torch.quantize_per_tensor",
    "ignore:Use of .* on expanded tensors is deprecated",
)


def some(programs: int) -> settings:
    return settings(
        max_examples=programs,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


Program.TestCase.settings = some(int(os.environ.get("OPENREG_PROGRAMS", "40")))
TestProgram = quiet(Program.TestCase)


def driver(*flags: str) -> list[list[str]]:
    """Runs the driver. Returns, for each program, the lines with its steps and results."""
    done = subprocess.run([DRIVER, "--show", *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [program.splitlines() for program in done.stdout.split("\n\n") if program]


@quiet
def test_the_driver_runs_programs_of_this_test(tmp_path: Path) -> None:
    written: list[list[str]] = []

    class Written(Program):
        def teardown(self) -> None:
            if self.steps:
                written.append(self.steps + self.results())
            super().teardown()

    run_state_machine_as_test(Written, settings=some(30))
    file = tmp_path / "programs"
    file.write_text("\n\n".join("\n".join(program) for program in written))
    assert driver(f"--replay={file}") == written


@quiet
def test_programs_of_the_driver_run_here() -> None:
    programs = driver("--programs=30", "--seed=1000")
    assert len(programs) == 30
    for lines in programs:
        program = Program()
        try:
            program.replay([line for line in lines if not line.startswith("=")])
            assert program.steps + program.results() == lines
        finally:
            program.finish()
