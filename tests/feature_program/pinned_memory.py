# SPDX-License-Identifier: BSD-3-Clause
"""Rules for pinned memory, which both the host and the device use."""

import hypothesis.strategies as st
import torch

from tests.feature_program.model import MOST, Memory, Value
from tests.feature_program.program import Program
from tests.feature_program.rules import devices, flags, rule, some


@rule(size=st.integers(0, 9), dtype=st.sampled_from(["float32", "int64"]))
def new_pinned(program: Program, size: int, dtype: str) -> None:
    with torch.inference_mode(False):
        theirs = program.new_values(size).to(getattr(torch, dtype))
        ours = torch.empty_like(theirs, pin_memory=True).copy_(theirs)
    program.pinned.append(Value(theirs, ours, Memory(None)))
    if len(program.pinned) > MOST:
        program.pinned.pop(0)


@rule(p=some, device=devices, non_blocking=flags)
def upload(program: Program, p: int, device: int, non_blocking: bool) -> None:
    source = program.pick_pinned(p)
    place = program.place(device)
    if not non_blocking:
        program.settle(place)
    program.order(place, source.memory)
    ours = source.ours.to(f"openreg:{device}", non_blocking=non_blocking)
    program.used(place, source)
    program.keep_result((source.theirs.clone(), ours))


@rule(a=some, p=some, non_blocking=flags)
def download(program: Program, a: int, p: int, non_blocking: bool) -> None:
    """Copies to existing pinned memory of the same shape, or to new pinned memory."""
    x = program.pick(a)
    place = program.place_of(x)
    if not non_blocking:
        program.settle(place)
    target = program.pinned[p % len(program.pinned)] if program.pinned else None
    if target is None or target.theirs.shape != x.theirs.shape:
        with torch.inference_mode(False):
            theirs = torch.empty(x.theirs.shape, dtype=x.theirs.dtype)
            ours = torch.empty(x.theirs.shape, dtype=x.theirs.dtype, pin_memory=True)
        target = Value(theirs, ours, Memory(None))
        program.pinned.append(target)
    program.order(place, x.memory, target.memory)
    target.theirs.copy_(x.theirs)
    target.ours.copy_(x.ours, non_blocking=non_blocking)
    program.used(place, x)
    program.used(place, target, write=True)
    target.memory.defined = True


@rule(p=some, n=st.integers(0, 9), way=st.sampled_from(["event", "query", "stream", "device"]))
def write_pinned(program: Program, p: int, n: int, way: str) -> None:
    """Waits for all copies from or to a pinned tensor. Then the host writes to the tensor."""
    value = program.pick_pinned(p)
    program.release_pinned(value, way)
    value.theirs.fill_(n)
    value.ours.fill_(n)


@rule(p=some, way=st.sampled_from(["event", "query", "stream", "device"]))
def read_pinned(program: Program, p: int, way: str) -> None:
    program.compare_pinned(program.pick_pinned(p), way)


@rule(p=some)
def forget_pinned(program: Program, p: int) -> None:
    """Frees pinned memory that copies still use, and then writes to newly allocated memory."""
    value = program.pick_pinned(p)
    program.pinned.remove(value)
    shape = value.ours.shape
    del value
    torch.empty(shape, pin_memory=True).fill_(-1)
