# SPDX-License-Identifier: BSD-3-Clause
"""A rewrite of your own: subclass Rewrite, yield patterns, name the operator.

    ./bazelw run //examples/compile:gelu

Here it is the exact GELU, x / 2 * (1 + erf(x / sqrt(2))), in one spelling; the pass "gelu" of the
backend knows hundreds. Rewrite sees to the rest: that nothing between is used elsewhere, that
nothing is written to meanwhile, that dtype, shape and strides stay.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._inductor.pattern_matcher import CallFunction, KeywordArg, PatternExpr
from torch_openreg_compile.lowering import lower
from torch_openreg_compile.passes.constants import is_near
from torch_openreg_compile.passes.rewriting import Call, Rewrite, products

aten = torch.ops.aten

#: What was rewritten, a line for each match.
rewritten: list[str] = []


class ExactGELU(Rewrite):
    """x * half * (1 + erf(x / root))."""

    name = "exact_gelu"

    def patterns(self) -> Iterable[PatternExpr]:
        """Yield the product in both orders."""
        x = KeywordArg("x")
        erf = CallFunction(aten.erf.default, CallFunction(aten.div.Tensor, x, KeywordArg("root")))
        half = CallFunction(aten.mul.Tensor, x, KeywordArg("half"))
        return products(half, CallFunction(aten.add.Tensor, erf, 1))

    def replacement(self, arguments: dict[str, Any]) -> Call | None:
        """Return gelu(x), if the constants are those of GELU."""
        root, half = arguments["root"], arguments["half"]
        if is_near(root, math.sqrt(2), digits=15) and is_near(half, 0.5, digits=15):
            return Call(aten.gelu.default, (arguments["x"],))
        return None


def gelu_opt(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile a graph of torch._dynamo; autograd does the rest, as in eager mode."""
    for graph in lower(gm):
        rewritten.extend(ExactGELU()(graph))
    gm.recompile()
    return gm.forward


def gelu(x: Tensor, root: float = math.sqrt(2)) -> Tensor:
    """What is compiled; it is GELU for one root."""
    return x * 0.5 * (1 + torch.erf(x / root))


def main() -> int:
    """Compile GELU and something like it, and compare with eager mode."""
    x = torch.randn(4, 4, device="openreg")
    same = True
    for root in (math.sqrt(2), 1.5):
        rewritten.clear()
        result = torch.compile(gelu, backend=gelu_opt, dynamic=False)(x, root)
        torch._dynamo.reset()
        same = same and torch.allclose(result, gelu(x, root), atol=1e-6)
        print(f"root {root:.4f}: {', '.join(rewritten) or 'nothing to rewrite'}")
    print("same results as eager mode" if same else "other results than eager mode")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
