# SPDX-License-Identifier: BSD-3-Clause
"""Rewrites ``exp(x - max) / sum(exp(x - max))`` to ``softmax``.

The maximum and the sum must be over the same dimension. A program that does not subtract the
maximum is not rewritten, because it overflows in cases where softmax does not.
"""

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch._inductor.pattern_matcher import CallFunction, KeywordArg, PatternExpr

from torch_openreg_compile.passes.rewriting import Call, Rewrite, tensor

aten = torch.ops.aten


class Softmax(Rewrite):
    """Rewrites a softmax over one dimension."""

    name = "softmax"

    def patterns(self) -> Iterable[PatternExpr]:
        """Yield one pattern for each way to compute the maximum."""
        x, dims = KeywordArg("x"), KeywordArg("dims")
        for maximum in (
            CallFunction(aten.amax.default, x, dims, True),
            CallFunction(
                operator.getitem, CallFunction(aten.max.dim, x, KeywordArg("of"), True), 0
            ),
        ):
            shared = CallFunction(
                aten.exp.default, CallFunction(aten.sub.Tensor, x, maximum), _users=2
            )
            total = CallFunction(aten.sum.dim_IntList, shared, dims, True)
            yield CallFunction(aten.div.Tensor, shared, total)

    def replacement(self, arguments: dict[str, Any]) -> Call | None:
        """Return softmax(x, dim)."""
        x, dims = tensor(arguments["x"]), arguments["dims"]
        if x is None or not isinstance(dims, (list, tuple)) or len(dims) != 1:
            return None
        (dim,) = dims
        if (arguments.get("of", dim) - dim) % max(x.dim(), 1) != 0:
            return None
        return Call(aten.softmax.int, (arguments["x"], dim))
