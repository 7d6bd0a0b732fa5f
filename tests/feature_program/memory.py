# SPDX-License-Identifier: BSD-3-Clause
"""Rules for device memory: releasing memory, and running out of memory."""

import hypothesis.strategies as st
import torch

from tests.feature_program.model import DEVICES
from tests.feature_program.program import Program
from tests.feature_program.rules import devices, rule, streams
from tests.feature_program.tensors import new


@rule(what=st.sampled_from(["device", "host", "pools", "peaks"]))
def give_back(program: Program, what: str) -> None:
    """Releases cached memory. This waits for streams, but must not raise a kernel's error."""
    if what == "device":
        torch.openreg.empty_cache()
    elif what == "host":
        torch.openreg.empty_host_cache()
    elif what == "pools":
        program.pools.clear()  # tensors in the pools stay valid
    else:
        for device in range(DEVICES):
            torch.openreg.reset_peak_memory_stats(device)


@rule(device=devices, way=st.sampled_from(["huge", "limit"]))
def exhaust(program: Program, device: int, way: str) -> None:
    """Makes an allocation that must fail, and then one that must succeed."""
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
        raise AssertionError("the allocation did not fail")
    finally:
        torch.openreg.set_per_process_memory_fraction(1.0, device)
    new(program, 4, "int64", device)


@rule(device=devices, stream=streams)
def reclaim(program: Program, device: int, stream: int) -> None:
    """Fills the device, so the allocator must wait for memory that another stream still uses."""
    place, user = program.place(device), (device, stream)
    program.settle(place)
    program.settle(user)
    where = f"openreg:{device}"
    with torch.inference_mode():
        torch.openreg.empty_cache()
        size = 24 << 20
        x = torch.empty(size, dtype=torch.uint8, device=where)
        _, total = torch.openreg.mem_get_info(device)
        held = torch.openreg.memory_reserved(device)
        program.streams[user].wait_stream(program.streams[place])
        with torch.openreg.stream(program.streams[user]):
            torch.openreg._sleep(200_000)
            x[:8].fill_(1)
        x.record_stream(program.streams[user])
        del x
        torch.openreg.set_per_process_memory_fraction(held / total, device)
        try:
            y = torch.empty(size, dtype=torch.uint8, device=where)
        finally:
            torch.openreg.set_per_process_memory_fraction(1.0, device)
        y[:8].fill_(7)
        ours = y[:8].clone()
    program.keep_result((torch.full((8,), 7, dtype=torch.uint8), ours.clone()))
