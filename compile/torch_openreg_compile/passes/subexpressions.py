# SPDX-License-Identifier: BSD-3-Clause
"""Merges repeated computations in a graph (common subexpression elimination)."""

from typing import Any

from torch import fx

from torch_openreg_compile import dead_code
from torch_openreg_compile.passes import aliasing


def _key(argument: Any) -> Any:
    """Return a key for an argument. 1, 1.0 and True have different keys, as do 0.0 and -0.0."""
    if isinstance(argument, (list, tuple)):
        return (list, *map(_key, argument))
    if isinstance(argument, dict):
        return (dict, *((name, _key(argument[name])) for name in sorted(argument)))
    if isinstance(argument, slice):
        return (slice, _key(argument.start), _key(argument.stop), _key(argument.step))
    return (type(argument), repr(argument) if isinstance(argument, float) else argument)


def eliminate(gm: fx.GraphModule) -> list[str]:
    """Merge equal calls in a graph produced by AOTAutograd, in place.

    Calls that draw random numbers are never merged. Two results of the graph are not merged either,
    because a program may write to one of them. A graph that writes to its arguments is not changed.

    Returns:
        One line of text for each removed call.
    """
    if aliasing.writes(gm.graph):
        return []
    results = aliasing.of_results(gm.graph)
    known: dict[Any, fx.Node] = {}
    done = []
    for node in gm.graph.nodes:
        if node.op != "call_function" or not dead_code.is_pure(node):
            continue
        first = known.setdefault((node.target, _key(node.args), _key(node.kwargs)), node)
        if first is node:
            continue
        mine, other = (aliasing.storages(each.meta.get("val")) for each in (node, first))
        if mine & results and other & results:
            continue
        node.replace_all_uses_with(first)
        gm.graph.erase_node(node)
        results |= other if mine & results else set()
        done.append(f"cse: {node.name} -> {first.name}")
    if done:
        gm.recompile()
    return done
