# SPDX-License-Identifier: BSD-3-Clause
"""A network, and its training in one process on the CPU as the reference for distributed tests."""

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from tests.distributed.ranks import preload

# A mesh uses the device whose index is the local rank, so there must be one device per rank. Set
# the variable before importing torch._dynamo, which reads the number of devices.
os.environ["OPENREG_DEVICE_COUNT"] = "4"
preload("pytest", "torch._dynamo", "torch.distributed.tensor", "torch.distributed.optim")

DEVICE = "openreg"
WIDTH = 16
STEPS = 3
#: The number of rows in a batch, which 2 or 4 ranks can share equally.
ROWS = 8


def network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """Creates the network on the CPU. Each call creates the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [nn.Linear(6, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh()]
        return nn.Sequential(*layers, nn.Linear(WIDTH, 4)).to(dtype)


def batch(step: int, dtype: torch.dtype = torch.float64, rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """Returns the inputs and the targets of a step on the CPU."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(rows, 6, generator=generator, dtype=torch.float64)
    y = torch.randn(rows, 4, generator=generator, dtype=torch.float64)
    return x.to(dtype), y.to(dtype)


def share(tensor: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Returns this rank's rows of a batch on its device."""
    return tensor.chunk(dist.get_world_size(group))[dist.get_rank(group)].to(DEVICE)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def expected(
    make: Callable[[], nn.Module] = network,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = adam,
    steps: int = STEPS,
    dtype: torch.dtype = torch.float64,
    change: Callable[[nn.Module], Any] | None = None,
) -> nn.Module:
    """Returns a model that was trained in a single process on the CPU, on whole batches.

    Args:
        make: function that creates the model.
        optimizer: function that creates the model's optimizer.
        steps: number of steps. Each step has its own batch.
        dtype: dtype of the batches.
        change: function that is called with the model after each backward pass, before the step.
    """
    model = make()
    chosen = optimizer(model)
    for step in range(steps):
        x, y = batch(step, dtype)
        F.mse_loss(model(x), y).backward()
        if change is not None:
            change(model)
        chosen.step()
        chosen.zero_grad()
    return model


def train(
    model: Callable[..., Any],
    optimizer: torch.optim.Optimizer,
    steps: int = STEPS,
    dtype: torch.dtype = torch.float64,
) -> None:
    """Trains on this rank's share of each batch."""
    for step in range(steps):
        x, y = batch(step, dtype)
        F.mse_loss(model(share(x)), share(y)).backward()
        optimizer.step()
        optimizer.zero_grad()


def require_equal(
    model: nn.Module, other: nn.Module, rtol: float = 1e-5, atol: float = 1e-7
) -> None:
    """Requires that two models' parameters and buffers are close. DTensors are gathered first."""
    theirs = dict(other.state_dict())
    for name, tensor in model.state_dict().items():
        short = name.removeprefix("module.").replace("_orig_mod.", "")
        whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        other_tensor = theirs.pop(short).cpu()
        try:
            torch.testing.assert_close(whole.cpu(), other_tensor, rtol=rtol, atol=atol)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
    assert not theirs, f"the model lacks the parameters or buffers {list(theirs)}"
