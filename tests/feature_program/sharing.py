# SPDX-License-Identifier: BSD-3-Clause
"""Rules for tensors that a consumer uses through DLPack."""

import hypothesis.strategies as st
import torch

from tests.feature_program.model import attempt
from tests.feature_program.program import Program
from tests.feature_program.rules import rule, some, streams


@rule(a=some, device_stream=streams, n=st.integers(0, 9))
def lend(program: Program, a: int, device_stream: int, n: int) -> None:
    """Exports a tensor through DLPack to a consumer on another stream."""
    x = program.pick(a)
    place = program.place_of(x)
    consumer = (place[0], device_stream)
    program.order(place, x.memory)
    stream = program.streams[consumer]
    program.settle(consumer)
    # Export an alias, because set_() replaces the storage of a tensor, and the consumer keeps the
    # exported tensor.
    theirs = attempt(torch.from_dlpack, x.theirs.detach())
    handle = int(stream.native_handle)
    ours = attempt(lambda: torch.from_dlpack(x.ours.detach().__dlpack__(stream=handle)))
    assert isinstance(ours, Exception) == isinstance(theirs, Exception), (theirs, ours)
    if isinstance(theirs, Exception):
        return
    x.memory.recorded = False
    x.memory.fixed += 1
    program.used(place, x)
    value = program.keep(theirs, ours, x.memory)
    with torch.openreg.stream(stream):
        assert type(attempt(theirs.add_, n)) is type(attempt(ours.add_, n))
    program.used(consumer, value, write=True)
