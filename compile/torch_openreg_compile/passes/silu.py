# SPDX-License-Identifier: BSD-3-Clause
"""Rewrites ``x * sigmoid(x)`` to ``silu(x)``."""

from collections.abc import Iterable
from typing import Any

import torch
from torch._inductor.pattern_matcher import CallFunction, KeywordArg, PatternExpr

from torch_openreg_compile.passes.rewriting import Call, Rewrite, products

aten = torch.ops.aten


class SiLU(Rewrite):
    """Rewrites the product of a tensor and its sigmoid, for tensors of any shape."""

    name = "silu"

    def patterns(self) -> Iterable[PatternExpr]:
        """Return the patterns for both orders of the product."""
        x = KeywordArg("x")
        return products(x, CallFunction(aten.sigmoid.default, x))

    def replacement(self, arguments: dict[str, Any]) -> Call:
        """Return silu(x)."""
        return Call(aten.silu.default, (arguments["x"],))
