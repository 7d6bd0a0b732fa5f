# SPDX-License-Identifier: BSD-3-Clause
"""What openreg_debug tells of a graph."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor, fx
from torch_openreg_compile.debugging import Report, describe, fusable_groups, operators, title
from torch_openreg_compile.lowering import lower
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


def test_what_comes_between_divides() -> None:
    def function(x: Tensor) -> Tensor:
        y = (x + 1).exp()
        return y.sin().cos() @ y.t()

    assert groups(function, X) == [["add", "exp", "sin", "cos"]]
    assert groups(lambda x: (x + 1).exp().sum(0).sin().cos(), X) == [["add", "exp"], ["sin", "cos"]]


def test_a_group_does_not_wait_for_itself() -> None:
    """The product would need the sum, which needs the group."""

    def function(x: Tensor) -> Tensor:
        y = x.exp()
        return y.sin() * y.sum().cos()

    found = groups(function, X)
    assert not any({"exp", "mul"} <= set(group) for group in found)


def test_one_operator_is_no_group() -> None:
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


def test_report_and_drawings(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
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
        ElementTree.parse(path)
        assert f"drawing: {path}" in lines


def test_graphs_that_stay_as_captured_are_reported(capfd: pytest.CaptureFixture[str]) -> None:
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


def test_draws_without_words(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()
    options: dict[str, Any] = {"passes": ["fold"], "dump": tmp_path}
    torch.compile(lambda x: x * 2 * 3, backend="openreg", options=options)(X)
    assert capfd.readouterr() == ("", "")
    kinds = ["captured", "inference"]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"graph_0_0_{k}_{when}.svg" for k in kinds for when in ("after", "before")]


def test_reports_of_graphs_that_nobody_named(capfd: pytest.CaptureFixture[str]) -> None:
    gm = fx.symbolic_trace(lambda x: x + 1)
    for _ in range(2):
        with Report(Options(debug=True)).of("forward", gm) as changes:
            changes.append("one: change")
    lines = capfd.readouterr().err.splitlines()
    heads = [line for line in lines if "graph unnamed" in line]
    assert len(set(heads)) == 2
    assert "openreg:   one: change" in lines
