# SPDX-License-Identifier: BSD-3-Clause
"""Removes graph nodes whose results are not used.

A graph from torch._dynamo calls Python functions and tensor methods. Even if their results are
unused, ``x.add_(1)`` changes x, dropout draws random numbers, and batch_norm updates its
statistics. The elimination in fx treats every method as pure and is documented as unsound. This
module removes a node only if the schema of its operator proves that it has no side effects. It
keeps all other nodes, which only costs time.
"""

import operator
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import fx

# The pure operators of Python. All others change their first operand.
_PURE_OPERATORS = frozenset(
    (
        operator.abs,
        operator.add,
        operator.and_,
        operator.contains,
        operator.eq,
        operator.floordiv,
        operator.ge,
        operator.getitem,
        operator.gt,
        operator.invert,
        operator.is_,
        operator.is_not,
        operator.le,
        operator.lshift,
        operator.lt,
        operator.matmul,
        operator.mod,
        operator.mul,
        operator.ne,
        operator.neg,
        operator.not_,
        operator.or_,
        operator.pos,
        operator.pow,
        operator.rshift,
        operator.sub,
        operator.truediv,
        operator.xor,
    )
)

# Tags of operators with effects that the schemas do not show: such operators may change an
# argument, draw random numbers, or fail depending on values.
_IMPURE_TAGS = frozenset(
    (
        torch.Tag.maybe_aliasing_or_mutating,
        torch.Tag.nondeterministic_seeded,
        torch.Tag.data_dependent_output,
    )
)


def _computes_only(overload: torch._ops.OpOverload[Any, Any]) -> bool:
    schema = overload._schema
    return (
        not schema.is_mutable
        and len(schema.returns) > 0
        and _IMPURE_TAGS.isdisjoint(overload.tags)
        # In training, normalizations update the running statistics, but they have no tag for this.
        and not any(argument.name.startswith("running_") for argument in schema.arguments)
    )


def _operator_computes_only(name: str, node: fx.Node) -> bool:
    """Return whether operator ``aten::name`` is pure in all overloads that the node may call."""
    packet = getattr(torch.ops.aten, name, None)
    # A call selects an overload that writes only if it has an out= argument.
    if not isinstance(packet, torch._ops.OpOverloadPacket) or "out" in node.kwargs:
        return False
    names = packet.overloads()
    overloads = [getattr(packet, overload) for overload in names]
    return all(
        _computes_only(overload) for overload in overloads if torch.Tag.out not in overload.tags
    )


def is_pure(node: fx.Node) -> bool:
    """Return whether a node is known to have no side effects."""
    target = node.target
    if node.op == "get_attr":
        return True
    if node.op == "call_method":
        return isinstance(target, str) and _operator_computes_only(target, node)
    if node.op != "call_function":
        return False
    if isinstance(target, torch._ops.OpOverload):
        return not node.is_impure() and _computes_only(target)
    if isinstance(target, BuiltinFunctionType):
        if target in _PURE_OPERATORS:
            return True
        # torch's builtin functions have the names of their operators: torch.sum, torch._C._nn.gelu,
        # torch.fft.fft.
        of_torch = getattr(torch._C._VariableFunctions, target.__name__, None) is target
        if of_torch or (target.__module__ or "").startswith("torch._C._"):
            return _operator_computes_only(target.__name__, node)
    return False


def eliminate(gm: fx.GraphModule) -> list[str]:
    """Remove dead nodes from a graph and its subgraphs, and recompile the changed graphs.

    Inputs and outputs are kept. The graph must be well-formed.

    Returns:
        The names of the removed nodes, in no particular order.
    """
    removed = []
    for module in list(gm.modules()):
        if not isinstance(module, fx.GraphModule):
            continue
        dead = []
        # Visit users before the nodes that they use, so that chains of dead nodes are removed
        # completely.
        for node in reversed(module.graph.nodes):
            if not node.users and is_pure(node):
                module.graph.erase_node(node)
                dead.append(node.name)
        if dead:
            module.recompile()
            removed += dead
    return removed
