# SPDX-License-Identifier: BSD-3-Clause
"""Rules for tensors: creating, changing, moving and dropping them, and gradients."""

import contextlib
from collections.abc import Iterator

import hypothesis.strategies as st
import torch
from torch import Tensor

from tests.feature_program.model import Value
from tests.feature_program.operators import CHANGES, FUNCTIONS, GRADIENTS, OUTS, SPOILS, VIEWS, wrap
from tests.feature_program.program import Missing, Program
from tests.feature_program.rules import devices, flags, rule, some, streams
from tests.feature_program.streams import fall_behind


@rule(size=st.integers(0, 9), dtype=st.sampled_from(["float32", "int64"]), device=devices)
def new(program: Program, size: int, dtype: str, device: int) -> None:
    """Copies from pageable memory. The program may change this memory immediately afterwards."""
    theirs = program.new_values(size).to(getattr(torch, dtype))
    source = theirs.clone()
    program.settle(program.place(device))  # on an idle stream, the copy is synchronous
    ours = source.to(f"openreg:{device}", non_blocking=True)
    source.fill_(-1)
    program.keep_result((theirs, ours))


@rule(device=devices, size=st.sampled_from([1 << 12, 300_000]))
def new_large(program: Program, device: int, size: int) -> None:
    """Creates a tensor in a separate segment, most of which is never written."""
    ours = torch.empty(size * 8, device=f"openreg:{device}")[-8:].fill_(5)
    program.keep_result((torch.full((8,), 5.0), ours))


@rule(a=some, operator=st.sampled_from(sorted(VIEWS)), n=st.integers(0, 3))
def view(program: Program, a: int, operator: str, n: int) -> None:
    x = program.pick(a)
    program.keep_result(program.both((operator, n), lambda x: VIEWS[operator](x, n), x), x)


@rule(a=some, operator=st.sampled_from(sorted(FUNCTIONS)))
def compute(program: Program, a: int, operator: str) -> None:
    x = program.pick(a)
    program.keep_result(program.both((operator,), FUNCTIONS[operator], x), x)


@rule(a=some, b=some)
def combine(program: Program, a: int, b: int) -> None:
    """Combines two values, which may come from different streams."""
    x = program.pick(a)
    y = program.pick(b, x.ours.device.index)
    program.keep_result(program.both(("combine",), lambda x, y: wrap(x + wrap(y.sum())), x, y))


@rule(a=some, n=st.integers(0, 9), operator=st.sampled_from(sorted(CHANGES)))
def change(program: Program, a: int, n: int, operator: str) -> None:
    x = program.pick(a)
    program.both((operator, n), lambda x: CHANGES[operator](x, n), x, write=True)


@rule(a=some, b=some)
def change_by(program: Program, a: int, b: int) -> None:
    x = program.pick(a)
    y = program.pick(b, x.ours.device.index)
    program.both(
        ("change_by",),
        lambda x, y: x.add_(wrap(y.sum()).to(x.dtype)).remainder_(97),
        x,
        y,
        write=True,
    )


@rule(a=some, b=some, operator=st.sampled_from(sorted(OUTS)), way=st.sampled_from(["new", "end"]))
def out(program: Program, a: int, b: int, operator: str, way: str) -> None:
    """Writes to an empty ``out=``, which grows: a new tensor, or a view at the end of a storage."""
    x = program.pick(a)
    if way == "new":
        program.keep_result(program.both(("out",), lambda x: OUTS[operator](x, x.new_empty(0)), x))
        return
    base = program.pick(b, x.ours.device.index)
    if (
        base.memory.fixed
        or base.memory is x.memory
        or base.theirs.dtype != x.theirs.dtype
        or not base.theirs.is_contiguous()
    ):
        raise Missing
    with moving(program, base):
        program.both(
            ("out",),
            lambda x, base: OUTS[operator](x, base.detach().view(-1)[base.numel() :]),
            x,
            base,
            write=True,
        )


@contextlib.contextmanager
def moving(program: Program, value: Value) -> Iterator[None]:
    """Updates the memory's stream if the block moves the storage to new memory."""
    before = value.ours.untyped_storage().data_ptr()
    yield
    if value.ours.untyped_storage().data_ptr() != before:
        value.memory.place = program.place_of(value)


