# SPDX-License-Identifier: BSD-3-Clause
"""openreg_debug reports a graph's operators, fusable groups and changes, and writes DOT files."""

import re
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, fx
from torch_openreg_compile.aten_graph import lower
from torch_openreg_compile.debugging import Report, describe, dot, fusable_groups, operators, title
from torch_openreg_compile.options import Options


def lowered(function: object, *inputs: Tensor) -> fx.GraphModule:
    graphs = []

    def backend(gm: fx.GraphModule, _: list[Tensor]) -> object:
        graphs.extend(lower(gm))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(function, backend=backend, fullgraph=True)(*inputs)  # type: ignore[call-overload]
    graph: fx.GraphModule = graphs[0]
    return graph


def groups(function: object, *inputs: Tensor) -> list[list[str]]:
    found = fusable_groups(lowered(function, *inputs))
    return sorted([str(n.target).split(".")[1] for n in group] for group in found)


X = torch.ones(2, 3)


def test_pointwise_operators_are_a_group() -> None:
    assert groups(lambda x: (x + 1).exp() * x, X) == [["add", "exp", "mul"]]


def test_other_operators_split_groups() -> None:
    def function(x: Tensor) -> Tensor:
        y = (x + 1).exp()
        return y.sin().cos() @ y.t()

    assert groups(function, X) == [["add", "exp", "sin", "cos"]]
    assert groups(lambda x: (x + 1).exp().sum(0).sin().cos(), X) == [["add", "exp"], ["sin", "cos"]]


def test_a_group_does_not_depend_on_itself() -> None:
    """The product depends on the sum, which depends on ``exp``: they cannot be in one group."""

    def function(x: Tensor) -> Tensor:
        y = x.exp()
        return y.sin() * y.sum().cos()

    found = groups(function, X)
    assert not any({"exp", "mul"} <= set(group) for group in found)


def test_one_operator_is_not_a_group() -> None:
    assert groups(lambda x: x.exp() @ x.t(), X) == []


def test_title_counts() -> None:
    def function(x: Tensor) -> Tensor:
        return x.max(0).values.exp() + 1

    gm = lowered(function, X)
    assert [str(node.target) for node in operators(gm.graph)] == [
        "aten.max.dim",
        "aten.exp.default",
        "aten.add.Tensor",
    ]
    assert title(gm) == "Graph: 3 ops, 1 fusable groups"


def test_descriptions() -> None:
    assert describe(torch.ones(2, 3, dtype=torch.int64)) == "int64[2, 3]"
    assert describe((torch.ones(()), None, 3)) == "(float32[], , 3)"
    assert describe(None) == ""


class Parsed(NamedTuple):
    """The content of a DOT file: labels and colors by node name, and edges."""

    labels: dict[str, str]
    colors: dict[str, str]
    edges: set[tuple[str, str]]


def parse(text: str) -> Parsed:
    head, defaults, *statements, tail, end = text.split("\n")
    assert (head, defaults.split()[0], tail, end) == ("digraph {", "node", "}", "")
    parsed = Parsed({}, {}, set())
    for statement in statements:
        if edge := re.fullmatch(r'"(\w+)" -> "(\w+)"', statement):
            parsed.edges.add((edge[1], edge[2]))
            continue
        node = re.fullmatch(
            r'"(\w+)" \[label="((?:[^"\\]|\\.)*)", fillcolor="(#\w{6})"\]', statement
        )
        assert node is not None, statement
        assert node[1] not in parsed.labels
        label = re.sub(r"\\(.)", lambda escape: "\n" if escape[1] == "n" else escape[1], node[2])
        parsed.labels[node[1]] = unescape(label)
        parsed.colors[node[1]] = node[3]
    return parsed


def test_dot_has_nodes_and_edges() -> None:
    graph = fx.symbolic_trace(lambda x, y: (x.exp() + y, x + x)).graph
    parsed = parse(dot(graph, set()))
    assert set(parsed.labels) == {"x", "y", "exp", "add", "add_1", "output"}
    assert parsed.edges == {
        ("x", "exp"),
        ("exp", "add"),
        ("y", "add"),
        ("x", "add_1"),
        ("add", "output"),
        ("add_1", "output"),
    }
    assert parsed.colors["x"] == parsed.colors["output"] != parsed.colors["exp"]


