# SPDX-License-Identifier: BSD-3-Clause
"""Defines rewrites, each of which replaces operators that match a pattern with one operator.

torch's pattern matcher finds the matches. It ensures that intermediate results are not used
elsewhere and that no mutation lies between the operators. This module adds the checks that the
matcher does not make. It rejects keyword arguments that the pattern does not contain, and matches
across regions without gradients or with autocast. The new result must have the dtype, shape,
strides and device of the old one.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._inductor.pattern_matcher import (
    CallFunction,
    Match,
    PatternExpr,
    PatternMatcherPass,
    register_graph_pattern,
)
from torch._prims_common import is_contiguous_or_false
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torch_openreg_compile import dead_code
from torch_openreg_compile.aten_graph import autocast_at, value_of


@dataclass(frozen=True)
class Call:
    """The call that replaces a match: an operator and its arguments."""

    target: torch._ops.OpOverload[Any, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


def products(left: Any, right: Any) -> list[CallFunction]:
    """Return patterns of ``left * right`` in both orders."""
    mul = torch.ops.aten.mul.Tensor
    return [CallFunction(mul, left, right), CallFunction(mul, right, left)]


def sums(left: Any, right: Any) -> list[CallFunction]:
    """Return patterns of ``left + right`` in both orders."""
    add = torch.ops.aten.add.Tensor
    return [CallFunction(add, left, right), CallFunction(add, right, left)]


def tensor(value: object) -> FakeTensor | None:
    """Return the traced value of a matched argument, or None if it is not a tensor."""
    traced = value_of(value) if isinstance(value, fx.Node) else None
    return traced if type(traced) is FakeTensor else None


def known_equal(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Return whether shapes (or strides) are equal for all sizes that the graph supports."""
    return len(left) == len(right) and all(
        statically_known_true(a == b) for a, b in zip(left, right, strict=True)
    )


def trailing(dims: object, of: FakeTensor) -> list[int] | None:
    """Return the sizes of ``dims``, or None if ``dims`` are not the last dimensions.

    If one of the sizes is dynamic, the function returns None too.
    """
    if not isinstance(dims, (list, tuple)) or not all(isinstance(dim, int) for dim in dims):
        return None
    first = of.dim() - len(dims)
    if not dims or first < 0:
        return None
    if sorted(dim % of.dim() for dim in dims) != list(range(first, of.dim())):
        return None
    sizes = list(of.shape[first:])
    return sizes if all(type(size) is int for size in sizes) else None


def _has_an_effect(node: fx.Node) -> bool:
    if node.target is torch.ops.aten.dropout.default and node.args[2] is False:
        return False
    return node.op.startswith("call_") and not dead_code.is_pure(node)


def _number_regions(graph: fx.Graph) -> None:
    """Number the regions of a graph. A rewrite must not move operators from one region to another.

    The matcher rejects matches that span two regions. By default it starts a region only at
    operators that write. A graph from torch._dynamo also contains nodes with unknown effects and
    nodes that switch gradients, which must start a region too.
    """
    region = 0
    for node in graph.nodes:
        if _has_an_effect(node):
            region += 1
        node.meta["mutation_region_id"] = region


class Rewrite(ABC):
    """Replaces matches of patterns with calls whose results differ at most by rounding."""

    #: The name of the pass in options.
    name: str

    def __init__(self) -> None:
        self._matcher = PatternMatcherPass(pass_name=f"openreg_{self.name}")
        self._done: list[str] = []
        for pattern in self.patterns():
            register_graph_pattern(
                pattern,
                extra_check=lambda match: self._checked(match) is not None,
                pass_dict=self._matcher,
            )(self._replace)

    @abstractmethod
    def patterns(self) -> Iterable[PatternExpr]:
        """Yield patterns. Their keyword arguments name the arguments of a match."""

    @abstractmethod
    def replacement(self, arguments: dict[str, Any]) -> Call | None:
        """Return a call that is equivalent to a match, or None to reject the match.

        Args:
            arguments: the match's nodes and constants by name.
        """

    def __call__(self, gm: fx.GraphModule) -> list[str]:
        """Rewrite a graph in place; return one line of text for each match that was replaced."""
        self._done = []
        _number_regions(gm.graph)
        with warnings.catch_warnings():
            # The matcher uses Inductor's dtype check, which warns although Inductor does not run.
            warnings.filterwarnings("ignore", "Torchinductor does not support")
            replaced = self._matcher.apply(gm)
        if replaced:
            gm.recompile()
        return self._done

    def _checked(self, match: Match) -> tuple[Call, FakeTensor] | None:
        """Return a match's replacement and its traced result, or None if the match is rejected."""
        for pattern, node in match.ctx.pattern_to_node.items():
            # The matcher ignores extra keyword arguments: it treats add(x, y, alpha=2) as
            # add(x, y).
            if node is None or not isinstance(pattern, CallFunction):
                continue
            if set(node.kwargs) - set(pattern.kwargs):
                return None
        old = tensor(match.output_node())
        values = [value_of(node) for node in match.nodes]
        values += [tensor(argument) for argument in match.kwargs.values()]
        tensors = [value for value in values if isinstance(value, FakeTensor)]
        # Reject operands of several dtypes, and numbers converted to tensors: the operator would
        # round differently.
        if old is None or not old.dtype.is_floating_point:
            return None
        if any(t.dtype != old.dtype or t.device != old.device for t in tensors):
            return None
        call = self.replacement(match.kwargs)
        if call is None:
            return None
        args, kwargs = fx.node.map_arg((call.args, call.kwargs), value_of)
        with old.fake_mode, autocast_at(match.output_node()), torch.no_grad():
            new = call.target(*args, **kwargs)
        return (call, new) if _can_replace(new, old) else None

    def _replace(self, match: Match, *args: Any, **kwargs: Any) -> None:
        checked, root = self._checked(match), match.output_node()
        assert checked is not None
        call, value = checked
        new = match.graph.call_function(call.target, call.args, call.kwargs)
        new.meta = {**root.meta, "val": value}
        if not known_equal(value.stride(), value_of(root).stride()):
            clone, memory_format = torch.ops.aten.clone.default, torch.contiguous_format
            new = match.graph.call_function(clone, (new,), {"memory_format": memory_format})
            new.meta = dict(root.meta)
        names = ", ".join(node.name for node in match.nodes)
        self._done.append(f"{self.name}: {names} -> {new.name}")
        root.replace_all_uses_with(new)
        match.erase_nodes()


def _can_replace(new: object, old: FakeTensor) -> bool:
    """Return whether a result can replace the old one, possibly after a contiguous copy."""
    return (
        isinstance(new, FakeTensor)
        and new.dtype == old.dtype
        and new.device == old.device
        and known_equal(new.shape, old.shape)
        and (known_equal(new.stride(), old.stride()) or is_contiguous_or_false(old))
    )
