# SPDX-License-Identifier: BSD-3-Clause
"""Errors in graphs: invalid calls are rejected, and stream, memory and graph stay usable."""

from collections.abc import Callable

import pytest
import torch
import torch_openreg as torch_openreg

from tests.graph_capture import capture
from tests.graph_capture import quiet_devices as quiet_devices


def wait_by_item(x: torch.Tensor) -> None:
    x.sum().item()


def wait_by_cpu(x: torch.Tensor) -> None:
    x.cpu()


def wait_by_nonzero(x: torch.Tensor) -> None:
    x.nonzero()


def wait_by_pageable(x: torch.Tensor) -> None:
    x.copy_(torch.ones(16))


def wait_by_new_tensor(x: torch.Tensor) -> None:
    torch.tensor([1.0, 2.0], device="openreg")


def wait_by_stream(x: torch.Tensor) -> None:
    torch.openreg.current_stream().synchronize()


def wait_by_query(x: torch.Tensor) -> None:
    torch.openreg.current_stream().query()


def wait_by_device(x: torch.Tensor) -> None:
    torch.openreg.synchronize()


def wait_by_event(x: torch.Tensor) -> None:
    torch.openreg.current_stream().record_event().synchronize()


@pytest.mark.parametrize(
    ("wait", "reason"),
    [
        (wait_by_item, "_local_scalar_dense makes the host wait.*reads a value.*capture"),
        (wait_by_cpu, "makes the host wait.*copies to host memory.*capture"),
        (wait_by_nonzero, "aten::nonzero makes the host wait.*capture"),
        (wait_by_pageable, "makes the host wait.*copies from host memory.*capture"),
        (wait_by_new_tensor, "makes the host wait.*copies from host memory.*capture"),
        (wait_by_stream, "orStreamSynchronize.*is being captured"),
        (wait_by_query, "orStreamQuery.*is being captured"),
        (wait_by_device, "orDeviceSynchronize.*is being captured"),
        (wait_by_event, "orEventSynchronize.*recorded in a capture"),
    ],
)
def test_waiting_in_a_capture_is_an_error_and_ends_it(
    wait: Callable[[torch.Tensor], None], reason: str
) -> None:
    x = torch.zeros(16, device="openreg")
    x.nonzero()
    graph = torch.openreg.OpenRegGraph()
    stream = torch.openreg.Stream()
    with torch.openreg.stream(stream):
        graph.capture_begin()
        with pytest.raises(RuntimeError, match=f"(?s){reason}"):
            wait(x)
        with pytest.raises(RuntimeError, match="invalid"):
            x.add_(1)
        with pytest.raises(RuntimeError, match=r"capture is invalid.*The reason was"):
            graph.capture_end()
    with pytest.raises(RuntimeError, match="needs a captured graph"):
        graph.replay()
    assert x.add_(1).tolist() == [1.0] * 16
    with torch.openreg.graph(graph):  # the same graph object can capture again
        x.add_(1)
    graph.replay()
    assert x.tolist() == [2.0] * 16


def test_the_error_of_the_block_is_the_context_of_the_final_error() -> None:
    x = torch.zeros(16, device="openreg")
    with (
        pytest.raises(RuntimeError, match="capture is invalid") as caught,
        torch.openreg.graph(torch.openreg.OpenRegGraph()),
    ):
        x.sum().item()
    assert "reads a value" in str(caught.value.__context__)


def test_bad_use_of_a_graph() -> None:
    graph = torch.openreg.OpenRegGraph()
    with pytest.raises(RuntimeError, match="needs a captured graph"):
        graph.replay()
    with pytest.raises(RuntimeError, match="needs a capture that this graph began"):
        graph.capture_end()
    with pytest.raises(RuntimeError, match=r"pool\(\) needs a captured graph"):
        graph.pool()
    with pytest.raises(ValueError, match="capture_error_mode"):
        graph.capture_begin(capture_error_mode="other")
    x = torch.zeros(2, device="openreg")
    with torch.openreg.graph(graph):
        x.add_(1)
    with pytest.raises(RuntimeError, match="already contains a capture"):
        graph.capture_begin()
    with pytest.raises(RuntimeError, match="keep_graph"):
        graph.instantiate()
    outer = torch.openreg.OpenRegGraph()
    with (
        pytest.raises(RuntimeError, match=r"graphs do not nest|capture is invalid"),
        torch.openreg.graph(outer),
    ):
        graph.replay()
    graph.replay()
    assert x.tolist() == [1.0] * 2


def test_a_stream_that_is_not_joined_is_an_error() -> None:
    x = torch.zeros(16, device="openreg")
    side = torch.openreg.Stream()
    context = torch.openreg.graph(torch.openreg.OpenRegGraph())
    context.__enter__()
    side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        x.add_(1)
    with pytest.raises(RuntimeError, match="was not joined"):
        context.__exit__(None, None, None)
    assert x.add_(1).tolist() == [1.0] * 16


def test_an_error_of_a_kernel_is_raised_by_the_replay() -> None:
    index = torch.zeros(2, dtype=torch.long, device="openreg")
    table = torch.randn(3, 2, device="openreg")
    graph, rows = capture(lambda: torch.nn.functional.embedding(index, table))
    graph.replay()
    torch.testing.assert_close(rows.cpu(), table.cpu()[[0, 0]])
    index.fill_(99)
    graph.replay()
    with pytest.raises(Exception, match="index out of range"):
        torch.openreg.synchronize()
    index.fill_(2)
    graph.replay()
    torch.testing.assert_close(rows.cpu(), table.cpu()[[2, 2]])
