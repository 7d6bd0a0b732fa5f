# SPDX-License-Identifier: BSD-3-Clause
"""Rewrites recognize every spelling of an operator's computation, and no other computation."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import absent_device
import pytest
import spellings
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._inductor.pattern_matcher import CallFunction, KeywordArg, PatternExpr
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
from torch_openreg_compile.aten_graph import lower
from torch_openreg_compile.options import Options
from torch_openreg_compile.passes.order import REWRITES
from torch_openreg_compile.passes.rewriting import Call, Rewrite
from torch_openreg_compile.pipeline import apply, rewrites

assert torch.get_device_module("openreg") is absent_device.module


class Capture:
    """A backend that rewrites graphs and records the rewrites and the remaining operators."""

    def __init__(self, *names: str) -> None:
        self.done: list[str] = []
        self.left: list[str] = []
        self._names = names or REWRITES

    def __call__(self, gm: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        for graph in lower(gm):
            self.done += apply(rewrites(Options(passes=self._names)), graph)
            graph.graph.lint()
            targets = [node.target for node in graph.graph.nodes]
            overloads = [each for each in targets if isinstance(each, torch._ops.OpOverload)]
            self.left += [each._schema.name.removeprefix("aten::") for each in overloads]
        gm.recompile()
        return gm.forward


def run(function: Callable[..., Any], *inputs: Tensor, names: tuple[str, ...] = ()) -> Capture:
    """Rewrite and run a function; check that its result equals the original function's."""
    torch._dynamo.reset()
    capture = Capture(*names)
    result = torch.compile(function, backend=capture, fullgraph=True)(*inputs)
    torch.testing.assert_close(result, function(*inputs))
    return capture


CASES = [(rewrite, name) for rewrite, each in spellings.SPELLINGS.items() for name in each]


@pytest.mark.parametrize(("rewrite", "spelling"), CASES)
def test_recognizes(rewrite: str, spelling: str) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in spellings.shapes(rewrite, (2, 3, 4, 5))]
    function = spellings.SPELLINGS[rewrite][spelling]
    capture = run(function, *inputs)
    assert capture.done[-1].startswith(f"{rewrite}: ")
    operator = {"attention": "scaled_dot_product_attention"}.get(rewrite, rewrite)
    assert capture.left == [operator]


def test_several_in_one_graph() -> None:
    def function(x: Tensor) -> Tensor:
        x = x * torch.sigmoid(x) + 1
        return x * x.sigmoid()

    assert run(function, torch.randn(3)).left == ["silu", "add", "silu"]


def test_only_selected_rewrites() -> None:
    def function(x: Tensor) -> Tensor:
        return spellings.SPELLINGS["softmax"]["amax"](x * x.sigmoid())

    x = torch.randn(3, 4)
    assert "silu" in run(function, x, names=("silu",)).left
    assert run(function, x, names=("softmax",)).left == ["sigmoid", "mul", "softmax"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_floating_dtypes(dtype: torch.dtype) -> None:
    assert run(lambda x: x.sigmoid() * x, torch.randn(3).to(dtype)).left == ["silu"]


def _and_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    gate = torch.sigmoid(x)
    return gate * x, gate


def _mutated_between(x: Tensor) -> Tensor:
    x = x + 1
    gate = torch.sigmoid(x)
    x.mul_(2)
    return gate * x


def _mutated_by_a_region(x: Tensor) -> Tensor:
    x = x + 1

    def double(y: Tensor) -> Tensor:
        y.mul_(2)
        return y + 1

    gate = torch.sigmoid(x)
    checkpoint(double, x, use_reentrant=False)
    return gate * x


def _gate_without_gradient(x: Tensor) -> Tensor:
    with torch.no_grad():
        gate = torch.sigmoid(x)
    return gate * x


def _softmax(
    x: Tensor, dim: int = -1, keepdim: bool = True, dtype: torch.dtype | None = None
) -> Tensor:
    exponentials = torch.exp(x - x.amax(-1, keepdim=True))
    return exponentials / exponentials.sum(dim, keepdim=keepdim, dtype=dtype)


def _layer_norm(
    x: Tensor,
    w: Tensor | float,
    b: Tensor | float = 0.0,
    eps: Tensor | float = 1e-5,
    unbiased: bool = False,
    dims: int | list[int] = -1,
    of: int | list[int] | None = None,
) -> Tensor:
    mean = x.mean(dims if of is None else of, keepdim=True)
    variance = x.var(dims, keepdim=True, unbiased=unbiased)
    return (x - mean) / torch.sqrt(variance + eps) * w + b


ROOT = spellings.ROOT


def _gelu(x: Tensor, half: float, inner: float, cubic: float, one: float = 1) -> Tensor:
    return half * x * (one + torch.tanh(inner * (x + cubic * x**3)))


def _attention(dim: int = -1, swap: tuple[int, int] = (2, 3)) -> Callable[..., Tensor]:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(*swap), dim) @ v

    return attention


