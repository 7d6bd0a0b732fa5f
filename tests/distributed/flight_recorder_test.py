# SPDX-License-Identifier: BSD-3-Clause
"""Tests the flight recorder: each rank's last collectives, and their analysis by torch."""

import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch_openreg.distributed import dump_flight_recorder

from tests.distributed.ranks import Group, run

DEVICE = "openreg"


def some_collectives() -> dict[str, Any]:
    rank = dist.get_rank()
    tensor = torch.ones(5, device=DEVICE)
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    if rank == 0:
        dist.send(tensor, 1)
    else:
        dist.recv(tensor, 0)
    device = torch.device(DEVICE, torch.openreg.current_device())
    with dist._coalescing_manager(device=device):
        dist.reduce_scatter_tensor(torch.empty(1, device=DEVICE), torch.ones(2, device=DEVICE))
        dist.reduce_scatter_tensor(torch.empty(2, device=DEVICE), torch.ones(4, device=DEVICE))
    torch.openreg.synchronize()
    dist.all_reduce(tensor)  # makes the recorder retire the finished operations
    if rank == 0:
        torch.openreg._sleep(300_000_000)
    dist.all_reduce(tensor, async_op=True)
    active = pickle.loads(dump_flight_recorder(stacks=False, only_active=True))
    if rank == 0:
        torch.openreg._sleep(3_000_000_000)  # longer than the first lookup of file names
    dist.all_reduce(tensor, async_op=True)
    found: dict[str, Any] = pickle.loads(dump_flight_recorder())
    found["active"] = [entry["profiling_name"] for entry in active["entries"]]
    return found


def test_entries() -> None:
    for rank, found in enumerate(run(2, some_collectives)):
        entries = found["entries"]
        names = [entry["profiling_name"] for entry in entries]
        message = "nccl:send 0->1" if rank == 0 else "nccl:recv 1<-0"
        assert names[:3] == ["nccl:all_reduce", "nccl:broadcast", message]
        first = entries[0]
        assert first["input_sizes"] == first["output_sizes"] == [[5]]
        assert first["input_dtypes"] == ["Float"]
        assert first["state"] == "completed"
        assert first["timeout_ms"] == 60_000
        assert any(frame["name"] == "some_collectives" for frame in first["frames"])
        assert [entry["collective_seq_id"] for entry in entries[:3]] == [1, 2, 0]
        assert entries[2]["p2p_seq_id"] == 1
        assert found["pg_config"]["0"]["ranks"] == "[0, 1]"
        assert entries[-1]["state"] in ("scheduled", "started")
        assert found["active"]
        status = found["pg_status"]["0"]
        assert status["last_enqueued_collective"] == entries[-1]["collective_seq_id"]
        assert 0 < status["last_completed_collective"] < status["last_enqueued_collective"]


def stuck(folder: str) -> None:
    tensor = torch.ones(5, device=DEVICE)
    dist.all_reduce(tensor)
    if dist.get_rank() == 0:
        try:
            dist.broadcast(tensor, 0)
            torch.openreg.synchronize()
            dist.broadcast(tensor, 0)
        except RuntimeError:
            return
    time.sleep(2)
    Path(folder, "rank_1").write_bytes(dump_flight_recorder(stacks=False))


def test_the_analysis_finds_the_missing_rank(tmp_path: Path) -> None:
    environment = {
        "TORCH_FR_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "rank_"),
    }
    run(2, stuck, str(tmp_path), group=Group(timeout=1, environment=environment))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank_0", "rank_1"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.flight_recorder.fr_trace",
            str(tmp_path),
            "-p",
            "rank_",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    text = done.stdout + done.stderr
    assert "broadcast" in text, text
    assert "all_reduce" in text or "Not all ranks joining" in text, text
