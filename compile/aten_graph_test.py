# SPDX-License-Identifier: BSD-3-Clause
"""Lowered graphs compute the same results as the captured graphs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
from torch_openreg_compile.aten_graph import lower


class Capture:
    """A backend that lowers each graph and records which operators and functions it then calls."""

    def __init__(self) -> None:
        self.gm = fx.GraphModule({}, fx.Graph())
        self.graphs = 0

    def __call__(self, gm: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        self.graphs = len(lower(gm))
        gm.graph.lint()
        self.gm = gm
        return gm.forward

    @property
    def called(self) -> list[str]:
        """The names of the called operators, and of the called functions that were not lowered."""
        nodes = [node for node in self.gm.graph.nodes if node.op.startswith("call_")]
        return [
            node.target._schema.name.removeprefix("aten::")
            if isinstance(node.target, torch._ops.OpOverload)
            else f"<{getattr(node.target, '__name__', node.target)}>"
            for node in nodes
        ]


def capture(function: Callable[..., Any], *inputs: Tensor) -> Capture:
    """Lower a function; check that its result and its effect on the inputs match eager mode."""
    torch._dynamo.reset()
    backend = Capture()
    outcomes = []
    for each in (torch.compile(function, backend=backend, fullgraph=True), function):
        torch.manual_seed(0)
        copies = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
        outcomes.append((each(*copies), copies, torch.rand(3)))
    torch.testing.assert_close(*outcomes, rtol=0, atol=0)
    return backend


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.sigmoid(x) * x,
        lambda x: x.sigmoid().mul(x),
        lambda x: torch.mul(F.sigmoid(x), x),
    ],
)
def test_one_operator_for_many_spellings(function: Callable[..., Tensor]) -> None:
    assert capture(function, torch.randn(3)).called == ["sigmoid", "mul"]


def test_composite_operators_stay_whole() -> None:
    def function(x: Tensor) -> Tensor:
        return F.layer_norm(F.softmax(x, -1), (4,))

    assert capture(function, torch.randn(2, 4)).called == ["softmax", "layer_norm"]


def test_several_results() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        a, _, c = x.chunk(3)
        return a.exp() + c, x.max(0).values

    called = capture(function, torch.randn(6, 2)).called
    assert called == ["chunk", "<getitem>", "<getitem>", "exp", "add", "max", "<getitem>"]


def test_mutation() -> None:
    def function(x: Tensor) -> Tensor:
        y = x + 1
        y.mul_(2)
        x[0] = 5
        x += 1
        torch.add(y, x, out=y)
        return y + x[1:].sum()

    assert "mul_" in capture(function, torch.randn(3)).called


def test_views_and_indices() -> None:
    def function(x: Tensor, i: Tensor) -> Tensor:
        return x[1:, ::2].t().reshape(-1)[i] + x[..., None, 0].flatten()[:2]

    called = capture(function, torch.randn(3, 4), torch.tensor([0, 1])).called
    assert not any(name.startswith("<") for name in called)


def test_unused_random_numbers_are_drawn() -> None:
    def function(x: Tensor) -> Tensor:
        torch.rand_like(x)
        return F.dropout(x) + torch.rand_like(x)

    assert capture(function, torch.ones(8)).called[0] == "rand_like"


def test_shapes_that_change() -> None:
    backend = Capture()

    def function(x: Tensor) -> Tensor:
        return x.view(-1, x.shape[1] // 2) * x.shape[0] + x.size(1)

    compiled = torch.compile(function, backend=backend, dynamic=True, fullgraph=True)
    for size in (4, 6, 10):
        x = torch.randn(size, 2 * size)
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)
    assert {"view", "mul", "add"} <= set(backend.called)


def test_data_dependent_shapes_are_not_lowered() -> None:
    def function(x: Tensor) -> Tensor:
        return x[x > 0].exp()

    torch._dynamo.reset()
    backend = Capture()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        x = torch.tensor([1.0, -1.0, 2.0])
        torch.testing.assert_close(compiled(x), function(x))
    assert backend.called[0] == "gt"
    assert "<getitem>" in backend.called


class _Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * grad


def test_custom_gradients_are_kept() -> None:
    def function(x: Tensor) -> Tensor:
        y: Tensor = _Double.apply(x.exp())  # type: ignore[no-untyped-call]
        with torch.no_grad():
            factor = x.exp()
        return y * factor

    backend = capture(function, torch.zeros(2, requires_grad=True))
    assert backend.called.count("exp") == 2
    x = torch.zeros(2, requires_grad=True)
    compiled = torch.compile(function, backend=Capture(), fullgraph=True)
    (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
    assert gradient.tolist() == [2, 2]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.func.grad(lambda y: (y.sin() * y).sum())(x),
        lambda x: torch.func.vmap(lambda y: y * y.sum())(x),
        lambda x: x.exp().t_() + 1,
    ],
    ids=["grad", "vmap", "metadata"],
)
def test_graphs_that_cannot_be_lowered(function: Callable[..., Tensor]) -> None:
    assert capture(function, torch.randn(3, 3)).graphs == 0


def test_properties_are_set_as_in_the_program() -> None:
    def function(x: Tensor) -> Tensor:
        y = (x + 1).detach().requires_grad_()
        return (y * 2).detach()

    assert "<requires_grad_>" in capture(function, torch.randn(2)).called


def test_constants_are_kept() -> None:
    def function(x: Tensor) -> Tensor:
        return x + torch.tensor([1.0, 2.0]) + torch.ones(2) + torch.arange(2)

    assert capture(function, torch.randn(2)).called.count("add") == 3


def test_functions_that_switch_gradients_are_not_lowered() -> None:
    """If a function restores the gradient mode, tracing would record a wrong mode."""

    def normalized(x: Tensor) -> Tensor:
        with torch.no_grad():
            scale = x.abs().max()
        return x / scale

    normalized.__module__ = "torch.nn.functional"
    gm = fx.symbolic_trace(lambda x: x.exp())
    (node,) = gm.graph.find_nodes(op="call_method", target="exp")
    node.op, node.target = "call_function", normalized
    with FakeTensorMode():
        fake = torch.ones(3)
    for each in gm.graph.nodes:
        each.meta["example_value"] = fake
    lower(gm)
    assert node.target is normalized
    assert node in gm.graph.nodes


def test_embedding_with_max_norm() -> None:
    def function(weight: Tensor, rows: Tensor) -> Tensor:
        return F.embedding(rows, weight, max_norm=1).exp() * weight.sin()

    called = capture(function, torch.full((2, 2), 0.9), torch.tensor([0, 1])).called
    assert "embedding_renorm_" in called


def test_constants_beside_several_results() -> None:
    """If one node of a run cannot be lowered, the run's nodes are lowered one by one."""

    def function(x: Tensor) -> Tensor:
        first, second = x.chunk(2)
        return torch.where(first > 0, first, second.new_tensor(2.0)) + second.max(0).values

    assert "chunk" in capture(function, torch.randn(4, 2)).called


