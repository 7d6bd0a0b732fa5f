# SPDX-License-Identifier: BSD-3-Clause
"""Dead code is removed, except for code with an observable effect."""

import operator
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import fx
from torch.utils.checkpoint import checkpoint
from torch_openreg_compile import dead_code


class Capture:
    """A backend that keeps the graph and the names of the nodes that were removed from it."""

    def __init__(self) -> None:
        self.gm = fx.GraphModule({}, fx.Graph())
        self.removed: list[str] = []

    def __call__(self, gm: fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
        self.removed = dead_code.eliminate(gm)
        gm.graph.lint()
        gm.recompile()
        self.gm = gm
        return gm.forward


def run(function: Callable[..., torch.Tensor], backend: Capture | None) -> list[torch.Tensor]:
    """Return everything observable: the result, the final inputs, and the generator's state."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    x, weight = torch.randn(4, 3), torch.rand(3)
    compiled = torch.compile(function, backend=backend, fullgraph=True) if backend else function
    return [compiled(x, weight), x, weight, torch.get_rng_state()]


def compare(function: Callable[..., torch.Tensor]) -> Capture:
    capture = Capture()
    for ours, eager in zip(run(function, capture), run(function, None), strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0)
    return capture


@torch.library.custom_op("openreg_compile_test::fill", mutates_args=("x",))
def fill(x: torch.Tensor) -> None:
    x.fill_(7)


@torch.library.custom_op("openreg_compile_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _iadd(x: torch.Tensor, w: torch.Tensor) -> None:
    x += 1


def _setitem(x: torch.Tensor, w: torch.Tensor) -> None:
    x[0] = 1.0


DEAD: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "operator": lambda x, w: x + w,
    "function": lambda x, w: torch.sin(x),
    "function_of_nn": lambda x, w: F.linear(x, w),
    "function_of_fft": lambda x, w: torch.fft.fft(x),
    "method": lambda x, w: x.cos(),
    "view": lambda x, w: x.t(),
    "chain": lambda x, w: x[0].exp().reshape(3, 1) * w,
    "factory": lambda x, w: torch.zeros(3),
    "overload": lambda x, w: torch.ops.aten.sin.default(x),
    "custom_op": lambda x, w: twice(x),
}


@pytest.mark.parametrize("dead", DEAD.values(), ids=DEAD)
def test_dead_code_is_removed(dead: Callable[..., object]) -> None:
    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        dead(x, weight)
        return x * 2

    capture = compare(function)
    assert capture.removed
    kept = [node.target for node in capture.gm.graph.nodes if node.op == "call_function"]
    assert kept == [operator.mul]


ALIVE: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "inplace_method": lambda x, w: x.add_(1),
    "inplace_function": lambda x, w: torch.relu_(x),
    "inplace_argument": lambda x, w: F.relu(x, inplace=True),
    "inplace_operator": _iadd,
    "inplace_on_a_view": lambda x, w: x[0].mul_(2),
    "out": lambda x, w: torch.add(w, 1, out=w),
    "setitem": _setitem,
    "batch_norm": lambda x, w: F.batch_norm(x, w, w, training=True),
    "instance_norm": lambda x, w: torch.instance_norm(
        x[None].transpose(1, 2), None, None, w, w, True, 0.5, 1e-5, False
    ),
    "embedding": lambda x, w: F.embedding(torch.tensor([1]), x, max_norm=0.1),
    "dropout": lambda x, w: F.dropout(x),
    "random_factory": lambda x, w: torch.rand(2),
    "random_method": lambda x, w: w.bernoulli(),
    "attention": lambda x, w: F.scaled_dot_product_attention(
        x[None, None], x[None, None], x[None, None], dropout_p=0.5
    ),
    "custom_op": lambda x, w: fill(x),
}


@pytest.mark.parametrize("effect", ALIVE.values(), ids=ALIVE)
def test_effects_are_kept(effect: Callable[..., object]) -> None:
    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        effect(x, weight)
        return torch.ones(1)

    # The test is meaningful only if the effect is observable in eager mode.
    before = run(lambda x, w: torch.ones(1), None)
    assert any(not torch.equal(a, b) for a, b in zip(before, run(function, None), strict=True))
    compare(function)


def test_checks_are_kept() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async(x.sum() > 0)
        return x + 1

    capture = Capture()
    compiled = torch.compile(function, backend=capture, fullgraph=True)
    compiled(torch.ones(2))
    with pytest.raises(RuntimeError):
        compiled(-torch.ones(2))


def test_subgraphs_are_cleaned_too() -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        x.sin()
        x.add_(1)
        return x * 2

    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(body, x, use_reentrant=False)
        return result

    assert compare(function).removed == ["sin"]


def test_inputs_are_kept() -> None:
    capture = compare(lambda x, w: w.exp())
    assert not capture.removed
