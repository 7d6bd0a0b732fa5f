# SPDX-License-Identifier: BSD-3-Clause
"""Rewrites normalization by the root mean square to ``rms_norm``.

The formula is ``x / sqrt(mean(x ** 2) + eps) * weight``, with the mean over the last dimensions. A
program may write ``* rsqrt`` for ``/ sqrt`` and may omit the weight.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch._inductor.pattern_matcher import CallFunction, KeywordArg, PatternExpr

from torch_openreg_compile.passes.constants import is_number
from torch_openreg_compile.passes.layer_norm import affine_argument, over_root, squares
from torch_openreg_compile.passes.rewriting import (
    Call,
    Rewrite,
    products,
    tensor,
    trailing,
)

aten = torch.ops.aten


class RMSNorm(Rewrite):
    """Replaces RMS normalization over the trailing dimensions with ``rms_norm``.

    The weight, if any, must have the sizes of these dimensions.
    """

    name = "rms_norm"

    def patterns(self) -> Iterable[PatternExpr]:
        """Yield the patterns for all variants, with and without a weight."""
        x = KeywordArg("x")
        for square in squares(x):
            mean = CallFunction(aten.mean.dim, square, KeywordArg("dims"), True)
            for normalized in over_root(x, mean):
                yield normalized
                yield from products(normalized, KeywordArg("weight"))

    def replacement(self, arguments: dict[str, Any]) -> Call | None:
        """Return rms_norm(x, sizes, weight, eps)."""
        x, eps = tensor(arguments["x"]), arguments["eps"]
        sizes = trailing(arguments["dims"], x) if x is not None else None
        if sizes is None or not is_number(eps) or not affine_argument(arguments, "weight", sizes):
            return None
        weight = arguments.get("weight")
        return Call(aten.rms_norm.default, (arguments["x"], sizes, weight, float(eps)))
