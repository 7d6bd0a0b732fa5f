# SPDX-License-Identifier: BSD-3-Clause
"""torchrun starts ranks that do not specify a backend, and restarts them after a failure."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

PATIENCE = 100.0


def torchrun(
    folder: Path, code: str, *options: str, argument: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program under torchrun with two ranks on this machine."""
    program = folder / "program.py"
    program.write_text(textwrap.dedent(code))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.run(
        [*launcher, *options, str(program), str(folder), argument],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_ranks_find_their_backend_and_each_other(tmp_path: Path) -> None:
    done = torchrun(
        tmp_path,
        """
        import os, pathlib, sys
        import torch
        import torch.distributed as dist

        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group()
        x = torch.full((3,), dist.get_rank() + 1.0, device="openreg")
        dist.all_reduce(x)
        backend = dist.get_default_backend_for_device(x.device)
        text = f"{dist.get_world_size()} {backend} {x.device} {x.tolist()}"
        pathlib.Path(sys.argv[1], f"{dist.get_rank()}.txt").write_text(text)
        dist.destroy_process_group()
        """,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(2):
        text = (tmp_path / f"{rank}.txt").read_text()
        assert text == f"2 occl openreg:{rank} [3.0, 3.0, 3.0]"


TRAINING = """
    import os, pathlib, sys, time
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    import torch.nn.functional as F
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    folder = pathlib.Path(sys.argv[1])
    if sys.argv[2] == "two hosts":
        os.environ["OPENREG_HOST_ID"] = os.environ["RANK"]
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    rank = dist.get_rank()
    if attempt == 1 and rank == 0:
        time.sleep(0.5)  # the other rank finds the store of the first attempt
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4, dtype=torch.float64, device="openreg")
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    start = 0
    checkpoint = folder / "checkpoint"
    if attempt > 0:
        parts, optimizer_parts = get_state_dict(model, optimizer)
        state = {"model": parts, "optimizer": optimizer_parts, "step": 0}
        dcp.load(state, checkpoint_id=checkpoint)
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        start = state["step"]
    for step in range(start, 6):
        if attempt == 0 and step == 4 and rank == 1:
            os._exit(7)
        x = torch.arange(8.0, dtype=torch.float64).view(2, 4)[rank].to("openreg") + step
        F.mse_loss(model(x), x).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 2 and attempt == 0:
            parts, optimizer_parts = get_state_dict(model, optimizer)
            state = {"model": parts, "optimizer": optimizer_parts, "step": step + 1}
            dcp.save(state, checkpoint_id=checkpoint)
    weight = model.weight.full_tensor().cpu()
    if rank == 0:
        torch.save((attempt, start, weight), folder / "result.pt")
    dist.destroy_process_group()
"""


def trained_at_once() -> torch.Tensor:
    """Returns the weight after all steps of training in a single process on the CPU."""
    torch.manual_seed(0)
    # Draw the weights on the device, as TRAINING does: the CPU draws different random numbers.
    model = torch.nn.Linear(4, 4, dtype=torch.float64, device="openreg").cpu()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for step in range(6):
        x = torch.arange(8.0, dtype=torch.float64).view(2, 4) + step
        F.mse_loss(model(x), x).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.weight.detach()


@pytest.mark.parametrize(
    ("hosts", "own_store"), [("one host", "0"), ("one host", "1"), ("two hosts", "0")]
)
def test_training_resumes_from_its_checkpoint_after_a_failure(
    tmp_path: Path, hosts: str, own_store: str
) -> None:
    # By default, torch 2.13 uses the same store for all attempts. The store keeps the keys of a
    # failed attempt, which the group of the next attempt must not use.
    options = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": own_store}
    restarts = ("--max-restarts=1", "--monitor-interval=0.1")
    done = torchrun(tmp_path, TRAINING, *restarts, argument=hosts, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    attempt, start, weight = torch.load(tmp_path / "result.pt")
    assert attempt == 1
    assert start == 3
    torch.testing.assert_close(weight, trained_at_once())
