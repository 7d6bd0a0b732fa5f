# SPDX-License-Identifier: BSD-3-Clause
"""The last graph transformations before kernels are generated for the device.

Some decisions of torch's compiler depend on the device's name, and only the decisions for "cpu" are
right for generated C++. This module makes the right decisions by changing the graph.
docs/compile.md lists them.
"""

from importlib.resources import files
from typing import Any

import torch
from torch import fx
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphModulePass, get_hash_for_files
from torch._inductor.virtualized import V

from torch_openreg_compile.checkpointed_random_numbers import call_attention_directly
from torch_openreg_compile.convolution import REPLACEMENTS
from torch_openreg_compile.name import DEVICE_TYPE

aten = torch.ops.aten

# Operators whose results are cheaper to buffer than to recompute for each use. torch uses the same
# list for the CPU.
_HEAVY = frozenset(
    packet.default
    for packet in (aten.exp, aten.log, aten.log10, aten.log1p, aten.log2, aten.sigmoid, aten.tanh)
)

_CONVERSIONS = frozenset((torch.ops.prims.convert_element_type.default, aten._to_copy.default))

_ARGUMENTS_OF_EXTREMA = frozenset((aten.argmax.default, aten.argmin.default))


def _on_device(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.device.type == DEVICE_TYPE


def _is_pointwise(node: fx.Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.pointwise in tags


def keep_heavy_results(graph: fx.Graph) -> None:
    """Store expensive results that are used more than once in a buffer.

    Inductor repeats a pointwise computation in each kernel that uses the result. It avoids
    repeating expensive operations only on the CPU.
    """
    heavy: set[fx.Node] = set()
    for node in graph.nodes:
        if not _is_pointwise(node) or not _on_device(node):
            continue
        if node.target not in _HEAVY and heavy.isdisjoint(node.all_input_nodes):
            continue
        if len(node.users) > 1:
            # This entry makes torch compute the result into a buffer.
            node.meta["inductor_realize_to_strides"] = True
        else:
            heavy.add(node)


def flatten_arguments_of_extrema(graph: fx.Graph) -> None:
    """Flatten a tensor before argmax or argmin over all its dimensions.

    If there are several dimensions, the index that the generated code computes is correct for any
    loop order on the CPU, but only for loops in memory order on other devices.
    """
    for node in graph.nodes:
        if node.target not in _ARGUMENTS_OF_EXTREMA or not _on_device(node):
            continue
        tensor, *rest = node.args
        value, result = tensor.meta["val"], node.meta["val"]
        if (rest and rest[0] is not None) or node.kwargs.get("dim") is not None or value.dim() < 2:
            continue
        with graph.inserting_before(node):
            flat = graph.call_function(aten.reshape.default, (tensor, [-1]))
            flat.meta["val"] = value.reshape(-1)
            index = graph.call_function(node.target, (flat,))
            index.meta["val"] = result.reshape(())
            shaped = graph.call_function(aten.reshape.default, (index, list(result.shape)))
            shaped.meta.update(node.meta)
        node.replace_all_uses_with(shaped)
        graph.erase_node(node)


def replace_convolutions(graph: fx.Graph) -> None:
    """Replace convolutions with operators whose results have a known memory format."""
    for node in graph.nodes:
        if node.target in REPLACEMENTS and node.args[0].meta["val"].device.type == DEVICE_TYPE:
            node.target = REPLACEMENTS[node.target]


def _int8_source(node: Any) -> fx.Node | None:
    """Return the operand of a conversion from int8 to int32, or None for other nodes."""
    if not isinstance(node, fx.Node) or node.target not in _CONVERSIONS:
        return None
    (source,) = node.all_input_nodes
    dtypes = source.meta["val"].dtype, node.meta["val"].dtype
    return source if dtypes == (torch.int8, torch.int32) else None


def multiply_narrow_integers(graph: fx.Graph) -> None:
    """Multiply int8 matrices directly instead of converting them to int32 first.

    torch itself does this only for devices named "cuda" or "xpu".
    """
    for node in graph.nodes:
        if node.target is not aten.mm.default or not _on_device(node):
            continue
        sources = [_int8_source(argument) for argument in node.args]
        if None not in sources:
            node.target = aten._int_mm.default
            node.args = tuple(sources)
    graph.eliminate_dead_code()


class DevicePass(CustomGraphModulePass):
    """Runs the transformations on graphs that use the device."""

    def __call__(self, gm: fx.GraphModule) -> None:
        """Change a graph in place."""
        if not config.cpp_wrapper and not V.aot_compilation:
            # C++ code can call only the operators in libopenreg_aoti.so.
            replace_convolutions(gm.graph)
            multiply_narrow_integers(gm.graph)
        call_attention_directly(gm.graph)
        flatten_arguments_of_extrema(gm.graph)
        keep_heavy_results(gm.graph)
        gm.recompile()

    def uuid(self) -> Any:
        """Return a hash of this package's files, which is part of torch's cache keys.

        Otherwise torch would reuse graphs that were compiled by an earlier version.
        """
        package = files(__package__)
        return get_hash_for_files(
            tuple(
                sorted(str(file) for file in package.iterdir() if file.name.endswith((".py", ".h")))
            )
        )