def test_dot_labels_and_colors() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.ones(2, 3, dtype=torch.bfloat16)
    y = graph.call_function(torch.ops.aten.mul.Tensor, (x, 3))
    y.meta["val"] = [torch.ones(())] * 20
    z = graph.call_function(torch.ops.aten.exp.default, (y,))
    graph.output(z)
    parsed = parse(dot(graph, {z.name}))
    assert parsed.labels["x"] == "x\nbfloat16[2, 3]"
    operator, value = parsed.labels[y.name].split("\n")
    assert operator == "mul.Tensor(3)"
    assert len(value) == 40
    assert value.endswith("…")
    assert parsed.labels[z.name] == "exp"
    assert parsed.colors[z.name] not in (parsed.colors["x"], parsed.colors[y.name])


@pytest.mark.parametrize("name", ['"', "\\", '\\"', "\\N", "a\nb", "<&>", "&lt;", '"];\n}'])
def test_dot_labels_are_escaped(name: str) -> None:
    graph = fx.Graph()

    def called(x: object) -> None: ...

    called.__name__ = name
    graph.output(graph.call_function(called, (graph.placeholder("x"),)))
    assert name in parse(dot(graph, set())).labels.values()


def test_report_and_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "folder"
    options: dict[str, Any] = {"dump": folder}
    x = torch.randn(2, 3, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: x * torch.sigmoid(x) * 2 * 3,
        backend="openreg_debug",
        options=options,
        fullgraph=True,
    )
    torch.autograd.backward(compiled(x).sum())
    _, report = capfd.readouterr()
    lines = [line.removeprefix("openreg: ") for line in report.splitlines()]
    assert any(line.startswith("  silu: sigmoid") for line in lines)
    assert any(line.startswith("  fold: ") and line.endswith("(6)") for line in lines)
    assert "Graph: 3 ops, 1 fusable groups" in lines
    assert any("silu_default: float32[2, 3] = " in line for line in lines)
    assert any(line.endswith("aten.mul.Tensor(silu: float32[2, 3], 6)") for line in lines)
    kinds = ["backward", "captured", "forward"]
    names = sorted(path.stem for path in folder.iterdir())
    assert names == [f"graph_0_0_{kind}_{when}" for kind in kinds for when in ("after", "before")]
    for path in folder.iterdir():
        assert f"graph: {path}" in lines
    graphs = {path.stem: parse(path.read_text(encoding="utf-8")) for path in folder.iterdir()}
    before, after = (graphs[f"graph_0_0_captured_{when}"] for when in ("before", "after"))
    added = {name for name, color in after.colors.items() if color not in before.colors.values()}
    assert "silu\nfloat32[2, 3]" in {after.labels[name] for name in added}
    assert added == set(after.labels) - set(before.labels)


def test_graphs_that_are_not_lowered_are_reported(capfd: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()
    function = torch.func.vmap(lambda x: x.exp().sum())
    torch.testing.assert_close(torch.compile(function, backend="openreg_debug")(X), function(X))
    report = capfd.readouterr().err
    assert "captured\nopenreg: 0 rewrites" in report
    assert "exp(" in report


def test_silent_without_debug(capfd: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()
    options: dict[str, Any] = {"passes": ["fold"]}
    torch.compile(lambda x: x + 1, backend="openreg", options=options)(X)
    assert capfd.readouterr() == ("", "")


def test_files_without_report(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()
    options: dict[str, Any] = {"passes": ["fold"], "dump": tmp_path}
    torch.compile(lambda x: x * 2 * 3, backend="openreg", options=options)(X)
    assert capfd.readouterr() == ("", "")
    kinds = ["captured", "inference"]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"graph_0_0_{k}_{when}.dot" for k in kinds for when in ("after", "before")]


def test_reports_of_unnamed_graphs(capfd: pytest.CaptureFixture[str]) -> None:
    gm = fx.symbolic_trace(lambda x: x + 1)
    for _ in range(2):
        with Report(Options(debug=True)).of("forward", gm) as changes:
            changes.append("one: change")
    lines = capfd.readouterr().err.splitlines()
    heads = [line for line in lines if "graph unnamed" in line]
    assert len(set(heads)) == 2
    assert "openreg:   one: change" in lines
