# SPDX-License-Identifier: BSD-3-Clause
"""Tests einops: rearrangements, reductions and layers, both eager and compiled."""

from collections.abc import Callable

import einops
import pytest
import torch
from einops.layers.torch import EinMix, Rearrange, Reduce
from torch import Tensor, nn

from tests.clients.comparison import DEVICE, assert_same, assert_trains_alike, to_device

OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "rearrange": lambda x: einops.rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=2, q=4),
    "mean": lambda x: einops.reduce(x, "b c h w -> b c", "mean"),
    "max": lambda x: einops.reduce(x, "b c (h p) w -> b h c", "max", p=2),
    "repeat": lambda x: einops.repeat(x, "b c h w -> b c (h 2) (w 3)"),
    "einsum": lambda x: einops.einsum(x, x, "b c h w, b d h w -> b c d"),
    "pack": lambda x: einops.pack([x, x[:, 0]], "b * w")[0],
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name: str) -> None:
    x = torch.randn(2, 3, 4, 8)
    ours = x.to(DEVICE).requires_grad_()
    x.requires_grad_()
    results = OPERATIONS[name](ours), OPERATIONS[name](x)
    assert_same(*results)
    for result in results:
        result.square().sum().backward()
    assert ours.grad is not None
    assert x.grad is not None
    assert_same(ours.grad, x.grad)


def network() -> nn.Module:
    return nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
        nn.Linear(48, 16),
        EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=16, d=8),
        Reduce("b t c -> b c", "mean"),
    )


def test_layers_train() -> None:
    def loss(model: nn.Module, x: Tensor) -> Tensor:
        value: Tensor = model(x).square().sum()
        return value

    assert_trains_alike(network(), torch.randn(2, 3, 8, 8), loss)


def test_compiles() -> None:
    model, x = network(), torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        theirs = model(x)
        compiled = torch.compile(model.to(DEVICE), fullgraph=True)
        assert_same(compiled(to_device(x)), theirs, rtol=1e-4, atol=1e-5)