def _attention_and_weights(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.softmax(q @ k.transpose(-1, -2), -1)
    return weights @ v, weights


def _gelu_and_inner(x: Tensor) -> tuple[Tensor, Tensor]:
    inner = torch.tanh(ROOT * (x + 0.044715 * x**3))
    return 0.5 * x * (1 + inner), inner


def _layer_norm_and_mean(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    mean = x.mean(-1, keepdim=True)
    variance = x.var(-1, keepdim=True, unbiased=False)
    return (x - mean) / torch.sqrt(variance + 1e-5) * w, mean


def _rms_norm_and_scale(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = torch.rsqrt((x * x).mean(-1, True) + 1e-5)
    return x * scale, scale


def _softmax_and_sum(x: Tensor) -> tuple[Tensor, Tensor]:
    exponentials = torch.exp(x - x.amax(-1, keepdim=True))
    total = exponentials.sum(-1, keepdim=True)
    return exponentials / total, total


def _attention_masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.zeros(4, 4).fill_diagonal_(-math.inf)
    return torch.softmax(q @ k.transpose(-1, -2) + mask, -1) @ v


def t(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


NOT_REWRITTEN: dict[str, tuple[Callable[..., Any], list[Tensor]]] = {
    # An intermediate result is used elsewhere.
    "silu_gate_returned": (_and_returned, [t(3)]),
    "gelu_inner_returned": (_gelu_and_inner, [t(3)]),
    "layer_norm_mean_returned": (_layer_norm_and_mean, [t(2, 5), t(5)]),
    "rms_norm_scale_returned": (_rms_norm_and_scale, [t(2, 5)]),
    "softmax_sum_returned": (_softmax_and_sum, [t(4, 4)]),
    "attention_weights_returned": (_attention_and_weights, [t(1, 2, 4, 4)] * 3),
    # The program computes a different function.
    "silu_of_other": (lambda x, y: torch.sigmoid(x) * y, [t(3), t(3) + 1]),
    "silu_alpha": (lambda x: torch.add(x, torch.sigmoid(x), alpha=2), [t(3)]),
    "gelu_other_half": (lambda x: _gelu(x, 0.25, ROOT, 0.044715), [t(3)]),
    "gelu_other_root": (lambda x: _gelu(x, 0.5, 0.7978, 0.044715), [t(3)]),
    "gelu_other_cubic": (lambda x: _gelu(x, 0.5, ROOT, 0.0447), [t(3)]),
    "gelu_other_one": (lambda x: _gelu(x, 0.5, ROOT, 0.044715, one=2), [t(3)]),
    "gelu_of_two": (
        lambda x, y: 0.5 * x * (1 + torch.erf(y / math.sqrt(2))),
        [t(3), t(3) + 1],
    ),
    "gelu_alpha": (
        lambda x: 0.5 * x * torch.add(torch.erf(x / math.sqrt(2)), 1, alpha=3),
        [t(3)],
    ),
    "layer_norm_unbiased": (lambda x, w: _layer_norm(x, w, unbiased=True), [t(2, 5), t(5)]),
    "layer_norm_inner_dim": (lambda x, w: _layer_norm(x, w, dims=0), [t(5, 5), t(5)]),
    "layer_norm_two_dims": (lambda x, w: _layer_norm(x, w, dims=-1, of=0), [t(5, 5), t(5)]),
    "layer_norm_eps_tensor": (
        lambda x, w, e: _layer_norm(x, w, eps=e),
        [t(2, 5), t(5), torch.tensor(1e-5)],
    ),
    "layer_norm_eps_outside": (
        lambda x: (x - x.mean(-1, True)) / (x.std(-1, unbiased=False, keepdim=True) + 1e-5),
        [t(2, 5)],
    ),
    "rms_norm_sum": (lambda x: x * torch.rsqrt((x * x).sum(-1, True) + 1e-5), [t(2, 5)]),
    "rms_norm_fourth": (lambda x: x * torch.rsqrt(x.pow(4).mean(-1, True) + 1e-5), [t(2, 5)]),
    "rms_norm_of_other": (
        lambda x, y: y * torch.rsqrt((x * x).mean(-1, True) + 1e-5),
        [t(2, 5), t(2, 5) + 1],
    ),
    "rms_norm_computed_wider": (
        lambda x: x * torch.rsqrt((x * x).mean(-1, True, dtype=torch.float64) + 1e-5),
        [t(2, 5)],
    ),
    "softmax_other_dim": (lambda x: _softmax(x, 0), [t(4, 4)]),
    "softmax_without_max": (lambda x: x.exp() / x.exp().sum(-1, keepdim=True), [t(4, 4)]),
    "softmax_flat_sum": (lambda x: (x - x.amax(-1, True)).exp() / 3, [t(4, 4)]),
    "attention_other_dim": (_attention(dim=-2), [t(1, 2, 4, 4)] * 3),
    "attention_other_swap": (_attention(swap=(1, 3)), [t(1, 4, 4, 4)] * 3),
    "attention_scale_tensor": (
        lambda q, k, v, s: torch.softmax(q @ k.transpose(2, 3) * s, -1) @ v,
        [t(1, 2, 4, 4)] * 3 + [t(1)],
    ),
    "attention_masked": (_attention_masked, [t(1, 2, 4, 4)] * 3),
    "attention_broadcast": (_attention(), [t(2, 2, 4, 4), t(1, 2, 4, 4), t(1, 2, 4, 4)]),
    "attention_two_widths": (_attention(), [t(1, 2, 4, 4), t(1, 2, 4, 4), t(1, 2, 4, 3)]),
    "attention_of_three": (lambda q: (q @ q.transpose(1, 2)).softmax(-1) @ q, [t(2, 4, 4)]),
    # The operator does not support the dtype or the shape.
    "layer_norm_of_a_number": (lambda x: _layer_norm(x, 1.0), [t()]),
    "silu_of_integers": (lambda x: torch.sigmoid(x) * x, [torch.arange(3)]),
    "silu_of_complex": (
        lambda x: torch.sigmoid(x) * x,
        [t(3, dtype=torch.complex64)],
    ),
    "silu_promoted": (lambda x: torch.sigmoid(x.double()) * x, [t(3)]),
    "layer_norm_promoted": (_layer_norm, [t(2, 5), t(5, dtype=torch.float64)]),
    "layer_norm_weight_of_one": (_layer_norm, [t(2, 5), t(1)]),
    "layer_norm_weight_of_rows": (_layer_norm, [t(2, 5), t(2, 1)]),
    "layer_norm_weight_wider": (_layer_norm, [t(2, 5), t(3, 1, 5)]),
    "gelu_promoted": (lambda x: 0.5 * x * (1 + torch.erf(x.double() / math.sqrt(2))), [t(3)]),
    "softmax_promoted": (lambda x: _softmax(x, dtype=torch.float64), [t(4, 4)]),
    "rms_norm_promoted": (
        lambda x, w: x * torch.rsqrt((x * x).mean(-1, True) + 1e-5) * w,
        [t(2, 5, dtype=torch.bfloat16), t(5)],
    ),
    "attention_two_widths_of_dtype": (
        lambda q, k, v: (q @ k.transpose(2, 3)).softmax(-1, dtype=torch.float64) @ v,
        [t(1, 2, 4, 4), t(1, 2, 4, 4), t(1, 2, 4, 4, dtype=torch.float64)],
    ),
    # An operand lacks a dimension, so it is broadcast along another dimension of the same size.
    "silu_broadcast": (lambda x: torch.sigmoid(x) * x[0], [t(4, 4)]),
    "gelu_broadcast": (lambda x: 0.5 * x * (1 + torch.erf(x[0] / math.sqrt(2))), [t(4, 4)]),
    "layer_norm_broadcast": (
        lambda x, w: (x - x.mean(-1)) / torch.sqrt(x.var(-1, unbiased=False) + 1e-5) * w,
        [t(4, 4), t(4)],
    ),
    "rms_norm_broadcast": (lambda x: x * torch.rsqrt((x * x).mean(-1) + 1e-5), [t(4, 4)]),
    "softmax_broadcast": (lambda x: _softmax(x, keepdim=False), [t(4, 4)]),
    # A mutation or a change to the gradient mode lies between the operators.
    "silu_mutated": (_mutated_between, [t(3)]),
    "silu_mutated_by_a_region": (_mutated_by_a_region, [t(3)]),
    "silu_without_gradient": (_gate_without_gradient, [t(3).requires_grad_()]),
    "silu_detached": (lambda x: torch.sigmoid(x).detach() * x, [t(3).requires_grad_()]),
}

# For these programs only the normalization is rewritten, because the factor is not a weight.
PART = {
    "layer_norm_weight_of_one": "layer_norm",
    "layer_norm_weight_of_rows": "layer_norm",
    "layer_norm_weight_wider": "layer_norm",
    "layer_norm_promoted": "layer_norm",
    "rms_norm_promoted": "rms_norm",
}


# The cases that each rewrite must reject: an intermediate result that is used elsewhere, operands
# of two dtypes, and operands that are broadcast.
PITFALLS = {
    "silu": ("silu_gate_returned", "silu_promoted", "silu_broadcast"),
    "gelu": ("gelu_inner_returned", "gelu_promoted", "gelu_broadcast"),
    "layer_norm": ("layer_norm_mean_returned", "layer_norm_promoted", "layer_norm_broadcast"),
    "rms_norm": ("rms_norm_scale_returned", "rms_norm_promoted", "rms_norm_broadcast"),
    "softmax": ("softmax_sum_returned", "softmax_promoted", "softmax_broadcast"),
    "attention": (
        "attention_weights_returned",
        "attention_two_widths_of_dtype",
        "attention_broadcast",
    ),
}


def test_each_rewrite_has_each_pitfall() -> None:
    assert set(PITFALLS) == set(REWRITES)
    assert {name for names in PITFALLS.values() for name in names} <= set(NOT_REWRITTEN)


@pytest.mark.parametrize("name", NOT_REWRITTEN)
def test_does_not_rewrite(name: str) -> None:
    function, inputs = NOT_REWRITTEN[name]
    torch._dynamo.reset()
    capture = Capture()
    result = torch.compile(function, backend=capture, fullgraph=True)(*inputs)
    if name in PART:
        assert capture.left[0] == PART[name]
        assert "mul" in capture.left
        tolerance = {torch.bfloat16: 2e-2}.get(inputs[0].dtype, 1e-5)
        torch.testing.assert_close(result, function(*inputs), rtol=tolerance, atol=tolerance)
    else:
        assert capture.done == []
        torch.testing.assert_close(result, function(*inputs), rtol=0, atol=0)


class _Replace(Rewrite):
    """Replaces sine with the operator call that ``call`` returns."""

    name = "replace"

    def __init__(self, call: Callable[[Any], Call]) -> None:
        self._call = call
        super().__init__()

    def patterns(self) -> Iterable[PatternExpr]:
        yield CallFunction(torch.ops.aten.sin.default, KeywordArg("x"))

    def replacement(self, arguments: dict[str, Any]) -> Call | None:
        return self._call(arguments["x"])


aten = torch.ops.aten
REPLACEMENTS: dict[str, tuple[Callable[[Any], Call], int]] = {
    "same": (lambda x: Call(aten.cos.default, (x,)), 1),
    "contiguous": (lambda x: Call(aten.t.default, (x,)), 1),
    "shape": (lambda x: Call(aten.sum.default, (x,)), 0),
    "broadcast": (lambda x: Call(aten.unsqueeze.default, (x, 0)), 0),
    "dtype": (lambda x: Call(aten._to_copy.default, (x,), {"dtype": torch.float64}), 0),
    "device": (lambda x: Call(aten._to_copy.default, (x,), {"device": torch.device("meta")}), 0),
    "several": (lambda x: Call(aten.max.dim, (x, 0)), 0),
}


@pytest.mark.parametrize("name", REPLACEMENTS)
def test_a_custom_rewrite_cannot_change_result_metadata(name: str) -> None:
    call, count = REPLACEMENTS[name]
    rewrite = _Replace(call)
    done: list[str] = []

    def backend(gm: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        for graph in lower(gm):
            done.extend(rewrite(graph))
        return gm.forward

    torch._dynamo.reset()
    result = torch.compile(lambda x: x.sin(), backend=backend, fullgraph=True)(t(3, 3))
    assert len(done) == count
    assert (result.shape, result.dtype, result.stride()) == ((3, 3), torch.float32, (3, 1))


def test_gradients_stop_at_the_same_place() -> None:
    x = t(3).requires_grad_()
    compiled = torch.compile(_gate_without_gradient, backend=Capture(), fullgraph=True)
    (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(gradient, torch.sigmoid(x))


def test_strides_of_the_result_are_kept() -> None:
    function = spellings.SPELLINGS["attention"]["unscaled"]
    q, k, v = (t(2, 4, 3, 5).transpose(1, 2) for _ in range(3))
    capture = run(function, q, k, v)
    result = torch.compile(function, backend=Capture(), fullgraph=True)(q, k, v)
    assert capture.left == ["scaled_dot_product_attention", "clone"]
    assert result.stride() == function(q, k, v).stride()


def test_is_not_rewritten_if_strides_would_change() -> None:
    x = t(5, 2).t()
    capture = run(spellings.SPELLINGS["layer_norm"]["alone"], x, t(5), t(5))
    assert capture.done == []


def test_values_of_new_nodes() -> None:
    seen: list[fx.Node] = []

    def backend(gm: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        Capture()(gm, inputs)
        seen.extend(gm.graph.find_nodes(op="call_function", target=torch.ops.aten.gelu.default))
        return gm.forward

    function = spellings.SPELLINGS["gelu"]["power"]
    torch.compile(function, backend=backend)(t(2, 3, dtype=torch.bfloat16))
    (node,) = seen
    assert node.meta["val"].dtype == torch.bfloat16
    assert node.meta["val"].shape == (2, 3)
    assert "0.044715" in node.meta["stack_trace"]


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize(("dtype", "count"), [(torch.float32, 0), (torch.bfloat16, 1)])
def test_autocast_is_part_of_the_dtype(dtype: torch.dtype, count: int, outside: bool) -> None:
    """Under autocast products are bfloat16. Fused attention in float32 would round differently."""

    def function(q: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.softmax(q @ q.transpose(2, 3), -1) @ q

    def outer(q: Tensor) -> Tensor:
        return torch.softmax(q @ q.transpose(2, 3), -1) @ q

    capture = Capture()
    compiled = torch.compile(outer if outside else function, backend=capture, fullgraph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=outside):
        assert compiled(t(1, 2, 3, 4, dtype=dtype)).dtype == torch.bfloat16
    assert len(capture.done) == count


def test_dynamic_shapes() -> None:
    capture = Capture()
    function = spellings.SPELLINGS["silu"]["method"]
    compiled = torch.compile(function, backend=capture, dynamic=True, fullgraph=True)
    for size in (3, 5, 8):
        x = t(size, 2)
        torch.testing.assert_close(compiled(x), function(x))
    assert capture.left == ["silu"]


def test_checkpointed_regions() -> None:
    def function(x: Tensor) -> Tensor:
        gate = spellings.SPELLINGS["silu"]["method"]
        result: Tensor = checkpoint(gate, x, use_reentrant=False)
        return result

    assert "silu" in run(function, t(3).requires_grad_()).left


def test_on_tensors_of_the_device() -> None:
    """The inputs are FakeTensors, because this test runs without the device."""
    with FakeTensorMode():
        x = torch.empty(2, 3, device="openreg:1")
    gm = fx.symbolic_trace(lambda x: torch.sigmoid(x) * x)
    for node in gm.graph.nodes:
        node.meta["example_value"] = x
    (graph,) = lower(gm)
    (line,) = apply(rewrites(Options()), graph)
    assert line.startswith("silu: ")
    (node,) = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.silu.default)
    assert node.meta["val"].device == torch.device("openreg:1")
    assert node.meta["val"].shape == (2, 3)


def test_dropout_in_training_is_not_rewritten() -> None:
    def function(q: Tensor) -> Tensor:
        weights = torch.softmax(q @ q.transpose(2, 3), -1)
        return F.dropout(weights, 0.5, training=True) @ q

    capture = Capture()
    torch.compile(function, backend=capture, fullgraph=True)(t(1, 1, 3, 4))
    assert capture.done == []
