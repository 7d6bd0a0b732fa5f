# SPDX-License-Identifier: BSD-3-Clause
"""Rules for streams: the current stream, waits, long work, and failing kernels."""

import hypothesis.strategies as st
import torch

from tests.feature_program.program import Program
from tests.feature_program.rules import devices, rule, streams


@rule(device=devices, stream=streams)
def switch_stream(program: Program, device: int, stream: int) -> None:
    """Changes the current stream and the current device."""
    torch.openreg.set_stream(program.streams[device, stream])
    program.current[program.worker][device] = stream


@rule(way=st.sampled_from(["event", "stream", "query"]))
def switch_way(program: Program, way: str) -> None:
    program.way = way


@rule(worker=st.integers(0, 1))
def switch_thread(program: Program, worker: int) -> None:
    """Switches the thread. Modes, streams and the current device are thread-local."""
    program.worker = worker


@rule(device=devices, us=st.sampled_from([200, 2000]))
def fall_behind(program: Program, device: int, us: int) -> None:
    """Makes the current stream busy while the host continues."""
    with torch.openreg.device(device):
        torch.openreg._sleep(us * 1000)


@rule(
    device=devices,
    stream=streams,
    way=st.sampled_from(["event", "query", "stream", "device", "accelerator"]),
)
def wait_for(program: Program, device: int, stream: int, way: str) -> None:
    program.wait((device, stream), None, way)


@rule(device=devices)
def fail(program: Program, device: int) -> None:
    """Enqueues a failing kernel without waiting for it."""
    place = program.place(device)
    program.settle(place)
    with torch.inference_mode(False):
        table = torch.zeros(3, device=f"openreg:{device}")
        index = torch.full((1,), 99, device=f"openreg:{device}")
        try:
            table.index_select(0, index)
        except IndexError:  # the first call of an operator waits
            return
    program.failed.add(place)
