# SPDX-License-Identifier: BSD-3-Clause
"""Makes checkpointed regions of a graph work outside of AOTAutograd.

torch._dynamo captures ``torch.utils.checkpoint`` as an operator on a graph. The operator is
designed for AOTAutograd, which handles random numbers itself. A direct call of the operator would
recompute a region with random numbers that differ from those of the forward, so the gradient of
dropout would be wrong. Therefore a graph that runs without AOTAutograd calls ``checkpoint``
instead, as the program did.
"""

from collections.abc import Callable
from typing import Any

from torch import fx
from torch._higher_order_ops.wrap import TagActivationCheckpoint, tag_activation_checkpoint
from torch.utils.checkpoint import checkpoint


def checkpoint_graph(graph: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    """Run ``graph`` without saving tensors for backward; backward runs the graph again.

    Args:
        graph: the checkpointed region.
        args: its positional arguments.
        kwargs: its keyword arguments, and keyword arguments for
            ``torch.utils.checkpoint.checkpoint``.
    """
    divide: Callable[..., Any] = TagActivationCheckpoint.divide_kwargs
    settings, graph_kwargs = divide(kwargs)
    settings["use_reentrant"] = False  # torch._dynamo captures only this variant
    context = graph.meta.get("_checkpoint_context_fn")
    if context is not None:
        settings["context_fn"] = context
    return checkpoint(graph, *args, **settings, **graph_kwargs)


def lower(gm: fx.GraphModule) -> None:
    """Make checkpointed regions of a graph, including nested graphs, run as in eager mode."""
    for module in list(gm.modules()):
        if not isinstance(module, fx.GraphModule):
            continue
        nodes = module.graph.find_nodes(op="call_function", target=tag_activation_checkpoint)
        for node in nodes:
            node.target = checkpoint_graph
        if nodes:
            module.recompile()
