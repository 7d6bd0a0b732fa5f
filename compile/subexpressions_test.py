# SPDX-License-Identifier: BSD-3-Clause
"""Repeated computations are merged if a program cannot observe the difference."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch_openreg_compile.passes.subexpressions import eliminate

_Function = Callable[[Tensor], object]


def left(function: _Function, x: Tensor | None = None) -> list[str]:
    """Return a function's remaining operators; check that its result did not change."""
    x = torch.linspace(1, 2, 4).view(2, 2) if x is None else x
    mode = FakeTensorMode()
    fake = mode.from_tensor(x)
    with mode:
        gm: fx.GraphModule = make_fx(function)(fake)
    before = len(gm.graph.nodes)
    went = eliminate(gm)
    gm.graph.lint()
    assert len(gm.graph.nodes) == before - len(went)
    torch.manual_seed(0)
    result = gm(x.clone())
    torch.manual_seed(0)
    torch.testing.assert_close(result, function(x.clone()), rtol=0, atol=0)
    overloads = [n.target for n in gm.graph.nodes if isinstance(n.target, torch._ops.OpOverload)]
    return [overload._schema.name.removeprefix("aten::") for overload in overloads]


def test_chains() -> None:
    assert left(lambda x: (x.exp() + 1).sin() * (x.exp() + 1).cos()) == [
        "exp",
        "add",
        "sin",
        "cos",
        "mul",
    ]


def test_several_results_of_one_call() -> None:
    assert left(lambda x: x.max(0)[0] + x.max(0)[0]) == ["max", "add"]


def test_lists_and_keywords() -> None:
    assert left(lambda x: x.sum([0], keepdim=True) * x.sum([0], keepdim=True)) == ["sum", "mul"]
    assert left(lambda x: x.sum([0], dtype=torch.float64) * x.sum([0])) == ["sum", "sum", "mul"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x + 1) * (x + 1.0),
        lambda x: torch.atan2(x * 0.0, x * -0.0),
        lambda x: (x + 1) * (x + True),
        lambda x: x.sum(0) * x.sum(1),
        lambda x: (x - 1) * (1 - x),
    ],
    ids=["kind", "sign_of_zero", "bool", "dim", "order"],
)
def test_different_arguments_are_different_calls(function: _Function) -> None:
    assert len(left(function)) == 3


def test_integer_and_float_factors_differ() -> None:
    assert len(left(lambda x: (x * 1) + (x * 1.0), torch.arange(3))) == 3


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.rand_like(x) - torch.rand_like(x),
        lambda x: torch.dropout(x, 0.5, True) - torch.dropout(x, 0.5, True),
        lambda x: torch.bernoulli(x / 2) - torch.bernoulli(x / 2),
    ],
    ids=["rand_like", "dropout", "bernoulli"],
)
def test_random_operators_are_not_merged(function: _Function) -> None:
    gm = make_fx(function)(torch.ones(2))
    eliminate(gm)
    drawn = [node for node in gm.graph.nodes if torch.Tag.nondeterministic_seeded in _tags(node)]
    assert len(drawn) == 2


def _tags(node: fx.Node) -> list[torch.Tag]:
    return node.target.tags if isinstance(node.target, torch._ops.OpOverload) else []


def test_results_stay_separate_tensors() -> None:
    assert left(lambda x: (x + 1, x + 1)) == ["add", "add"]
    assert left(lambda x: ((x + 1).view(4), (x + 1).t()))[:2] == ["add", "view"]
    assert left(lambda x: ((x + 1).exp(), x + 1)) == ["add", "exp"]
    assert left(lambda x: (x + 1, (x + 1).exp(), (x + 1))) == ["add", "exp", "add"]


def test_graphs_that_write_are_unchanged() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.exp()
        x.add_(1)
        return y + x.exp()

    assert left(function) == ["exp", "add_", "exp", "add"]


@torch.library.custom_op("openreg_compile_test::seen", mutates_args=())
def seen(x: Tensor) -> Tensor:
    return x * 2


@seen.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_custom_operators_without_effect() -> None:
    assert left(lambda x: seen(x) + seen(x)) == ["openreg_compile_test::seen", "add"]
