# SPDX-License-Identifier: BSD-3-Clause
"""Determines which tensors in a graph share memory with the graph's results.

Graphs from AOTAutograd do not write to tensors, so a pass may replace a tensor with an equal one.
Results are an exception, because the program may write to a result later.
"""

from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree


def storages(value: Any) -> set[int]:
    """Return the storages of all tensors in a traced value."""
    tensors = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    return {tensor.untyped_storage()._cdata for tensor in tensors}


def of_results(graph: fx.Graph) -> set[int]:
    """Return the storages of a graph's results."""
    (output,) = graph.find_nodes(op="output")
    return storages([node.meta.get("val") for node in output.all_input_nodes])


def writes(graph: fx.Graph) -> bool:
    """Return whether an operator in a graph writes to its arguments."""
    return any(
        isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        for node in graph.nodes
    )
