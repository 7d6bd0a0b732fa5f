# SPDX-License-Identifier: BSD-3-Clause
"""Operators work in every mode, whichever mode the first launches used; see first_launches.py.

Each test calls an operator more often than earlier launches have cached objects for it. It does so
in an autograd graph, under forward AD and under vmap.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tests.first_launches import LAUNCHES, MODES, REFUSED, matrix

TIMES = 4

# Operators whose results are random or do not depend on the matrix.
WITHOUT_VALUES = frozenset({"dropout", "rand_like", "normal_", "bernoulli", "randperm"})

WITHOUT_RESULTS = frozenset({"foreach_mul_", "fused optimizer"})
NOT_DIFFERENTIABLE = frozenset({"unique"})


def real(outputs: Any) -> Iterator[Tensor]:
    for leaf in tree_leaves(outputs):
        if isinstance(leaf, Tensor) and leaf.requires_grad:
            yield leaf


@pytest.mark.parametrize("name", sorted({*LAUNCHES} - NOT_DIFFERENTIABLE))
def test_gradients(name: str) -> None:
    function = LAUNCHES[name]
    x = matrix().to("openreg").requires_grad_()
    slopes = []
    for _ in range(TIMES):
        outputs = function(x)
        for leaf in tree_leaves(outputs):
            assert not (isinstance(leaf, Tensor) and leaf.is_inference())
        roots = list(real(outputs))
        if roots:
            ones = [torch.ones_like(root) for root in roots]
            slopes.append(torch.autograd.grad(roots, x, ones)[0].cpu())
    theirs = matrix().requires_grad_()
    roots = [root for root in real(function(theirs)) if root.device.type == "cpu"]
    if roots and name not in WITHOUT_VALUES:
        ones = [torch.ones_like(root) for root in roots]
        expected = torch.autograd.grad(roots, theirs, ones)[0]
        for slope in slopes:
            torch.testing.assert_close(slope, expected, equal_nan=True)  # slopes at poles are NaN


@pytest.mark.parametrize("name", LAUNCHES)
def test_results_may_be_written_to_and_saved(name: str) -> None:
    x = matrix().to("openreg")
    for _ in range(TIMES):
        for leaf in tree_leaves(LAUNCHES[name](x)):
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                version = leaf._version
                leaf.mul_(2)
                assert leaf._version == version + 1
                weight = torch.ones((), device="openreg").requires_grad_()
                (leaf * weight).sum().backward()
                assert weight.grad is not None
    torch.openreg.synchronize()


@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_mode_in_between(mode: str) -> None:
    MODES[mode]()
    x = matrix().to("openreg").requires_grad_()
    for _ in range(TIMES):
        torch.autograd.grad(x.median() + x.kthvalue(2, 0).values.sum(), x)
    assert x.sum().dtype == torch.float32
    assert not torch.ones(2, device="openreg").is_inference()


@pytest.mark.parametrize("make", [nn.Linear, nn.LSTM, nn.GRU])
def test_training_steps(make: Callable[..., nn.Module]) -> None:
    torch.manual_seed(0)
    module = make(4, 4)
    ours = make(4, 4).to("openreg")
    ours.load_state_dict(module.state_dict())
    for network in (module, ours):
        optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
        device = next(network.parameters()).device
        for _ in range(TIMES):
            result = network(matrix().to(device))
            loss = (result[0] if isinstance(result, tuple) else result).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for mine, other in zip(ours.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(mine.detach().cpu(), other.detach(), rtol=1e-4, atol=1e-5)


def test_forward_derivatives_and_batches() -> None:
    x = matrix().to("openreg")
    for name, function in LAUNCHES.items():
        if name in REFUSED["vmap"] | WITHOUT_VALUES | WITHOUT_RESULTS:
            continue
        single = torch.vmap(lambda row, f=function: f(row), randomness="different")(x[None])
        for batched, plain in zip(tree_leaves(single), tree_leaves(function(x)), strict=True):
            if isinstance(plain, Tensor):
                torch.testing.assert_close(batched.reshape(plain.shape), plain)
