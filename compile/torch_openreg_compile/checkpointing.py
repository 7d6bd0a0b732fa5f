# SPDX-License-Identifier: BSD-3-Clause
"""Gives checkpointed regions of a graph their meaning outside of AOTAutograd.

torch._dynamo captures ``torch.utils.checkpoint`` as an operator on a graph. The operator is made
for AOTAutograd, which takes care of random numbers by itself; called as it is, it recomputes a
region with other random numbers than those of forward, and the gradient of a dropout is wrong. So
where a graph runs without AOTAutograd, the operator is replaced by what the program wrote.
"""

from collections.abc import Callable
from typing import Any

from torch import fx
from torch._higher_order_ops.wrap import TagActivationCheckpoint, tag_activation_checkpoint
from torch.utils.checkpoint import checkpoint


def checkpoint_graph(graph: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    """Run ``graph`` and drop what backward needs of it; backward runs it again.

    Args:
        graph: what was checkpointed.
        args: its positional arguments.
        kwargs: its keyword arguments, and those of ``torch.utils.checkpoint.checkpoint``.
    """
    divide: Callable[..., Any] = TagActivationCheckpoint.divide_kwargs
    settings, graph_kwargs = divide(kwargs)
    settings["use_reentrant"] = False  # torch._dynamo captures no other form
    context = graph.meta.get("_checkpoint_context_fn")
    if context is not None:
        settings["context_fn"] = context
    return checkpoint(graph, *args, **settings, **graph_kwargs)


def lower(gm: fx.GraphModule) -> None:
    """Let checkpointed regions of a graph, and of the graphs inside it, run as in eager mode."""
    for module in list(gm.modules()):
        if not isinstance(module, fx.GraphModule):
            continue
        nodes = module.graph.find_nodes(op="call_function", target=tag_activation_checkpoint)
        for node in nodes:
            node.target = checkpoint_graph
        if nodes:
            module.recompile()
