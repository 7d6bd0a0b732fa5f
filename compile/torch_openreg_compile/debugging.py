# SPDX-License-Identifier: BSD-3-Clause
"""Reports on a graph: its operators, the changes by passes, and a file for Graphviz.

The option ``debug`` prints the report. Backend ``openreg_debug`` sets this option by default.
"""

import itertools
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch._guards import CompileContext
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from torch_openreg_compile.aten_graph import value_of
from torch_openreg_compile.options import Options

_unnamed = itertools.count()

# Fill colors of nodes.
_CALL, _NEW_NODE, _OTHER = "#e3eefb", "#ffd59e", "#e8e8e8"

# Maximum length of a node's description, in characters.
_MAX_DESCRIPTION = 40


class _Pointwise(OperatorSupportBase):
    """Operators that compute each element only from the corresponding elements of the operands."""

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:
        overload = isinstance(node.target, torch._ops.OpOverload)
        return overload and torch.Tag.pointwise in node.target.tags  # type: ignore[union-attr]


def operators(graph: fx.Graph) -> list[fx.Node]:
    """Return the nodes that call something, except ``getitem`` on a call with several results."""
    calls = ("call_function", "call_method", "call_module")
    return [
        node
        for node in graph.nodes
        if node.op in calls and getattr(node.target, "__name__", "") != "getitem"
    ]


def fusable_groups(gm: fx.GraphModule) -> list[list[fx.Node]]:
    """Return groups of two or more pointwise operators, each of which could be one kernel.

    The operators of a group depend on each other. An operator outside the group cannot both use a
    result of the group and compute an input of it.
    """
    partitioner = CapabilityBasedPartitioner(gm, _Pointwise(), allows_single_node_partition=True)
    groups = [sorted(partition.nodes) for partition in partitioner.propose_partitions()]
    return [group for group in groups if len(group) > 1]


def describe(value: Any) -> str:
    """Return a value's dtypes and shapes, as in ``float32[2, 3]`` or ``(float32[2], int64[2])``."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(describe, value))})"
    return str(value) if value is not None else ""


def title(gm: fx.GraphModule) -> str:
    """Return a summary of a graph's size, such as ``Graph: 3 ops, 1 fusable groups``."""
    return f"Graph: {len(operators(gm.graph))} ops, {len(fusable_groups(gm))} fusable groups"


def _argument(argument: Any) -> str:
    if isinstance(argument, fx.Node):
        return f"{argument.name}: {describe(value_of(argument))}"
    return str(argument)


def _table(graph: fx.Graph) -> Iterator[str]:
    for node in operators(graph):
        given = [_argument(argument) for argument in node.args]
        given += [f"{name}={_argument(argument)}" for name, argument in node.kwargs.items()]
        called = f"{node._pretty_print_target(node.target)}({', '.join(given)})"
        yield f"  {node.name}: {describe(value_of(node))} = {called}"


def _label(node: fx.Node) -> str:
    if node.op != "call_function":
        return node.name if node.op in ("placeholder", "output") else str(node.target)
    name = str(getattr(node.target, "__name__", node.target)).removesuffix(".default")
    numbers = [str(argument) for argument in node.args if isinstance(argument, (int, float))]
    return f"{name}({', '.join(numbers)})" if numbers else name


def _quote(text: str) -> str:
    """Return ``text`` as a quoted DOT label, in which Graphviz interprets escapes and entities."""
    for character, escaped in (("\\", r"\\"), ('"', r"\""), ("\n", r"\n"), ("&", "&amp;")):
        text = text.replace(character, escaped)
    return f'"{text}"'


def dot(graph: fx.Graph, new: set[str]) -> str:
    """Return a graph in the DOT language; ``dot -Tsvg graph.dot > graph.svg`` draws it.

    Args:
        graph: the graph; each node becomes a box with its operator, dtypes and shapes.
        new: names of nodes to highlight.
    """
    lines = ["digraph {", 'node [shape=box, style="rounded,filled", fontname=monospace]']
    for node in graph.nodes:
        value = describe(value_of(node))
        value = value if len(value) <= _MAX_DESCRIPTION else value[: _MAX_DESCRIPTION - 1] + "…"
        plain = _CALL if node.op.startswith("call_") else _OTHER
        color = _NEW_NODE if node.name in new else plain
        label = _quote(f"{_label(node)}\n{value}".rstrip())
        lines.append(f'"{node.name}" [label={label}, fillcolor="{color}"]')
        lines += [f'"{source.name}" -> "{node.name}"' for source in node.all_input_nodes]
    return "\n".join([*lines, "}\n"])


class Report:
    """The report on a graph that torch._dynamo captured, and on the graphs derived from it."""

    def __init__(self, chosen: Options) -> None:
        self._print = chosen.debug
        self._folder = chosen.dump
        compiled = CompileContext.current_compile_id()
        self._name = str(compiled) if compiled is not None else f"unnamed {next(_unnamed)}"
        self._kinds: dict[str, int] = {}

    @contextmanager
    def of(self, kind: str, gm: fx.GraphModule) -> Iterator[list[str]]:
        """Report the changes that the ``with`` block makes to a graph.

        The block must append one line per change to the yielded list.

        Args:
            kind: the kind of graph, such as "forward".
            gm: the graph, which is changed in place.
        """
        changes: list[str] = []
        if not self._print and self._folder is None:
            yield changes
            return
        count = self._kinds[kind] = self._kinds.get(kind, 0) + 1
        name = f"graph {self._name} {kind}" + (f" {count}" if count > 1 else "")
        before = {node.name for node in gm.graph.nodes}
        self._write(f"{name} before", gm.graph, set())
        yield changes
        if self._print:
            lines = [f"  {change}" for change in changes]
            self._say(name, f"{len(changes)} rewrites", *lines, *_table(gm.graph), title(gm))
        self._write(f"{name} after", gm.graph, {n.name for n in gm.graph.nodes} - before)

    def _say(self, *lines: str) -> None:
        print(*(f"openreg: {line}" for line in lines), sep="\n", file=sys.stderr)

    def _write(self, name: str, graph: fx.Graph, new: set[str]) -> None:
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / (re.sub(r"\W+", "_", name) + ".dot")
        path.write_text(dot(graph, new), encoding="utf-8")
        if self._print:
            self._say(f"graph: {path}")
