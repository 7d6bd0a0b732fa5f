# SPDX-License-Identifier: BSD-3-Clause
"""Rewrites layer normalization formulas to ``layer_norm``.

The formula is ``(x - mean) / sqrt(variance + eps) * weight + bias``. Mean and variance are computed
over the last dimensions. The variance may be ``var`` without correction or a mean of squares. A
program may write ``* rsqrt`` for ``/ sqrt``, and may omit the bias, or both weight and bias.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._inductor.pattern_matcher import CallFunction, KeywordArg, PatternExpr

from torch_openreg_compile.passes.constants import is_number
from torch_openreg_compile.passes.rewriting import (
    Call,
    Rewrite,
    known_equal,
    products,
    sums,
    tensor,
    trailing,
)

aten = torch.ops.aten

_x, _dims, _eps = KeywordArg("x"), KeywordArg("dims"), KeywordArg("eps")


def squares(value: object) -> list[CallFunction]:
    """Return patterns of ``value ** 2``."""
    return [
        CallFunction(aten.pow.Tensor_Scalar, value, 2),
        CallFunction(aten.mul.Tensor, value, value),
        CallFunction(aten.square.default, value),
    ]


def over_root(value: object, mean: object) -> Iterator[CallFunction]:
    """Yield patterns of ``value / sqrt(mean + eps)``."""
    shifted = CallFunction(aten.add.Tensor, mean, _eps)
    yield CallFunction(aten.div.Tensor, value, CallFunction(aten.sqrt.default, shifted))
    yield from products(value, CallFunction(aten.rsqrt.default, shifted))


def affine_argument(arguments: dict[str, Any], name: str, sizes: list[int]) -> bool:
    """Return whether a weight or a bias is absent or has the sizes of the normalized dimensions."""
    if name not in arguments:
        return True
    value = tensor(arguments[name])
    return value is not None and known_equal(value.shape, sizes)


def _centered(users: int, mean: CallFunction | None = None) -> CallFunction:
    mean = mean or CallFunction(aten.mean.dim, _x, _dims, True)
    return CallFunction(aten.sub.Tensor, _x, mean, _users=users)


def _normalized() -> Iterator[CallFunction]:
    for variance in (
        CallFunction(aten.var.dim, _x, _dims, False, True),
        CallFunction(aten.var.correction, _x, _dims, correction=0, keepdim=True),
    ):
        yield from over_root(_centered(1), variance)
    centered = _centered(2)
    mean = CallFunction(aten.mean.dim, _x, _dims, True, _users=2)
    for one, other in (
        (centered, centered),  # centered once, or twice: with the same mean, or with two means
        (_centered(1, mean), _centered(1, mean)),
        (_centered(1), _centered(1)),
    ):
        for square in squares(other):
            yield from over_root(one, CallFunction(aten.mean.dim, square, _dims, True))


class LayerNorm(Rewrite):
    """Rewrites normalization over the last dimensions, with weight and bias of the same sizes."""

    name = "layer_norm"

    def patterns(self) -> Iterable[PatternExpr]:
        """Yield the patterns for all variants, with and without weight and bias."""
        for normalized in _normalized():
            yield normalized
            for weighted in products(normalized, KeywordArg("weight")):
                yield weighted
                yield from sums(weighted, KeywordArg("bias"))

    def replacement(self, arguments: dict[str, Any]) -> Call | None:
        """Return layer_norm(x, sizes, weight, bias, eps)."""
        x, eps = tensor(arguments["x"]), arguments["eps"]
        sizes = trailing(arguments["dims"], x) if x is not None else None
        if sizes is None or not is_number(eps):
            return None
        if not all(affine_argument(arguments, name, sizes) for name in ("weight", "bias")):
            return None
        weight, bias = arguments.get("weight"), arguments.get("bias")
        return Call(aten.layer_norm.default, (arguments["x"], sizes, weight, bias, float(eps)))
