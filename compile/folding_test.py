# SPDX-License-Identifier: BSD-3-Clause
"""Chains of scalar operators fold if the result is bit-identical, or if ``inexact`` is set."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch_openreg_compile.passes.folding import fold

_Function = Callable[[Tensor], object]


def trace(function: _Function, x: Tensor) -> fx.GraphModule:
    """Return a function's graph of operators with fake tensors, like one from AOTAutograd."""
    mode = FakeTensorMode()
    fake = mode.from_tensor(x)
    with mode:
        gm: fx.GraphModule = make_fx(function)(fake)
    return gm


def folded(
    function: _Function, x: Tensor | None = None, *, inexact: bool = False
) -> tuple[list[str], fx.GraphModule]:
    """Fold a function's graph; return its remaining calls, such as ``mul(6)``, and the graph."""
    gm = trace(function, torch.ones(4) if x is None else x)
    fold(gm, inexact=inexact)
    gm.graph.lint()
    calls = [
        f"{node.target._schema.name.removeprefix('aten::')}"
        f"({', '.join(str(a) for a in node.args if not isinstance(a, fx.Node))})"
        for node in gm.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
    ]
    return calls, gm


FLOATS: dict[str, tuple[_Function, list[str]]] = {
    "two_then_three": (lambda x: x * 2 * 3, ["mul(6)"]),
    "three_then_two": (lambda x: x * 3 * 2, ["mul(6)"]),
    "chain": (lambda x: x * 2 * 4 * 5, ["mul(40)"]),
    "negative": (lambda x: x * -2 * 3, ["mul(-6)"]),
    "one": (lambda x: (x * 1).exp(), ["exp()"]),
    "one_point_zero": (lambda x: (1.0 * x).exp(), ["exp()"]),
    "divided_by_one": (lambda x: (x / 1).exp(), ["exp()"]),
    "minus_zero": (lambda x: (x - 0).exp(), ["exp()"]),
    # These chains stay unchanged.
    "plus_zero": (lambda x: (x + 0).exp(), ["add(0)", "exp()"]),
    "minus_negative_zero": (lambda x: (x - -0.0).exp(), ["sub(-0.0)", "exp()"]),
    "thirds": (lambda x: x * 3 * 5, ["mul(3)", "mul(5)"]),
    "halves": (lambda x: x * 0.5 * 3, ["mul(0.5)", "mul(3)"]),
    "then_half": (lambda x: x * 4 * 0.5, ["mul(4)", "mul(0.5)"]),
    "fraction_then_two": (lambda x: x * 1.5 * 2, ["mul(1.5)", "mul(2)"]),
    "overflow": (lambda x: x * 2.0**100 * 2.0**100, [f"mul({2.0**100})"] * 2),
    "infinite": (lambda x: x * 2 * math.inf, ["mul(2)", "mul(inf)"]),
    "sums": (lambda x: x + 1 + 2, ["add(1)", "add(2)"]),
    "alpha": (lambda x: torch.add(x, 0, alpha=3).exp(), ["add(0)", "exp()"]),
    "truncated": (lambda x: torch.div(x, 1, rounding_mode="floor").exp(), ["div(1)", "exp()"]),
}


@pytest.mark.parametrize("name", FLOATS)
def test_floats(name: str) -> None:
    function, calls = FLOATS[name]
    assert folded(function)[0] == calls


INTEGERS: dict[str, tuple[_Function, list[str]]] = {
    "products": (lambda x: x * 3 * 5, ["mul(15)"]),
    "sums": (lambda x: x + 3 + 5, ["add(8)"]),
    "differences": (lambda x: x - 3 - 5, ["sub(8)"]),
    "back": (lambda x: x + 3 - 5, ["sub(2)"]),
    "forth": (lambda x: x - 3 + 5, ["add(2)"]),
    "plus_zero": (lambda x: (x + 0).abs(), ["abs()"]),
    # These chains stay unchanged.
    "becomes_float": (lambda x: x * 2 * 1.5, ["mul(2)", "mul(1.5)"]),
    "float_one": (lambda x: (x * 1.0).abs(), ["mul(1.0)", "abs()"]),
    "true_division": (lambda x: (x / 1).abs(), ["div(1)", "abs()"]),
    "too_large": (lambda x: x * 100 * 100, ["mul(100)", "mul(100)"]),
    "product_and_sum": (lambda x: x * 3 + 5, ["mul(3)", "add(5)"]),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str) -> None:
    function, calls = INTEGERS[name]
    assert folded(function, torch.ones(4, dtype=torch.int8))[0] == calls


