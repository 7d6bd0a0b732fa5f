# SPDX-License-Identifier: BSD-3-Clause
"""A custom rewrite: a subclass of Rewrite with patterns and the operator that replaces them.

    ./bazelw run //examples/compile:gelu

This example rewrites one form of the exact GELU, x / 2 * (1 + erf(x / sqrt(2))). The pass "gelu" in
the openreg backend matches hundreds of forms. Rewrite checks that intermediate results have no
other users, that no tensor is written between the operators, and that dtype, shape and strides are
kept.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._inductor.pattern_matcher import CallFunction, KeywordArg, PatternExpr
from torch_openreg_compile.aten_graph import lower
from torch_openreg_compile.passes.constants import is_near
from torch_openreg_compile.passes.rewriting import Call, Rewrite, products

aten = torch.ops.aten

#: Descriptions of the matches that were rewritten, one line each.
rewritten: list[str] = []


class ExactGELU(Rewrite):
    """Rewrites x * half * (1 + erf(x / root)) to GELU."""

    name = "exact_gelu"

    def patterns(self) -> Iterable[PatternExpr]:
        """Returns the patterns of the product in both orders."""
        x = KeywordArg("x")
        erf = CallFunction(aten.erf.default, CallFunction(aten.div.Tensor, x, KeywordArg("root")))
        half = CallFunction(aten.mul.Tensor, x, KeywordArg("half"))
        return products(half, CallFunction(aten.add.Tensor, erf, 1))

    def replacement(self, arguments: dict[str, Any]) -> Call | None:
        """Returns gelu(x) if the constants are those of GELU."""
        root, half = arguments["root"], arguments["half"]
        if is_near(root, math.sqrt(2), digits=15) and is_near(half, 0.5, digits=15):
            return Call(aten.gelu.default, (arguments["x"],))
        return None


def gelu_opt(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compiles a graph from torch._dynamo. Autograd runs as in eager mode."""
    for graph in lower(gm):
        rewritten.extend(ExactGELU()(graph))
    gm.recompile()
    return gm.forward


def gelu(x: Tensor, root: float = math.sqrt(2)) -> Tensor:
    """Computes a function that is GELU only if root is sqrt(2)."""
    return x * 0.5 * (1 + torch.erf(x / root))


def main() -> int:
    """Compiles GELU and a similar function, and compares the results with eager mode."""
    x = torch.randn(4, 4, device="openreg")
    same = True
    for root in (math.sqrt(2), 1.5):
        rewritten.clear()
        result = torch.compile(gelu, backend=gelu_opt, dynamic=False)(x, root)
        torch._dynamo.reset()
        same = same and torch.allclose(result, gelu(x, root), atol=1e-6)
        print(f"root {root:.4f}: {', '.join(rewritten) or 'nothing to rewrite'}")
    print("same results as eager mode" if same else "different results from eager mode")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
