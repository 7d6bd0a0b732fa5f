# SPDX-License-Identifier: BSD-3-Clause
"""A pipeline of a model's stages on several ranks computes the same as the whole model."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    SplitPoint,
    pipeline,
)

from tests.distributed.ranks import preload, run
from tests.distributed.training import DEVICE, WIDTH

preload("torch.distributed.pipelining")

ROWS = 16
PARTS = 8
STEPS = 2


def blocks(count: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count))
    ).double()


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(2, ROWS, WIDTH, generator=generator, dtype=torch.float64)
    return x, y


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def trained(count: int) -> tuple[nn.Sequential, list[float]]:
    """Returns the model and its losses, trained in a single process on the CPU."""
    model = blocks(count)
    optimizer = sgd(model)
    losses = []
    for step in range(STEPS):
        x, y = batch(step)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return model, losses


#: For each name: the schedule, the number of stages per rank, and whether the second stage of a
#: rank mirrors its first one (stages i and n - 1 - i).
SCHEDULES: dict[str, tuple[Any, int, bool]] = {
    "GPipe": (ScheduleGPipe, 1, False),
    "1F1B": (Schedule1F1B, 1, False),
    "interleaved 1F1B": (ScheduleInterleaved1F1B, 2, False),
    "looped breadth first": (ScheduleLoopedBFS, 2, False),
    "zero bubble": (ScheduleInterleavedZeroBubble, 2, False),
    "zero bubble V": (ScheduleZBVZeroBubble, 2, True),
}


def trains(name: str) -> None:
    kind, stages, mirrored = SCHEDULES[name]
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device(DEVICE, torch.openreg.current_device())
    count = size * stages
    mine = [rank + size * turn for turn in range(stages)]
    if mirrored:
        mine = [rank, count - 1 - rank]
    modules = {index: blocks(count)[index].to(DEVICE) for index in mine}
    made = [PipelineStage(modules[index], index, count, device) for index in mine]
    schedule = kind(made if stages > 1 else made[0], PARTS, loss_fn=F.mse_loss)
    optimizers = [sgd(module) for module in modules.values()]
    reference, expected = trained(count)
    for step in range(STEPS):
        x, y = (tensor.to(DEVICE) for tensor in batch(step))
        losses: list[Tensor] = []
        arguments = [x] if 0 in mine else []
        if count - 1 in mine:
            schedule.step(*arguments, target=y, losses=losses)
            assert torch.stack(losses).mean().item() == pytest.approx(expected[step])
        else:
            schedule.step(*arguments)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    for index, module in modules.items():
        for ours, theirs in zip(module.parameters(), reference[index].parameters(), strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", SCHEDULES)
def test_training_equals_that_of_one_process(size: int, name: str) -> None:
    run(size, trains, name)


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(blocks(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def is_split() -> None:
    rank = dist.get_rank()
    model = Whole()
    x, y = batch(0)
    split = pipeline(model, (x.chunk(4)[0],), split_spec={"layers.2": SplitPoint.BEGINNING})
    device = torch.device(DEVICE, torch.openreg.current_device())
    schedule = ScheduleGPipe(split.build_stage(rank, device), 4, loss_fn=F.mse_loss)
    whole = Whole()
    expected = whole(x)
    F.mse_loss(expected, y).backward()
    if rank == 0:
        schedule.step(x.to(DEVICE))
    else:
        result = schedule.step(target=y.to(DEVICE))
        torch.testing.assert_close(result.cpu(), expected)
    gradients = {name: parameter.grad for name, parameter in whole.named_parameters()}
    mine = dict(split.get_stage_module(rank).named_parameters())
    assert len(mine) == 4
    for name, parameter in mine.items():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad.cpu(), gradients[name])


def test_a_model_split_by_torch() -> None:
    run(2, is_split)
