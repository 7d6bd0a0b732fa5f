# SPDX-License-Identifier: BSD-3-Clause
"""Which tensors of a graph share memory with its results.

The graphs that AOTAutograd makes write to nothing, so one tensor may stand for another that is
equal. That is not so for results: a program may write to one of them later.
"""

from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree


def storages(value: Any) -> set[int]:
    """Return which memory traced values are in."""
    tensors = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    return {tensor.untyped_storage()._cdata for tensor in tensors}


def of_results(graph: fx.Graph) -> set[int]:
    """Return which memory the results of a graph are in."""
    (output,) = graph.find_nodes(op="output")
    return storages([node.meta.get("val") for node in output.all_input_nodes])


def writes(graph: fx.Graph) -> bool:
    """Tell whether an operator of a graph writes to its arguments."""
    return any(
        isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        for node in graph.nodes
    )
