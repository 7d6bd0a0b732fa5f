# SPDX-License-Identifier: BSD-3-Clause
"""Removes nodes of a graph whose results nobody uses.

A graph of torch._dynamo calls Python functions and methods of tensors: ``x.add_(1)`` with an unused
result still changes x, dropout still draws random numbers, batch_norm still updates its statistics.
fx's own elimination takes every method for pure, and says that it is not sound. Here a node goes
only if it is known to do nothing but compute, by the schema of the operator behind it; what is not
known stays, and costs only its time.
"""

import operator
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import fx

# Of Python's operators: the others change their first operand.
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

# Marks of operators with an effect that is not in their schema's types: they may change an
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
        # Normalizations update them in training, without a mark.
        and not any(argument.name.startswith("running_") for argument in schema.arguments)
    )


def _operator_computes_only(name: str, node: fx.Node) -> bool:
    """Tell whether operator ``aten::name`` is pure, whichever of its overloads the node calls."""
    packet = getattr(torch.ops.aten, name, None)
    # out= is the one argument that chooses an overload which writes.
    if not isinstance(packet, torch._ops.OpOverloadPacket) or "out" in node.kwargs:
        return False
    names = packet.overloads()
    overloads = [getattr(packet, overload) for overload in names]
    return all(
        _computes_only(overload) for overload in overloads if torch.Tag.out not in overload.tags
    )


def is_pure(node: fx.Node) -> bool:
    """Tell whether a node is known to have no effect but its result."""
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
        # torch's own have the name of their operator: torch.sum, torch._C._nn.gelu, torch.fft.fft.
        of_torch = getattr(torch._C._VariableFunctions, target.__name__, None) is target
        if of_torch or (target.__module__ or "").startswith("torch._C._"):
            return _operator_computes_only(target.__name__, node)
    return False


def eliminate(gm: fx.GraphModule) -> list[str]:
    """Remove dead nodes from a graph and the graphs inside it, and recompile what changed.

    Inputs and outputs stay as they are. The graph has to be well-formed.

    Returns:
        The names of the nodes that went, in no order that means anything.
    """
    removed = []
    for module in list(gm.modules()):
        if not isinstance(module, fx.GraphModule):
            continue
        dead = []
        # From the end, so that what only a dead node used is dead when its turn comes.
        for node in reversed(module.graph.nodes):
            if not node.users and is_pure(node):
                module.graph.erase_node(node)
                dead.append(node.name)
        if dead:
            module.recompile()
            removed += dead
    return removed
