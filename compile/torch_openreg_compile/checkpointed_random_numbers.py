# SPDX-License-Identifier: BSD-3-Clause
"""Lets generated code repeat the random numbers of checkpointed regions.

AOTAutograd runs a random operator of a checkpointed region with a generator's state, which is an
argument of the graph, so that backward repeats the operator with the same numbers. The kernel
generator accepts such an argument only for "cuda". It also accepts opaque objects, which it passes
on in the same way.
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

    torch counts it as a random operator, because it takes a dropout probability.
    """
    for node in graph.find_nodes(op="call_function", target=graphsafe_run_with_rng_state):
        operator, *arguments = node.args
        state = node.kwargs["rng_state"]
        if operator is _ATTENTION and state.meta["val"].device.type == DEVICE_TYPE:
            node.target = operator
            node.args = tuple(arguments)
            node.kwargs = {name: node.kwargs[name] for name in node.kwargs if name != "rng_state"}


def register() -> None:
    """Make the kernel generator accept the states of the device's generators."""
    lower = lowerings[graphsafe_run_with_rng_state]

    def lower_on_device(*args: Any, rng_state: ir.GeneratorState, **kwargs: Any) -> Any:
        state: Any = rng_state
        if rng_state.device.type == DEVICE_TYPE:
            generator = torch.get_device_module(DEVICE_TYPE)._get_generator(rng_state.device)
            state = ir.OpaqueObjectState(name=rng_state.name, value=generator.clone_state())
        return lower(*args, rng_state=state, **kwargs)

    lowerings[graphsafe_run_with_rng_state] = lower_on_device
