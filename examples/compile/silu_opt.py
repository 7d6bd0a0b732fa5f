# SPDX-License-Identifier: BSD-3-Clause
"""A short torch.compile backend, which replaces x * sigmoid(x) with silu(x).

    ./bazelw run //examples/compile:silu_opt

The pattern is matched before autograd runs. One pattern is enough, because silu has its own
backward. In AOTAutograd's graphs, the backward uses the sigmoid too. There the sigmoid has two
users, so it cannot be replaced.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from functorch.compile import make_boxed_func
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.pattern_matcher import (
    CallFunction,
    KeywordArg,
    Match,
    PatternMatcherPass,
    register_graph_pattern,
)
from torch_openreg_compile.aten_graph import lower

aten = torch.ops.aten

#: The operators of each compiled graph, in order.
compiled_graphs: list[list[str]] = []

_patterns = PatternMatcherPass(pass_name="silu_opt")
_x = KeywordArg("x")


@register_graph_pattern(
    CallFunction(aten.mul.Tensor, _x, CallFunction(aten.sigmoid.default, _x)),
    pass_dict=_patterns,
)
def _use_silu(match: Match, x: fx.Node) -> None:
    old = match.output_node()
    new = match.graph.call_function(aten.silu.default, (x,))
    new.meta = dict(old.meta)
    old.replace_all_uses_with(new)
    match.erase_nodes()


def _run(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Returns a function that runs a forward or backward graph operator by operator."""
    overloads = [n.target for n in gm.graph.nodes if isinstance(n.target, torch._ops.OpOverload)]
    compiled_graphs.append([str(overload) for overload in overloads])
    return cast(Callable[..., Any], make_boxed_func(gm.forward))


def silu_opt(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compiles a graph from torch._dynamo: lowers it to operators, replaces silu, adds autograd."""
    for graph in lower(gm):
        if _patterns.apply(graph):
            graph.recompile()
    return aot_autograd(fw_compiler=_run)(gm, inputs)


def gate(x: Tensor) -> Tensor:
    """Computes SiLU from basic operators, plus 1."""
    return x * torch.sigmoid(x) + 1


def main() -> int:
    """Compiles the function, compares it with eager mode, and prints the compiled operators."""
    x = torch.randn(4, 4, device="openreg", requires_grad=True)
    result, expected = torch.compile(gate, backend=silu_opt)(x), gate(x)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), x)
    for kind, operators in zip(("forward", "backward"), compiled_graphs, strict=True):
        print(f"{kind}: {', '.join(operators)}")
    same = torch.allclose(result, expected) and torch.allclose(gradient, expected_gradient)
    print("same result and gradient as eager mode" if same else "different result from eager mode")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
