# SPDX-License-Identifier: BSD-3-Clause
"""Rewrites ``softmax(q @ k.T * scale) @ v`` to ``scaled_dot_product_attention``.

The tensors must have the dimensions (batch, heads, tokens, width), which the fused kernel requires.
Attention with a mask is not rewritten. For a row that is fully masked, the program computes NaN,
but the kernel computes zero.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._inductor.pattern_matcher import CallFunction, KeywordArg, PatternExpr
from torch._subclasses.fake_tensor import FakeTensor

from torch_openreg_compile.passes.constants import is_number
from torch_openreg_compile.passes.rewriting import Call, Rewrite, known_equal, tensor

aten = torch.ops.aten


def _scaled(value: object) -> Iterator[CallFunction]:
    yield CallFunction(aten.mul.Tensor, value, KeywordArg("factor"))
    yield CallFunction(aten.div.Tensor, value, KeywordArg("divisor"))


def _scores() -> Iterator[CallFunction]:
    """Yield patterns of q @ k.T, with and without scaling."""
    query, key = KeywordArg("query"), KeywordArg("key")
    for transposed in (
        CallFunction(aten.transpose.int, key, KeywordArg("dim0"), KeywordArg("dim1")),
        CallFunction(aten.permute.default, key, KeywordArg("order")),
    ):
        # The patterns with a scaled query come first, because ``query`` also matches a scaled
        # query.
        for scaled in _scaled(query):
            yield CallFunction(aten.matmul.default, scaled, transposed)
        product = CallFunction(aten.matmul.default, query, transposed)
        yield from _scaled(product)
        yield product


def _scale(arguments: dict[str, Any]) -> float | None:
    """Return the factor of the scores, or None if it is not a constant number."""
    if "divisor" in arguments:
        divisor = arguments["divisor"]
        return 1 / divisor if is_number(divisor) and divisor != 0 else None
    factor = arguments.get("factor", 1.0)
    return float(factor) if is_number(factor) else None


def _swaps_last_two(arguments: dict[str, Any]) -> bool:
    if "order" in arguments:
        return [dim % 4 for dim in arguments["order"]] == [0, 1, 3, 2]
    return {arguments["dim0"] % 4, arguments["dim1"] % 4} == {2, 3}


def _fits_the_kernel(query: FakeTensor, key: FakeTensor, value: FakeTensor) -> bool:
    """Return whether all tensors have four dimensions, with equal batch, heads and width."""
    return (
        query.dim() == key.dim() == value.dim() == 4
        and known_equal(key.shape, value.shape)
        and known_equal([*query.shape[:2], query.shape[3]], [*key.shape[:2], key.shape[3]])
    )


class Attention(Rewrite):
    """Rewrites attention on 4-dim tensors that has no mask and no active dropout."""

    name = "attention"

    def patterns(self) -> Iterable[PatternExpr]:
        """Yield the patterns for all ways to scale the scores, with or without inactive dropout."""
        value = KeywordArg("value")
        for scores in _scores():
            weights = CallFunction(aten.softmax.int, scores, KeywordArg("dim"))
            yield CallFunction(aten.matmul.default, weights, value)
            idle = CallFunction(aten.dropout.default, weights, KeywordArg("rate"), False)
            yield CallFunction(aten.matmul.default, idle, value)

    def replacement(self, arguments: dict[str, Any]) -> Call | None:
        """Return scaled_dot_product_attention(query, key, value, scale=...)."""
        operands = [arguments["query"], arguments["key"], arguments["value"]]
        query, key, value = (tensor(operand) for operand in operands)
        if query is None or key is None or value is None:
            return None
        if not _fits_the_kernel(query, key, value):
            return None
        scale = _scale(arguments)
        if scale is None or arguments["dim"] % 4 != 3 or not _swaps_last_two(arguments):
            return None
        target = aten.scaled_dot_product_attention.default
        return Call(target, tuple(operands), {"scale": scale})
