# SPDX-License-Identifier: BSD-3-Clause
"""Tests torch.profiler with collectives: each kernel has the collective's name, sizes and group."""

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile
from torch_openreg.trace import cuda_names

from tests.distributed.ranks import run

DEVICE = "openreg"


def profiled(folder: str) -> None:
    rank = dist.get_rank()
    tensor = torch.ones(50_000, device=DEVICE)
    dist.all_reduce(tensor)
    torch.openreg.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiler:
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        work.wait()
        dist.broadcast(tensor[:10], 1)
        if rank == 0:
            dist.send(tensor, 1)
        else:
            dist.recv(tensor, 0)
        torch.openreg.synchronize()
    profiler.export_chrome_trace(str(Path(folder, f"{rank}.json")))


def test_kernels_name_the_collective(tmp_path: Path) -> None:
    run(2, profiled, str(tmp_path))
    for rank in range(2):
        document: dict[str, Any] = json.loads((tmp_path / f"{rank}.json").read_text())
        events = document["traceEvents"]
        kernels = {event["name"]: event for event in events if event.get("cat") == "kernel"}
        reduce = kernels["occl::AllReduce"]["args"]
        assert reduce["Collective name"] == "allreduce"
        assert reduce["In msg nelems"] == reduce["Out msg nelems"] == 50_000
        assert reduce["dtype"] == "Float"
        assert reduce["Group size"] == 2
        assert reduce["Process Group Ranks"] == "[0, 1]"
        assert kernels["occl::Broadcast"]["args"]["Collective name"] == "broadcast"
        message = kernels["occl::Send" if rank == 0 else "occl::Recv"]["args"]
        assert message.get("Dst Rank" if rank == 0 else "Src Rank") == 1 - rank
        # The trace shows asynchronous communication in a separate row.
        assert kernels["occl::AllReduce"]["tid"] != kernels["occl::Broadcast"]["tid"]
        renamed = cuda_names.rewritten(document)["traceEvents"]
        assert any(event["name"] == "ncclDevKernel_AllReduce" for event in renamed)
