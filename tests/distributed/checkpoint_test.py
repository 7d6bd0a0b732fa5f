# SPDX-License-Identifier: BSD-3-Clause
"""Distributed checkpoints can be loaded by a different number of ranks than saved them."""

import multiprocessing
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, zeros
from torch.nn.parallel import DistributedDataParallel

from tests.distributed.ranks import Group, preload, run
from tests.distributed.training import (
    DEVICE,
    STEPS,
    adam,
    batch,
    expected,
    network,
    require_equal,
    share,
    train,
)

preload("torch.distributed.fsdp", "torch.distributed.checkpoint")

#: A group with an additional CPU backend, which coordinates the ranks in asynchronous saves.
BOTH = Group("cpu:gloo,openreg:occl")


def sharded(zero: bool = False) -> tuple[Any, torch.optim.Optimizer]:
    model = network().to(DEVICE)
    if zero:
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
    for layer in (model[0], model[2], model[4]):
        fully_shard(layer)
    fully_shard(model)
    return model, adam(model)


class Application:
    """A model and its optimizer, in the form that torch's checkpoints use."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model = model
        self.optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )


# --------------------------------------------------------- loading with a different number of ranks


def saves(folder: str) -> None:
    model, optimizer = sharded()
    train(model, optimizer)
    mesh = init_device_mesh(DEVICE, (dist.get_world_size(),))
    whole = torch.arange(30.0).view(10, 3)
    state = {
        "app": Application(model, optimizer),
        "columns": distribute_tensor(whole.to(DEVICE), mesh, [Shard(1)]),
        "rows": distribute_tensor(whole.to(DEVICE), mesh, [Shard(0)]),
        "plain": torch.full((3,), 7.0, device=DEVICE),
        "steps": STEPS,
    }
    dcp.save(state, checkpoint_id=folder)


def loads(folder: str) -> None:
    model, optimizer = sharded(zero=True)
    mesh = init_device_mesh(DEVICE, (dist.get_world_size(),))
    state = {
        "app": Application(model, optimizer),
        "columns": zeros(10, 3, device_mesh=mesh, placements=[Replicate()]),
        "rows": zeros(10, 3, device_mesh=mesh, placements=[Shard(1)]),
        "plain": torch.zeros(3, device=DEVICE),
        "steps": 0,
    }
    dcp.load(state, checkpoint_id=folder)
    whole = torch.arange(30.0).view(10, 3)
    for name in ("columns", "rows"):
        value = state[name]
        assert isinstance(value, DTensor)
        torch.testing.assert_close(value.full_tensor().cpu(), whole)
    plain = state["plain"]
    assert isinstance(plain, Tensor)
    assert plain.device.type == DEVICE
    assert plain.tolist() == [7.0] * 3
    assert state["steps"] == STEPS
    require_equal(model, expected())
    # Training continues with the saved moments of the optimizer.
    for step in range(STEPS, STEPS + 2):
        x, y = batch(step)
        F.mse_loss(model(share(x)), share(y)).backward()
        optimizer.step()
        optimizer.zero_grad()
    require_equal(model, expected(steps=STEPS + 2))


def test_one_and_two_ranks_load_a_checkpoint_of_four(tmp_path: Path) -> None:
    run(4, saves, str(tmp_path))
    run(2, loads, str(tmp_path))
    run(1, loads, str(tmp_path))
    file = tmp_path / "whole.pt"
    dcp_to_torch_save(tmp_path, file)
    saved = torch.load(file, map_location="cpu", weights_only=False)["app"]["model"]
    torch.testing.assert_close(saved, dict(expected().state_dict()), rtol=1e-5, atol=1e-7)


# ------------------------------------------------------------------------------- asynchronous saves


def saves_meanwhile(folder: str, process: bool, staged: bool) -> None:
    model, optimizer = sharded()
    train(model, optimizer)
    options: dict[str, Any] = {}
    if process:
        options["async_checkpointer_type"] = AsyncCheckpointerType.PROCESS
        # Saving starts a child process. The harness made this process a daemon, which may not have
        # children.
        multiprocessing.current_process()._config["daemon"] = False
    if staged:
        # torch copies on a separate stream, which does not wait for the program's stream.
        torch.openreg.synchronize()
        staging = StagingOptions(
            use_pinned_memory=True,
            use_shared_memory=False,
            use_async_staging=True,
            use_non_blocking_copy=True,
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            options["async_stager"] = DefaultStager(staging)
        # torch pins memory only for CUDA. For other devices, it issues a warning and uses pageable
        # memory.
        assert any("Ignoring pin_memory flag" in str(each.message) for each in caught)
    state = {"app": Application(model, optimizer)}
    saving: Any = dcp.async_save(state, checkpoint_id=folder, **options)
    if staged:
        saving.staging_completion.result()
        saving = saving.upload_completion
    # The checkpoint must not contain changes to the model that follow the save.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    saving.result()
    dist.barrier()
    other, other_optimizer = sharded(zero=True)
    dcp.load({"app": Application(other, other_optimizer)}, checkpoint_id=folder)
    require_equal(other, expected())


@pytest.mark.parametrize(("process", "staged"), [(False, False), (False, True), (True, False)])
def test_a_checkpoint_is_written_during_training(
    tmp_path: Path, process: bool, staged: bool
) -> None:
    run(2, saves_meanwhile, str(tmp_path), process, staged, group=BOTH)


def refuses() -> None:
    with pytest.raises(AssertionError, match="A CPU backend must be enabled for async save"):
        dcp.async_save({"x": torch.ones(2, device=DEVICE)}, checkpoint_id="nowhere")


def test_an_asynchronous_save_needs_a_cpu_backend() -> None:
    run(1, refuses)


# --------------------------------------------------------------------------------- full state dicts


def gathers() -> list[bool]:
    model, optimizer = sharded()
    train(model, optimizer)
    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=whole)
    optimizer_state = get_optimizer_state_dict(model, optimizer, options=whole)
    first = dist.get_rank() == 0
    if first:
        for name, value in expected().state_dict().items():
            ours = state[name]
            assert isinstance(ours, Tensor)
            assert ours.device.type == "cpu"
            torch.testing.assert_close(ours, value, rtol=1e-5, atol=1e-7)
        assert set(optimizer_state["state"]) == set(expected().state_dict())
    # Only the first rank has the state. The others receive it.
    other, other_optimizer = sharded(zero=True)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(other, state if first else {}, options=options)
    set_optimizer_state_dict(
        other, other_optimizer, optimizer_state if first else {}, options=options
    )
    require_equal(other, expected())
    x, y = batch(STEPS)
    F.mse_loss(other(share(x)), share(y)).backward()
    other_optimizer.step()
    require_equal(other, expected(steps=STEPS + 1))
    return [bool(state), bool(optimizer_state)]


def test_a_full_state_is_gathered_on_and_broadcast_from_the_first_rank() -> None:
    assert run(2, gathers) == [[True, True], [False, False]]


def on_a_square_mesh() -> None:
    mesh = init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("replicate", "shard"))
    model = network().to(DEVICE)
    fully_shard(model, mesh=mesh)
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    for name, value in network().state_dict().items():
        ours = whole[name]
        assert isinstance(ours, Tensor)
        assert ours.device.type == DEVICE
        torch.testing.assert_close(ours.cpu(), value)
    assert isinstance(get_model_state_dict(model)["0.weight"], DTensor)


def test_the_state_of_shards_within_replicas() -> None:
    run(4, on_a_square_mesh)


def has_plain_names(folder: str) -> None:
    model = DistributedDataParallel(network().to(DEVICE))
    optimizer = adam(model)
    train(model, optimizer)
    state = get_model_state_dict(model)
    assert set(state) == set(network().state_dict())  # without the prefix "module."
    dcp.save({"app": Application(model, optimizer)}, checkpoint_id=folder)
    other, other_optimizer = sharded(zero=True)
    dcp.load({"app": Application(other, other_optimizer)}, checkpoint_id=folder)
    require_equal(other, expected())


def test_fsdp_loads_a_checkpoint_of_ddp(tmp_path: Path) -> None:
    run(2, has_plain_names, str(tmp_path))
