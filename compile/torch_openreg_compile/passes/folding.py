# SPDX-License-Identifier: BSD-3-Clause
"""Folds chains of constants: ``x * 2 * 3`` becomes ``x * 6``, ``x * 1`` becomes ``x``.

By default a chain is folded only if its result is bit-identical for every x:

- ``x * 1``, ``x / 1`` and ``x - 0``. ``x + 0`` is folded only for integers, because it turns a
  floating-point -0 into 0.
- For integers, ``x * a * b`` and sums: both forms wrap around equally.
- ``x * a * b`` if a or b is a power of two, because such a product is not rounded. Neither may be
  below 1 in absolute value. If b is the power of two, a must be an integer; otherwise x * a may be
  rounded once more below the smallest normal number. a * b must be finite in the dtype in which
  kernels compute.

``inexact`` also folds chains whose results change by one rounding: ``x + 1 + 2``, ``x * 0.1 *
0.3``, and ``x + 0``.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torch_openreg_compile.passes import aliasing
from torch_openreg_compile.passes.constants import is_number

aten = torch.ops.aten

_Number = int | float

_MUL = (aten.mul.Tensor, aten.mul.Scalar)
_ADD = (aten.add.Tensor, aten.add.Scalar)
_SUB = (aten.sub.Tensor, aten.sub.Scalar)
_DIV = (aten.div.Tensor, aten.div.Scalar)


def _number(node: fx.Node) -> _Number | None:
    """Return the constant that a node combines with its first operand, or None if there is none."""
    if node.target not in (*_MUL, *_ADD, *_SUB, *_DIV):
        return None
    if len(node.args) != 2 or node.kwargs or not isinstance(node.args[0], fx.Node):
        return None
    number = node.args[1]
    return number if is_number(number) else None


def _same_kind(dtype: torch.dtype, *numbers: _Number) -> bool:
    """Return whether the tensor is floating-point, or all numbers fit its integer dtype."""
    if dtype.is_floating_point:
        return True
    limits = torch.iinfo(dtype) if dtype not in (torch.bool,) and not dtype.is_complex else None
    return limits is not None and all(
        isinstance(number, int) and limits.min <= number <= limits.max for number in numbers
    )


def _is_power_of_two(number: _Number) -> bool:
    return math.isfinite(number) and math.frexp(abs(number))[0] == 0.5


def _exact_product(first: _Number, second: _Number, dtype: torch.dtype) -> bool:
    """Return whether ``x * first * second == x * (first * second)`` bit for bit, for every x."""
    if not all(math.isfinite(number) and abs(number) >= 1 for number in (first, second)):
        return False
    computed_in = torch.float64 if dtype == torch.float64 else torch.float32
    if abs(float(first) * float(second)) > torch.finfo(computed_in).max:
        return False
    return _is_power_of_two(first) or (_is_power_of_two(second) and float(first).is_integer())


def _is_neutral(node: fx.Node, number: _Number, dtype: torch.dtype, inexact: bool) -> bool:
    """Return whether a node returns its first operand unchanged."""
    if node.target in (*_MUL, *_DIV):
        return number == 1
    if number != 0:
        return False
    if inexact or not dtype.is_floating_point:
        return node.target in (*_ADD, *_SUB)
    # x + 0 changes -0 to 0, while x + -0 and x - 0 keep it.
    negative = math.copysign(1, number) < 0
    return node.target in (_ADD if negative else _SUB)


def _combined(
    inner: fx.Node,
    first: _Number,
    outer: fx.Node,
    second: _Number,
    dtype: torch.dtype,
    inexact: bool,
) -> _Number | None:
    """Return the constant that replaces both constants, or None if they cannot be combined."""
    if inner.target in _MUL and outer.target in _MUL:
        product = first * second
        if not dtype.is_floating_point or inexact or _exact_product(first, second, dtype):
            return product
    sums = (*_ADD, *_SUB)
    if inner.target in sums and outer.target in sums and (not dtype.is_floating_point or inexact):
        # The combined node keeps the outer operator, so the sign of its constant depends on both
        # operators.
        same = (inner.target in _ADD) == (outer.target in _ADD)
        return second + first if same else second - first
    return None


def _replaceable(node: fx.Node, by: fx.Node, results: set[int]) -> bool:
    """Return whether ``by`` can replace a node: equal layout, and no result shares the memory."""
    old, new = node.meta["val"], by.meta["val"]
    return (
        old.dtype == new.dtype
        and aliasing.storages(old).isdisjoint(results)
        and len(old.shape) == len(new.shape)
        and all(statically_known_true(a == b) for a, b in zip(old.shape, new.shape, strict=True))
        and all(
            statically_known_true(a == b) for a, b in zip(old.stride(), new.stride(), strict=True)
        )
    )


def _fold_node(node: fx.Node, results: set[int], inexact: bool) -> str | None:
    second, traced = _number(node), node.meta.get("val")
    if second is None or not isinstance(traced, FakeTensor):
        return None
    source = node.args[0]
    assert isinstance(source, fx.Node)
    dtype = traced.dtype
    if source.meta["val"].dtype != dtype or not _same_kind(dtype, second):
        return None
    if _is_neutral(node, second, dtype, inexact):
        if not _replaceable(node, source, results):
            return None
        node.replace_all_uses_with(source)
        node.graph.erase_node(node)
        return f"fold: {node.name} -> {source.name}"
    first = _number(source)
    if first is None or len(source.users) != 1:
        return None
    origin = source.args[0]
    assert isinstance(origin, fx.Node)
    if origin.meta["val"].dtype != dtype or not _same_kind(dtype, first):
        return None
    number = _combined(source, first, node, second, dtype, inexact)
    if number is None or not _same_kind(dtype, number):
        return None
    node.args = (origin, number)
    node.graph.erase_node(source)
    return f"fold: {source.name}, {node.name} -> {node.name} ({number})"


def fold(gm: fx.GraphModule, *, inexact: bool = False) -> list[str]:
    """Fold the chains in a graph produced by AOTAutograd, in place.

    Args:
        gm: the graph; a graph that writes to its arguments is not changed.
        inexact: also fold chains whose results change by one rounding.

    Returns:
        One line of text for each step.
    """
    if aliasing.writes(gm.graph):
        return []
    results = aliasing.of_results(gm.graph)
    done = [line for node in gm.graph.nodes if (line := _fold_node(node, results, inexact))]
    if done:
        gm.recompile()
    return done


#: ``fold`` for programs that accept a different rounding.
fold_inexactly: Callable[[fx.GraphModule], list[str]] = partial(fold, inexact=True)
