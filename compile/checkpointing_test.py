# SPDX-License-Identifier: BSD-3-Clause
"""A checkpointed region of a graph computes the same as in eager mode, even if it is recomputed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

_Function = Callable[[torch.Tensor], torch.Tensor]

sines = 0


@torch.library.custom_op("openreg_compile_test::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    """A sine that counts its calls."""
    global sines
    sines += 1
    return x.sin()


@sine.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _save(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: torch.Tensor) -> Any:
    (x,) = ctx.saved_tensors
    return x.cos() * grad


sine.register_autograd(_backward, setup_context=_save)


def gradient(function: _Function) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the result, the gradient, and the random generator's final state."""
    torch.manual_seed(0)
    x = torch.linspace(0, 1, 64, requires_grad=True)
    result = function(x)
    torch.autograd.backward(result.sum())
    assert x.grad is not None
    return result.detach(), x.grad, torch.get_rng_state()


def region(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(sine(x) * x, 0.5)


def keep_sines() -> object:
    def policy(ctx: object, op: object, *args: object, **kwargs: object) -> CheckpointPolicy:
        keep = op is torch.ops.openreg_compile_test.sine.default
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


@pytest.mark.parametrize(
    ("settings", "computed"),
    [({}, 2), ({"context_fn": keep_sines}, 1)],
    ids=["all_again", "selective"],
)
def test_recomputes_with_the_same_random_numbers(settings: dict[str, Any], computed: int) -> None:
    global sines

    def function(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(region, x, use_reentrant=False, **settings)
        return result

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="openreg", fullgraph=True)
    gradient(compiled)
    sines = 0
    ours = gradient(compiled)
    assert sines == computed
    for value, expected in zip(ours, gradient(function), strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=0)


def test_keyword_arguments_of_the_region() -> None:
    def scaled(x: torch.Tensor, *, factor: torch.Tensor) -> torch.Tensor:
        return x * factor

    def function(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(scaled, x, factor=x + 1, use_reentrant=False)
        return result

    torch._dynamo.reset()
    ours = gradient(torch.compile(function, backend="openreg", fullgraph=True))
    for value, expected in zip(ours, gradient(function), strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=0)
