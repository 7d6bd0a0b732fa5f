# SPDX-License-Identifier: BSD-3-Clause
"""Runs a graph through the passes that ``options`` select.

Rewrites run before autograd. The replacing operator has its own backward, so one pattern serves
both training and inference. Simplifications run afterwards on the forward and backward graphs that
AOTAutograd produces. These graphs do not write to tensors.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from functorch.compile import make_boxed_func
from openreg_graph import log, log_source
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx, get_static_input_idxs
from torch._inductor.custom_graph_pass import (
    CustomGraphPass,
    get_custom_graph_passes,
    get_hash_for_files,
)
from torch._inductor.utils import count_tangents

from torch_openreg_compile import dead_code, graph_policy
from torch_openreg_compile.aten_graph import lower
from torch_openreg_compile.debugging import Report
from torch_openreg_compile.options import Options
from torch_openreg_compile.passes import (
    aliasing,
    constants,
    folding,
    order,
    rewriting,
    subexpressions,
)
from torch_openreg_compile.passes.attention import Attention
from torch_openreg_compile.passes.gelu import GELU
from torch_openreg_compile.passes.layer_norm import LayerNorm
from torch_openreg_compile.passes.rms_norm import RMSNorm
from torch_openreg_compile.passes.silu import SiLU
from torch_openreg_compile.passes.softmax import Softmax

Pass = Callable[[fx.GraphModule], list[str]]

_REWRITES: dict[str, type[rewriting.Rewrite]] = {
    rewrite.name: rewrite for rewrite in (SiLU, GELU, LayerNorm, RMSNorm, Softmax, Attention)
}


def _eliminate_dead_code(gm: fx.GraphModule) -> list[str]:
    return [f"dead_code: {name}" for name in dead_code.eliminate(gm)]


def rewrites(chosen: Options) -> list[Pass]:
    """Return the selected passes that run before autograd, in the order of the option."""
    return [_REWRITES[name]() for name in chosen.passes if name in order.REWRITES]


def simplifications(chosen: Options) -> list[Pass]:
    """Return the selected passes on forward and backward graphs, in the order of the option."""
    known: dict[str, Pass] = {
        "fold": folding.fold_inexactly if chosen.inexact else folding.fold,
        "cse": subexpressions.eliminate,
        "dead_code": _eliminate_dead_code,
    }
    return [known[name] for name in chosen.passes if name in order.SIMPLIFICATIONS]


def apply(passes: Sequence[Pass], gm: fx.GraphModule) -> list[str]:
    """Run passes over a graph, in place, and log their changes."""
    done = [line for each in passes for line in each(gm)]
    for line in done:
        log.debug("%s", line)
    return done


class _Simplify(CustomGraphPass):
    """The simplifications as an Inductor pass. Inductor includes ``uuid`` in its cache keys."""

    def __init__(self, chosen: Options) -> None:
        self._passes = simplifications(chosen)
        self._chosen = chosen

    def __call__(self, graph: fx.Graph) -> None:
        assert graph.owning_module is not None
        apply(self._passes, graph.owning_module)

    def uuid(self) -> Any:
        modules = (aliasing, constants, dead_code, folding, subexpressions)
        files = tuple(str(module.__file__) for module in modules)
        return get_hash_for_files(files, repr((self._chosen.passes, self._chosen.inexact)))


def _inductor(gm: fx.GraphModule, inputs: Sequence[Any], chosen: Options) -> Callable[..., Any]:
    own = get_custom_graph_passes(config.post_grad_custom_pre_pass)  # passes that the program set
    patches = {"post_grad_custom_pre_pass": (*own, _Simplify(chosen))}
    return cast(Callable[..., Any], compile_fx(gm, inputs, config_patches=patches))


def _operators(
    gm: fx.GraphModule, inputs: Sequence[Any], chosen: Options, report: Report
) -> Callable[..., Any]:
    passes = simplifications(chosen)

    def compiler(kind: str) -> Callable[..., Any]:
        def finish(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
            with report.of(kind, graph) as done:
                done += apply(passes, graph)
            log_source(kind, graph)
            forward = cast(Callable[..., Any], make_boxed_func(graph.forward))
            if chosen.then != "graph":
                return forward
            if kind == "backward":
                static: Sequence[int] = range(count_tangents(graph))
            else:
                static = get_static_input_idxs(0)
            return graph_policy.replayed(forward, graph, static)

        return finish

    backend = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
    )
    return backend(gm, inputs)


def run(gm: fx.GraphModule, inputs: Sequence[Any], chosen: Options) -> Callable[..., Any]:
    """Run a graph from torch._dynamo through the passes and compile it.

    Args:
        gm: a valid graph; it is changed in place.
        inputs: the values of the graph's placeholders.
        chosen: selects the passes and how the graph is run.

    Returns:
        The function that torch._dynamo calls with the inputs.
    """
    report = Report(chosen)
    passes = rewrites(chosen)
    lowered = lower(gm)
    if not lowered:
        with report.of("captured", gm):
            pass  # no pass runs, so the graph stays as captured
    for graph in lowered:
        with report.of("captured", graph) as done:
            done += apply(passes, graph)
    gm.recompile()
    log_source("rewritten", gm)
    if chosen.then == "inductor":
        return _inductor(gm, inputs, chosen)
    return _operators(gm, inputs, chosen, report)
