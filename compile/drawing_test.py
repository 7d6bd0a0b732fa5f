# SPDX-License-Identifier: BSD-3-Clause
"""Drawings are SVG in which boxes do not cover each other and lines end at boxes."""

import re
from itertools import combinations
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor, fx, nn
from torch_openreg_compile.debugging import describe
from torch_openreg_compile.drawing import draw

SVG = "{http://www.w3.org/2000/svg}"


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def covers(self, other: "Box") -> bool:
        return not (
            self.right < other.left
            or other.right < self.left
            or self.bottom < other.top
            or other.bottom < self.top
        )


class Drawing:
    """What is in a drawing of a graph."""

    def __init__(self, graph: fx.Graph, new: set[str] | None = None) -> None:
        self.text = draw(graph, new or set(), describe)
        root = ElementTree.fromstring(self.text)
        self.size = float(root.attrib["width"]), float(root.attrib["height"])
        self.boxes: dict[str, Box] = {}
        self.colors: dict[str, str] = {}
        self.labels: dict[str, list[str]] = {}
        for group in root.iter(f"{SVG}g"):
            rect = group.find(f"{SVG}rect")
            assert rect is not None
            x, y, width, height = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
            name = group.attrib["id"]
            self.boxes[name] = Box(x, y, x + width, y + height)
            self.colors[name] = rect.attrib["fill"]
            self.labels[name] = [text.text or "" for text in group.iter(f"{SVG}text")]
        paths = [path.attrib["d"] for path in root.iter(f"{SVG}path")]
        self.lines = [[float(n) for n in re.findall(r"-?\d+\.?\d*", path)] for path in paths]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(6))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        seen = [x]
        for layer in self.layers:
            x = layer(x).relu() + y
            seen.append(x)
        return torch.cat(seen), x


def graphs() -> list[fx.Graph]:
    net = fx.symbolic_trace(Net()).graph
    constant = fx.Graph()
    constant.output(1)
    fan = fx.symbolic_trace(lambda x: x.exp() + x.sin() + x.cos() + x.tan()).graph
    chain = fx.symbolic_trace(lambda x: x.exp().sin().exp() + x).graph
    return [net, constant, fan, chain]


@pytest.mark.parametrize("graph", graphs())
def test_boxes_and_lines(graph: fx.Graph) -> None:
    drawing = Drawing(graph)
    assert set(drawing.boxes) == {node.name for node in graph.nodes}
    for one, other in combinations(drawing.boxes.values(), 2):
        assert not one.covers(other)
    for box in drawing.boxes.values():
        assert 0 <= box.left < box.right <= drawing.size[0]
        assert 0 <= box.top < box.bottom <= drawing.size[1]
    for node in graph.nodes:
        for source in node.all_input_nodes:
            assert drawing.boxes[source.name].bottom < drawing.boxes[node.name].top
    tops = {(round(b.top), round((b.left + b.right) / 2)) for b in drawing.boxes.values()}
    ends = sum((round(line[7]), round(line[6])) in tops for line in drawing.lines)
    assert ends >= sum(len(node.all_input_nodes) for node in graph.nodes)


def test_lines_pass_between_boxes() -> None:
    """A line over several layers has its own place in each of them."""
    drawing = Drawing(graphs()[0])
    for line in drawing.lines:
        if len(line) > 8:  # it goes down through a layer
            x, top, bottom = line[6], line[7], line[8]
            assert not any(box.covers(Box(x, top, x, bottom)) for box in drawing.boxes.values())


def test_labels() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.ones(2, 3, dtype=torch.bfloat16)
    y = graph.call_function(torch.ops.aten.mul.Tensor, (x, 3))
    y.meta["val"] = [torch.ones(())] * 20
    graph.output(y)
    drawing = Drawing(graph, {y.name})
    assert drawing.labels["x"] == ["x", "bfloat16[2, 3]"]
    assert drawing.labels[y.name][0] == "mul.Tensor(3)"
    assert drawing.labels[y.name][1].endswith("…")
    assert len(set(drawing.colors.values())) == 2


def test_names_are_escaped() -> None:
    graph = fx.Graph()

    def less(x: object) -> None: ...

    less.__name__ = "<&>"
    graph.output(graph.call_function(less, (graph.placeholder("x"),)))
    assert ["<&>", ""] in Drawing(graph).labels.values()