@rule(a=some, size=st.integers(0, 12), n=st.integers(0, 9))
def resize(program: Program, a: int, size: int, n: int) -> None:
    x = program.pick(a)
    if x.memory.fixed:
        raise Missing
    with moving(program, x):
        call = ("resize_", size, n)
        result = program.both(call, lambda x: x.resize_(size).fill_(n), x, write=True)
    # Outside inference mode, torch resizes an inference tensor and then raises an error, so fill_()
    # does not run.
    if isinstance(result[0], Exception):
        program.values.remove(x)


@rule(a=some, b=some)
def swap(program: Program, a: int, b: int) -> None:
    """Swaps two storages. An old storage may be freed while it is still in use."""
    x = program.pick(a)
    y = program.pick(b, x.ours.device.index)
    if x.theirs.dtype != y.theirs.dtype:
        raise Missing
    result = program.both(("set_",), lambda x, y: x.set_(y), x, y)
    if not isinstance(result[0], Exception):
        x.memory = y.memory


@rule(a=some, device=devices, non_blocking=flags)
def move(program: Program, a: int, device: int, non_blocking: bool) -> None:
    """Copies between devices. The copy involves the current streams of both devices."""
    x = program.pick(a)
    source, target = program.place_of(x), program.place(device)
    program.order(source, x.memory)
    theirs = x.theirs.clone()
    ours = x.ours.to(f"openreg:{device}", non_blocking=non_blocking, copy=True)
    program.used(source, x)
    program.used(target, x)
    program.keep_result((theirs, ours))


@rule(a=some, n=st.integers(0, 5))
def host_argument(program: Program, a: int, n: int) -> None:
    """Changes CPU tensors immediately after the calls that use them. Results must not change."""
    x = program.pick(a)
    if x.theirs.numel() == 0:
        raise Missing

    def function(x: Tensor) -> Tensor:
        number, index = torch.tensor(n), torch.tensor([0, 0])
        result = (wrap(x + number), x.flatten()[index])
        number.fill_(50)
        index.fill_(-1)
        return torch.cat([part.flatten() for part in result])

    program.keep_result(program.both(("host_argument",), function, x))


@rule(a=some)
def queue_python(program: Program, a: int) -> None:
    """Queues a kernel that needs the GIL. No thread may therefore wait with the GIL held."""
    x = program.pick(a)
    program.settle(program.place_of(x))  # for new sizes, the kernel is synchronous
    fall_behind(program, x.ours.device.index, 2000)
    program.keep_result(program.both(("trace",), lambda x: x.reshape(1, -1).trace(), x))


@rule(a=some)
def forget(program: Program, a: int) -> None:
    """Drops a value, even if work on it is still queued."""
    program.values.remove(program.pick(a))


@rule(a=some)
def forget_elsewhere(program: Program, a: int) -> None:
    """Drops a value on the other thread."""
    last = [program.pick(a)]
    program.values.remove(last[0])
    program.on_worker(1 - program.worker, last.clear)


@rule(a=some)
def read(program: Program, a: int) -> None:
    program.compare(program.pick(a))


@rule(
    a=some,
    operator=st.sampled_from(sorted(GRADIENTS)),
    spoil=st.sampled_from(sorted(SPOILS)),
    stream=streams,
)
def gradient(program: Program, a: int, operator: str, spoil: str, stream: int) -> None:
    """Runs a backward pass on a different stream from that of the forward pass."""
    x = program.pick(a)
    if x.theirs.numel() == 0:
        raise Missing
    device = x.ours.device.index
    place = (device, stream)
    program.settle(place)

    def function(x: Tensor) -> Tensor:
        leaf = x.float().remainder(5).detach().requires_grad_()
        with torch.enable_grad():
            h = leaf * 2
            y = GRADIENTS[operator](h)
        SPOILS[spoil](h)
        if x.is_cpu:
            return torch.autograd.grad(y.sum(), leaf)[0]
        before = torch.openreg.current_stream(device)
        program.streams[place].wait_stream(before)
        with torch.openreg.stream(program.streams[place]):
            gradient = torch.autograd.grad(y.sum(), leaf)[0]
            gradient.record_stream(before)
        before.wait_stream(program.streams[place])
        return gradient

    program.keep_result(program.both(("gradient",), function, x))
