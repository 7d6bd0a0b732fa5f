# SPDX-License-Identifier: BSD-3-Clause
"""Rules for tensors and events that another process also uses."""

import functools
import gc

import hypothesis.strategies as st
import torch

from tests import peer
from tests.feature_program.program import Program
from tests.feature_program.rules import devices, flags, rule, some
from tests.peer import Peer


@functools.cache
def other() -> Peer:
    """Returns the other process, which ends together with this one."""
    process = Peer()
    process.call(gc.freeze)  # makes garbage collection in the other process cheap
    return process


@rule(a=some, n=st.integers(0, 9), give_back=flags)
def share(program: Program, a: int, n: int, give_back: bool) -> None:
    """Shares a tensor with another process. That process changes it, and may send it back."""
    x = program.pick(a)
    place = program.place_of(x)
    program.settle(place)
    program.order(place, x.memory)
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


@rule(device=devices, wait_there=flags)
def share_event(program: Program, device: int, wait_there: bool) -> None:
    place = program.place(device)
    event = torch.openreg.Event(interprocess=True, device=device)
    event.record(program.streams[place])
    other().call(peer.keep, "e", event)
    if wait_there:
        other().call(peer.wait, "e")
        assert event.query()
    else:
        program.settle(place)
        event.synchronize()
        assert other().call(peer.query, "e")
    other().call(peer.drop, "e")
