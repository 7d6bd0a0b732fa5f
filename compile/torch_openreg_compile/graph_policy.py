# SPDX-License-Identifier: BSD-3-Clause
"""``mode="reduce-overhead"`` for generated kernels, implemented as a CUDAGraphPolicy.

torch itself captures graphs only on "cuda". After it compiles a graph or loads it from a cache, it
calls the policy in ``torch._inductor.config.cudagraph_policy``. The policy may wrap the compiled
function.
"""

from collections.abc import Collection, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import fx
from torch._dynamo.backends.cudagraphs import find_input_mutations, get_device_node_mapping
from torch._inductor import config
from torch._inductor.cudagraph_utils import (
    CUDAGraphPolicy,
    check_multiple_devices_or_any_cpu_nodes,
    get_input_storage_mutation_info,
    get_input_storage_mutation_reason,
)
from torch._inductor.graph import GraphLowering
from torch._inductor.output_code import CompiledFxGraph, OutputCode
from torch._inductor.utils import get_first_incompatible_cudagraph_node

from torch_openreg_compile.name import DEVICE_TYPE
from torch_openreg_compile.replay import Function, Replay, skip

_Code = TypeVar("_Code", bound=OutputCode)


def reason_against_replay(gm: fx.GraphModule) -> str | None:
    """Return why a graph cannot be replayed, or None if it can be replayed."""
    node = get_first_incompatible_cudagraph_node(gm)
    if node is not None:
        return f"incompatible op {node.target}"
    return get_input_storage_mutation_reason(get_input_storage_mutation_info(gm))


def replayed(run: Function, gm: fx.GraphModule, static: Sequence[int]) -> Function:
    """Return a function that replays a graph, or ``run`` if that is impossible.

    Args:
        run: runs the graph; it takes a list of inputs and writes only to them.
        gm: the graph; each node has a FakeTensor.
        static: indices of inputs whose addresses usually do not change.
    """
    devices = get_device_node_mapping(gm)
    reason = _reason_of_devices(devices) or reason_against_replay(gm)
    if reason is not None:
        skip(reason)
        return run
    (device,) = devices
    assert device.index is not None
    return Replay(run, device.index, static, sorted(find_input_mutations(gm.graph)))


def record_reason_against(graph: GraphLowering) -> None:
    """Record in a graph, during code generation, why it cannot be replayed.

    torch records some reasons itself, while it lowers operators, and stores them in its caches. It
    checks for the remaining reasons only on "cuda".
    """
    if config.triton.cudagraphs and not graph.disable_cudagraphs_reason:
        graph.disable_cudagraphs_reason = reason_against_replay(cast(fx.GraphModule, graph.module))


def _reason_of_devices(devices: Collection[torch.device]) -> str | None:
    if len(devices) == 1 and {device.type for device in devices} == {DEVICE_TYPE}:
        return None
    return f"tensors on several devices: {', '.join(sorted(map(str, devices)))}"


def _reason_of_torch(code: CompiledFxGraph) -> str | None:
    if set(code.device_types) - {"meta"} != {DEVICE_TYPE} or len(code.device_idxs) != 1:
        return f"tensors on several devices: {', '.join(sorted(code.device_types))}"
    # torch rejects every device except "cuda", unless it has already recorded another reason.
    (index,) = code.device_idxs
    refused: dict[torch.device, Any] = {torch.device(DEVICE_TYPE, index): None}
    reason = code.disabled_cudagraphs_reason
    return None if reason == check_multiple_devices_or_any_cpu_nodes(refused) else reason


class GraphPolicy(CUDAGraphPolicy):
    """Replays graphs that were compiled for the device; other graphs are handled by torch."""

    def should_wrap(self, compiled_graph: OutputCode) -> bool:
        """Return whether torch may wrap the graph itself."""
        return not (
            isinstance(compiled_graph, CompiledFxGraph)
            and DEVICE_TYPE in compiled_graph.device_types
        )

    def wrap_output(self, output_code: _Code) -> _Code:
        """Make a compiled graph for the device run by replay if ``triton.cudagraphs`` is set."""
        if (
            not isinstance(output_code, CompiledFxGraph)
            or not config.triton.cudagraphs
            or DEVICE_TYPE not in output_code.device_types
        ):
            return output_code
        reason = _reason_of_torch(output_code)
        if reason is not None:
            skip(reason)
            return output_code
        (device,) = output_code.device_idxs
        assert output_code.current_callable is not None
        output_code.current_callable = Replay(
            output_code.current_callable,
            device,
            output_code.fx_kwargs["static_input_idxs"] or (),
            sorted(output_code.mutated_input_idxs),
        )
        return output_code


def register() -> None:
    """Make the policy the default.

    This changes the default value of the setting. An assignment would affect only the current
    thread, but a program may compile in any thread.
    """
    cast(Any, config)._config["cudagraph_policy"].default = GraphPolicy()
