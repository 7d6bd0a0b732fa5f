# SPDX-License-Identifier: BSD-3-Clause
"""Conditions under which the backend accepts a graph."""

import logging
import operator

import absent_device
import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_openreg_compile.validation import GraphError, check_placeholders, lint, validate

assert torch.get_device_module("openreg") is absent_device.module


def fake(device: str) -> torch.Tensor:
    with FakeTensorMode():
        return torch.empty(2, 3, device=device)


def graph(*traced: object, key: str = "example_value") -> fx.GraphModule:
    """Return a graph that adds its inputs, with these traced values. None means not traced."""
    g = fx.Graph()
    total: fx.Node | None = None
    for index, value in enumerate(traced):
        node = g.placeholder(f"x{index}")
        if value is not None:
            node.meta[key] = value
        total = node if total is None else g.call_function(operator.add, (total, node))
    g.output(total)
    return fx.GraphModule(torch.nn.Module(), g)


@pytest.mark.parametrize("key", ["example_value", "val"])
@pytest.mark.parametrize("device", ["openreg:0", "openreg:1", "cpu"])
def test_accepts_traced_inputs(device: str, key: str) -> None:
    validate(graph(fake(device), key=key), [fake(device)])


def test_a_missing_index_means_the_current_device() -> None:
    validate(graph(fake("openreg")), [fake("openreg:0")])


@pytest.mark.parametrize(
    ("traced", "given"),
    [("openreg:0", "openreg:1"), ("cpu", "openreg:0"), ("openreg:1", "cpu")],
)
def test_refuses_a_tensor_of_another_device(traced: str, given: str) -> None:
    gm = graph(fake("cpu"), fake(traced))
    with pytest.raises(GraphError, match=rf"'x1': it was traced on {traced}.* is on {given}"):
        validate(gm, [fake("cpu"), fake(given)])


def test_refuses_a_device_tensor_that_was_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    # A real tensor would need a device, so the test makes a fake tensor look real.
    value = fake("openreg:1")
    monkeypatch.setattr("torch_openreg_compile.validation.FakeTensor", int)
    with pytest.raises(GraphError, match=r"'x0'.* on openreg:1 and has no FakeTensor"):
        check_placeholders(graph(None), [value])
    with pytest.raises(GraphError, match=r"'x0'.* on openreg:1 and has no FakeTensor"):
        check_placeholders(graph(torch.empty(2, 3)), [value])


def test_accepts_a_fake_input_as_its_own_trace() -> None:
    check_placeholders(graph(None), [fake("openreg:1")])


def test_logs_tensors_of_the_cpu(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("torch.openreg.__openreg_graph")
    logger.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.DEBUG, logger.name):
            validate(graph(fake("openreg"), fake("cpu")), [fake("openreg"), torch.empty(2, 3)])
    finally:
        logger.removeHandler(caplog.handler)
    assert caplog.messages == ["placeholder 'x1' is on the CPU"]


def test_refuses_a_third_kind_of_device() -> None:
    with pytest.raises(GraphError, match=r"'x0': the input is on cuda:0.*openreg"):
        validate(graph(fake("cuda")), [fake("cuda")])


def test_accepts_values_that_are_not_tensors() -> None:
    validate(graph(3, 2.5), [3, 2.5])


def test_refuses_a_wrong_number_of_inputs() -> None:
    with pytest.raises(GraphError, match=r"2 placeholders, but 1 inputs"):
        validate(graph(None, None), [torch.empty(2)])


def test_names_the_source_of_the_value() -> None:
    gm = graph(fake("cpu"))
    (node,) = gm.graph.find_nodes(op="placeholder")
    node._dynamo_source = type("Source", (), {"name": "L['x']"})
    with pytest.raises(GraphError, match=r"'x0' \(L\['x'\]\)"):
        validate(gm, [fake("openreg")])


def test_refuses_a_graph_out_of_order() -> None:
    gm = graph(None, None)
    _, placeholder, total, _ = gm.graph.nodes
    total.append(placeholder)
    with pytest.raises(GraphError, match=r"malformed: .*'x1' of Node 'add'"):
        lint(gm)


def test_refuses_a_missing_attribute_in_a_subgraph() -> None:
    body = graph(None)
    output = next(iter(reversed(body.graph.nodes)))
    with body.graph.inserting_before(output):
        body.graph.get_attr("weight")
    outer = graph(None)
    outer.add_submodule("body", body)
    with pytest.raises(GraphError, match=r"graph 'body' is malformed: .*weight"):
        lint(outer)
