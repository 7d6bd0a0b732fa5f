# SPDX-License-Identifier: BSD-3-Clause
"""torch.utils.checkpoint in generated code: backward uses the same random numbers as forward."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._inductor.utils import run_fw_bw_and_get_code
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from tests.kernel_cache import own_cache as own_cache

DEVICE = "openreg"
COUNT = 1000


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch.openreg.set_device(0)


class Attention(nn.Module):
    """Self-attention with a residual connection, which is recomputed in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(32, 96)
        self.outputs = nn.Linear(32, 32)

    def _attend(self, x: Tensor) -> Tensor:
        parts = self.inputs(x).unflatten(2, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts.unbind(0))
        attended: Tensor = self.outputs(mixed.transpose(1, 2).flatten(2))
        return x + attended

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = checkpoint(self._attend, x, use_reentrant=False)
        return result


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_attention(mode: str) -> None:
    theirs = Attention()
    ours = copy.deepcopy(theirs).to(DEVICE)
    compiled = torch.compile(ours, fullgraph=True, mode=mode)
    for _ in range(4):  # with "reduce-overhead", the third call is captured
        x = torch.randn(2, 12, 32)
        expected = theirs(x).square().sum()
        expected.backward()
        result, codes = run_fw_bw_and_get_code(lambda x=x: compiled(x.to(DEVICE)).square().sum())
        # Without dropout, the code uses no random numbers.
        assert "graphsafe_run_with_rng_state" not in "".join(codes)
        assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-4)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.grad is not None
        assert_close(mine.grad.cpu(), other.grad, rtol=1e-3, atol=1e-3)


# torch generates code for dropout and bernoulli. For the others, it calls operators.
RANDOM: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: F.dropout(torch.ones_like(x)),
    "bernoulli": lambda x: torch.bernoulli(torch.full_like(x, 0.5)),
    "multinomial": lambda x: torch.multinomial(torch.ones_like(x), COUNT),
    "poisson": lambda x: torch.poisson(torch.full_like(x, 3.0)),
    "two operators": lambda x: (
        torch.poisson(torch.full_like(x, 3.0)) + torch.randperm(COUNT, device=x.device)
    ),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers(name: str) -> None:
    """The gradient of each call uses the random numbers of the call's own forward pass."""

    @torch.compile(fullgraph=True)
    def function(x: Tensor) -> Any:
        return checkpoint(lambda y: y * RANDOM[name](y), x, use_reentrant=False)

    for device in ("openreg:0", "openreg:1"):
        x = torch.ones(COUNT, device=device, requires_grad=True)
        first, second = function(x), function(x)
        assert not torch.equal(first, second)
        for result in (second, first, function(x)):
            (gradient,) = torch.autograd.grad(result.sum(), x)
            assert torch.equal(gradient, result)