def test_bool_is_not_folded() -> None:
    calls, _ = folded(lambda x: (x * 1).logical_not(), torch.ones(2, dtype=torch.bool))
    assert calls[0] == "mul(1)"


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (lambda x: x + 1 + 2, ["add(3)"]),
        (lambda x: x - 0.5 - 2, ["sub(2.5)"]),
        (lambda x: x * 0.5 * 3, ["mul(1.5)"]),
        (lambda x: (x + 0).exp(), ["exp()"]),
    ],
)
def test_inexactly(function: _Function, calls: list[str]) -> None:
    assert folded(function, inexact=True)[0] == calls


def test_values_used_elsewhere_are_kept() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y * 3, y.exp()

    assert folded(function)[0] == ["mul(2)", "mul(3)", "exp()"]


@pytest.mark.parametrize(
    "function",
    [lambda x: x * 1, lambda x: (x * 1).view(2, 2), lambda x: (x.exp(), x.exp() * 1)],
    ids=["input", "view_of_an_input", "copy"],
)
def test_results_stay_separate_tensors(function: _Function) -> None:
    """A program may write to a result. This must not change an input or another result."""
    assert "mul(1)" in folded(function)[0]


def test_different_strides_are_not_folded() -> None:
    assert folded(lambda x: (x[:, 0] * 1).exp(), torch.ones(3, 2))[0][-2:] == ["mul(1)", "exp()"]
    assert folded(lambda x: (x.t() * 1).exp(), torch.ones(3, 2))[0] == ["t()", "exp()"]


def test_graphs_that_write_are_unchanged() -> None:
    def function(x: Tensor) -> Tensor:
        y = (x * 1).exp()
        x.mul_(3)
        return y

    assert folded(function)[0] == ["mul(1)", "exp()", "mul_(3)"]


_FACTORS = st.one_of(
    st.integers(-40, 40),
    st.floats(width=32),
    st.integers(-20, 20).map(lambda exponent: 2.0**exponent),
    st.sampled_from([0.1, 1.5, 3.3, 2.0**127, -0.0, 0.0, 257, 65504]),
)
_DTYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16])
_INTEGERS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
}


@settings(max_examples=200, deadline=None)
@given(_FACTORS, _FACTORS, _DTYPES, st.integers(0, 2**32))
@example(3, 2, torch.float32, 1)
@example(2, 3.3, torch.bfloat16, 1)
@example(5, 4, torch.float16, 1)
def test_results_are_bit_identical(
    first: float, second: float, dtype: torch.dtype, seed: int
) -> None:
    """Test normal, subnormal, infinite and NaN values, given as random bit patterns."""

    def function(x: Tensor) -> Tensor:
        return ((x * first) * second + 0.0) - 0.0

    integers = _INTEGERS[dtype]
    limits = torch.iinfo(integers)
    draw = torch.Generator().manual_seed(seed)
    bits = torch.randint(limits.min, limits.max, (512,), dtype=integers, generator=draw)
    small = torch.arange(-64, 64, dtype=integers)  # values around zero, and the smallest ones
    x = torch.cat([bits, small, small + limits.min + 64]).view(dtype)
    _, gm = folded(function, x)
    expected = function(x)
    result = gm(x)
    same = (result == expected) & (result.signbit() == expected.signbit())
    assert torch.all(same | (result.isnan() & expected.isnan()))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("+-*"), st.integers(-128, 127)), max_size=5))
def test_integers_wrap_around_as_before(steps: list[tuple[str, int]]) -> None:
    def function(x: Tensor) -> Tensor:
        for sign, number in steps:
            x = x + number if sign == "+" else x - number if sign == "-" else x * number
        return x + 1

    x = torch.arange(-128, 128).to(torch.int8)
    assert torch.equal(folded(function, x)[1](x), function(x))
