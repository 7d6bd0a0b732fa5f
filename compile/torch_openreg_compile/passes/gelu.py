# SPDX-License-Identifier: BSD-3-Clause
"""Rewrites GELU formulas to ``gelu(x)``.

The exact formula is ``x / 2 * (1 + erf(x / sqrt(2)))``. The tanh approximation is ``x / 2 * (1 +
tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))``. The factors may be grouped in any way that
published models use. A constant matches if six digits are correct. In float64 all digits must be
correct, because the difference would be visible.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._inductor.pattern_matcher import CallFunction, KeywordArg, PatternExpr

from torch_openreg_compile.passes.constants import is_near
from torch_openreg_compile.passes.rewriting import Call, Rewrite, products, sums, tensor

aten = torch.ops.aten

_CONSTANTS = {
    "half": 0.5,
    "one": 1.0,
    "inner": math.sqrt(2 / math.pi),
    "cubic": 0.044715,
    "root": math.sqrt(2),
    "reciprocal_root": math.sqrt(0.5),
}

_x = KeywordArg("x")


def _scaled(factor: object, constant: str) -> CallFunction:
    return CallFunction(aten.mul.Tensor, factor, KeywordArg(constant))


def _cubic_terms() -> Iterator[CallFunction]:
    """Yield patterns of 0.044715 * x ** 3, with the cube as a power or as products."""
    square = CallFunction(aten.mul.Tensor, _x, _x)
    for cube in (CallFunction(aten.pow.Tensor_Scalar, _x, 3), *products(square, _x)):
        yield _scaled(cube, "cubic")
    for product in products(_scaled(_x, "cubic"), _x):
        yield from products(product, _x)


def _quadratic_terms() -> Iterator[CallFunction]:
    """Yield patterns of 0.044715 * x ** 2 in all groupings."""
    yield _scaled(CallFunction(aten.mul.Tensor, _x, _x), "cubic")
    yield _scaled(CallFunction(aten.pow.Tensor_Scalar, _x, 2), "cubic")
    yield from products(_scaled(_x, "cubic"), _x)


def _tanh_arguments() -> Iterator[CallFunction]:
    for term in _cubic_terms():
        for polynomial in sums(_x, term):
            yield _scaled(polynomial, "inner")
    for term in _quadratic_terms():
        polynomial = CallFunction(aten.add.Tensor, term, KeywordArg("one"))
        yield from products(_scaled(_x, "inner"), polynomial)


def _erf_arguments() -> Iterator[CallFunction]:
    yield _scaled(_x, "reciprocal_root")
    yield CallFunction(aten.div.Tensor, _x, KeywordArg("root"))


def _outer(function: CallFunction) -> Iterator[CallFunction]:
    """Yield patterns of x / 2 * (1 + function) in all groupings."""
    step = CallFunction(aten.add.Tensor, function, KeywordArg("one"))
    yield from products(_scaled(_x, "half"), step)
    yield from products(_x, _scaled(step, "half"))
    for product in products(_x, step):
        yield _scaled(product, "half")


class GELU(Rewrite):
    """Rewrites the exact formula to exact GELU, and the tanh formula to its approximation."""

    name = "gelu"

    def patterns(self) -> Iterable[PatternExpr]:
        """Yield the patterns for each way to group the factors."""
        for argument in _tanh_arguments():
            yield from _outer(CallFunction(aten.tanh.default, argument))
        for argument in _erf_arguments():
            yield from _outer(CallFunction(aten.erf.default, argument))

    def replacement(self, arguments: dict[str, Any]) -> Call | None:
        """Return gelu(x), with the tanh approximation if the match is the tanh formula."""
        x = tensor(arguments["x"])
        if x is None:
            return None
        digits = 15 if x.dtype == torch.float64 else 6
        for name, constant in _CONSTANTS.items():
            if name in arguments and not is_near(arguments[name], constant, digits):
                return None
        approximate = "tanh" if "inner" in arguments else "none"
        return Call(aten.gelu.default, (arguments["x"],), {"approximate": approximate})
