# SPDX-License-Identifier: BSD-3-Clause
"""Compares a computation on the device with the same computation on the CPU."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils._pytree import tree_map_only

DEVICE = torch.device("openreg", 0)

#: A function that computes a model's loss for a batch.
Loss = Callable[[Any, Any], Tensor]


def to_device(values: Any) -> Any:
    """Moves all tensors in a tree to the device."""
    return tree_map_only(Tensor, lambda tensor: tensor.to(DEVICE), values)


def on_device(model: nn.Module) -> Any:
    """Returns a copy of a model on the device.

    The return type is Any, because the model's class may come from a library without type hints.
    """
    return copy.deepcopy(model).to(DEVICE)


def assert_same(
    ours: Tensor | None,
    theirs: Tensor | None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Asserts that ``ours`` is on the device and close to ``theirs``, which is on the CPU."""
    assert ours is not None
    assert theirs is not None
    assert ours.device == DEVICE
    assert theirs.device.type == "cpu"
    assert_close(ours.cpu(), theirs, rtol=rtol, atol=atol)


def assert_same_tensors(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Calls ``assert_same`` for all tensors in a state or an output."""
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        try:
            assert_same(ours[name], tensor, rtol=rtol, atol=atol)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """Returns a model's gradients by parameter name, and omits those that are None."""
    named = model.named_parameters()
    return {name: parameter.grad for name, parameter in named if parameter.grad is not None}


def assert_trains_alike(
    model: nn.Module,
    batch: Any,
    loss: Loss,
    *,
    steps: int = 3,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    autocast: torch.dtype | None = None,
) -> Any:
    """Trains a model on the device and on the CPU, and compares losses, gradients and parameters.

    Args:
        model: a model on the CPU, without dropout, which the function trains in place.
        batch: the batch for each step.
        loss: function that computes a model's loss for a batch.
        steps: number of steps. The optimizer is SGD with momentum.
        rtol: relative tolerance for losses, gradients and parameters.
        atol: absolute tolerance for losses, gradients and parameters.
        autocast: the dtype for autocast, or None to train without autocast.

    Returns:
        The trained copy of the model on the device.
    """
    ours, theirs = on_device(model), model
    batches = to_device(batch), batch
    assert all(parameter.device == DEVICE for parameter in ours.parameters())
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9) for m in (ours, theirs)]
    for _ in range(steps):
        losses = []
        for m, b, optimizer in zip((ours, theirs), batches, optimizers, strict=True):
            optimizer.zero_grad()
            with torch.autocast(next(m.parameters()).device.type, autocast, autocast is not None):
                value = loss(m, b)
            value.backward()
            losses.append(value.detach())
        assert_same(losses[0], losses[1], rtol=rtol, atol=atol)
        assert_same_tensors(gradients(ours), gradients(theirs), rtol=rtol, atol=atol)
        for optimizer in optimizers:
            optimizer.step()
    assert_same_tensors(ours.state_dict(), theirs.state_dict(), rtol=rtol, atol=atol)
    return ours
