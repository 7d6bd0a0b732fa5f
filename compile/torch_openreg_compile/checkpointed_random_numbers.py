# SPDX-License-Identifier: BSD-3-Clause
"""Makes generated code repeat the random numbers of checkpointed regions.

Backward must repeat a random operator of a checkpointed region with the same numbers. Therefore
AOTAutograd adds the generator's state to the arguments of the graph, and runs the operator with
this state. Inductor accepts such an argument only for "cuda". However, it also accepts opaque
objects and passes them to the operator in the same way.
"""

from typing import Any

import torch
from torch import fx
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._prims.rng_prims import graphsafe_run_with_rng_state

from torch_openreg_compile.name import DEVICE_TYPE

_ATTENTION = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default


def call_attention_directly(graph: fx.Graph) -> None:
    """Call fused attention without a generator's state: it has no dropout on this device.

    torch considers it a random operator, because it has a parameter for the dropout probability.
    """
    for node in graph.find_nodes(op="call_function", target=graphsafe_run_with_rng_state):
        operator, *arguments = node.args
        state = node.kwargs["rng_state"]
        if operator is _ATTENTION and state.meta["val"].device.type == DEVICE_TYPE:
            node.target = operator
            node.args = tuple(arguments)
            node.kwargs = {name: node.kwargs[name] for name in node.kwargs if name != "rng_state"}


def register() -> None:
    """Make Inductor accept the generator states of this device."""
    lower = lowerings[graphsafe_run_with_rng_state]

    def lower_on_device(*args: Any, rng_state: ir.GeneratorState, **kwargs: Any) -> Any:
        state: Any = rng_state
        if rng_state.device.type == DEVICE_TYPE:
            generator = torch.get_device_module(DEVICE_TYPE)._get_generator(rng_state.device)
            state = ir.OpaqueObjectState(name=rng_state.name, value=generator.clone_state())
        return lower(*args, rng_state=state, **kwargs)

    lowerings[graphsafe_run_with_rng_state] = lower_on_device