def test_checkpointed_regions_are_lowered() -> None:
    def function(x: Tensor) -> Tensor:
        result: Tensor = checkpoint(lambda y: F.dropout(y.sin()), x + 1, use_reentrant=False)
        return result * 2

    torch._dynamo.reset()
    backend = Capture()
    torch.compile(function, backend=backend, fullgraph=True)(torch.ones(8))
    assert backend.graphs == 2
    body = next(iter(backend.gm.children()))
    assert "torch.ops.aten.sin" in str(body.code)
    assert "torch.ops.aten.dropout" in str(body.code)


def test_autocast_is_the_one_at_the_node() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = x @ x
        return inside, x @ x

    backend = capture(function, torch.randn(2, 2))
    products = [node for node in backend.gm.graph.nodes if "matmul" in str(node.target)]
    assert [node.meta["val"].dtype for node in products] == [torch.bfloat16, torch.float32]


def test_stack_traces_are_kept() -> None:
    backend = capture(lambda x: x.sigmoid() * x, torch.randn(2))
    nodes = [node for node in backend.gm.graph.nodes if node.op == "call_function"]
    assert all("x.sigmoid() * x" in node.meta["stack_trace"] for node in nodes)


def test_lowering_twice_changes_nothing() -> None:
    backend = capture(lambda x: F.relu(x).sum(), torch.randn(2))
    before = backend.called
    lower(backend.gm)
    assert backend.called == before == ["relu", "sum"]
