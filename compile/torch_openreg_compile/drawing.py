# SPDX-License-Identifier: BSD-3-Clause
"""Draws a graph as SVG: boxes in layers, inputs at the top, lines from a value to those who use it.

It needs Python alone: torch's own drawings need a program (dot) that few machines have. The layers
are those of Sugiyama's method: each node is below all that it uses, lines that pass a layer have a
place in it, and nodes move to where their neighbours are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Any

from torch import fx

_LETTER = 7.4  # width of one in pixels, in the font below
_LINE = 16.0
_BOX_HEIGHT = 2 * _LINE + 10
_LAYER_HEIGHT = _BOX_HEIGHT + 34
_GAP = 18.0
_MARGIN = 20.0
_SWEEPS = 12

_COLORS = {"placeholder": "#e8e8e8", "get_attr": "#e8e8e8", "output": "#e8e8e8"}
_PLAIN = "#e3eefb"
_NEW = "#ffd59e"

_STYLE = (
    "text{font:12px monospace;text-anchor:middle}"
    "rect{stroke:#555}"
    "path{fill:none;stroke:#777;stroke-width:1.2}"
)


@dataclass(eq=False)
class _Place:
    """Where a node is, or where a line passes a layer."""

    node: fx.Node | None
    layer: int
    width: float
    center: float = 0.0
    above: list["_Place"] = field(default_factory=list)
    below: list["_Place"] = field(default_factory=list)


def _layers_of(graph: fx.Graph) -> dict[fx.Node, int]:
    layers: dict[fx.Node, int] = {}
    for node in graph.nodes:
        layers[node] = max((layers[source] + 1 for source in node.all_input_nodes), default=0)
    # Inputs go down to the first who uses them.
    for node in graph.nodes:
        if not node.all_input_nodes and node.users:
            layers[node] = min(layers[user] for user in node.users) - 1
    return layers


def _places(graph: fx.Graph, lines: dict[fx.Node, list[str]]) -> list[list[_Place]]:
    """Return the layers, with a place for each node and each line that passes."""
    layer_of = _layers_of(graph)
    layers: list[list[_Place]] = [[] for _ in range(max(layer_of.values(), default=0) + 1)]
    places: dict[fx.Node, _Place] = {}

    def add(node: fx.Node | None, layer: int, width: float) -> _Place:
        place = _Place(node, layer, width)
        layers[layer].append(place)
        return place

    for node in graph.nodes:
        width = max(len(line) for line in lines[node]) * _LETTER + 16
        places[node] = add(node, layer_of[node], width)
    for node in graph.nodes:
        # One line goes down from a node, and others branch off it.
        last = places[node]
        users = sorted(node.users, key=lambda user: layer_of[user])
        for user in users:
            while last.layer < layer_of[user] - 1:
                passing = add(None, last.layer + 1, 4.0)
                last.below.append(passing)
                passing.above.append(last)
                last = passing
            last.below.append(places[user])
            places[user].above.append(last)
    return layers


def _mean(places: Sequence[_Place], otherwise: float) -> float:
    return sum(place.center for place in places) / len(places) if places else otherwise


def _spread(layer: Sequence[_Place]) -> None:
    """Move places apart that overlap: to the left as far as to the right, in the same order."""
    wanted = [place.center for place in layer]
    distances = [(left.width + right.width) / 2 + _GAP for left, right in pairwise(layer)]
    rightward, leftward = list(wanted), list(wanted)
    for index, distance in enumerate(distances):
        rightward[index + 1] = max(wanted[index + 1], rightward[index] + distance)
    for index, distance in reversed(list(enumerate(distances))):
        leftward[index] = min(wanted[index], leftward[index + 1] - distance)
    for place, right, left in zip(layer, rightward, leftward, strict=True):
        place.center = (right + left) / 2


def _arrange(layers: Sequence[list[_Place]]) -> None:
    """Put each place near its neighbours, those above and those below in turn."""
    for layer in layers:
        _spread(layer)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            for place in layer:
                place.center = _mean(place.above if down else place.below, place.center)
            layer.sort(key=lambda place: place.center)
            _spread(layer)


def _top(place: _Place) -> float:
    return _MARGIN + place.layer * _LAYER_HEIGHT


def _path(start: _Place, end: _Place) -> str:
    """A line from the bottom of one place to the top of another."""
    y1, y2 = _top(start) + _BOX_HEIGHT, _top(end)
    bend = (y1 + y2) / 2
    curve = (
        f"M{start.center:.1f},{y1:.1f} "
        f"C{start.center:.1f},{bend:.1f} {end.center:.1f},{bend:.1f} {end.center:.1f},{y2:.1f}"
    )
    passes = f" V{y2 + _BOX_HEIGHT:.1f}" if end.node is None else ""
    return curve + passes


def _box(place: _Place, lines: Sequence[str], color: str) -> str:
    assert place.node is not None
    x, y = place.center - place.width / 2, _top(place)
    texts = "".join(
        f'<text x="{place.center:.1f}" y="{y + 17 + _LINE * row:.1f}">{escape(line)}</text>'
        for row, line in enumerate(lines)
    )
    return (
        f'<g id="{escape(place.node.name)}"><title>{escape(place.node.format_node() or "")}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{place.width:.1f}" height="{_BOX_HEIGHT:.1f}" '
        f'rx="5" fill="{color}"/>{texts}</g>'
    )


def _label(node: fx.Node) -> str:
    if node.op != "call_function":
        return node.name if node.op in ("placeholder", "output") else str(node.target)
    name = str(getattr(node.target, "__name__", node.target)).removesuffix(".default")
    numbers = [str(argument) for argument in node.args if isinstance(argument, (int, float))]
    return f"{name}({', '.join(numbers)})" if numbers else name


def draw(graph: fx.Graph, new: set[str], describe: Callable[[Any], str]) -> str:
    """Return a drawing of a graph.

    Args:
        graph: what to draw.
        new: names of nodes that stand out.
        describe: says what a traced value is; it is written below a node's name.

    Returns:
        A document in SVG. Each node is a group whose id is its name.
    """
    lines = {}
    for node in graph.nodes:
        value = describe(node.meta.get("val", node.meta.get("example_value")))
        lines[node] = [_label(node), value if len(value) <= 40 else value[:39] + "…"]
    layers = _places(graph, lines)
    _arrange(layers)
    every = [place for layer in layers for place in layer]
    left = min(place.center - place.width / 2 for place in every) - _MARGIN
    right = max(place.center + place.width / 2 for place in every) + _MARGIN
    for place in every:
        place.center -= left
    width, height = right - left, 2 * _MARGIN + len(layers) * _LAYER_HEIGHT
    parts = [_path(place, end) for place in every for end in place.below]
    drawn = [f'<path d="{path}"/>' for path in parts]
    for place in every:
        if place.node is not None:
            color = _NEW if place.node.name in new else _COLORS.get(place.node.op, _PLAIN)
            drawn.append(_box(place, lines[place.node], color))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}"><style>{_STYLE}</style>\n'
        '<rect width="100%" height="100%" style="fill:white;stroke:none"/>\n'
        + "\n".join(drawn)
        + "\n</svg>\n"
    )
