# SPDX-License-Identifier: BSD-3-Clause
"""A capture runs nothing, and a replay does what the captured program would have done."""

import gc
import threading
from pathlib import Path

import pytest
import torch
import torch_openreg as torch_openreg

from tests.graph_capture import NAP, capture
from tests.graph_capture import quiet_devices as quiet_devices


def test_nothing_runs_during_the_capture_and_a_replay_reads_current_memory() -> None:
    x = torch.zeros(4, device="openreg")
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        assert torch.openreg.is_current_stream_capturing()
        y = x + 1
        x.mul_(2)
    assert not torch.openreg.is_current_stream_capturing()
    assert x.tolist() == [0.0] * 4
    x.fill_(3)
    graph.replay()
    assert y.tolist() == [4.0] * 4
    graph.replay()
    graph.replay()
    assert y.tolist() == [13.0] * 4
    assert x.tolist() == [24.0] * 4
    assert graph.node_count() >= 2


@pytest.mark.parametrize("size", [4, 3000, 100_000, 1_000_000])
def test_kernels_of_every_size(size: int) -> None:
    x = torch.randn(size)
    ours = x.to("openreg")
    graph, result = capture(lambda: (ours * 2 + 1).relu().sum(0, keepdim=True).sqrt() + ours.exp())
    for _ in range(3):
        x = torch.randn(size)
        ours.copy_(x)
        graph.replay()
        expected = (x * 2 + 1).relu().sum(0, keepdim=True).sqrt() + x.exp()
        torch.testing.assert_close(result.cpu(), expected)


def test_several_replays_are_queued_and_the_graph_may_be_destroyed() -> None:
    x = torch.zeros(8, device="openreg")
    graph, _ = capture(lambda: x.add_(1))
    x.zero_()
    torch.openreg._sleep(NAP)
    for _ in range(5):
        graph.replay()
    assert not torch.openreg.current_stream().query()
    del graph
    gc.collect()
    assert x.tolist() == [5.0] * 8


def test_a_replay_runs_on_the_current_stream() -> None:
    x = torch.zeros(8, device="openreg")
    graph, y = capture(lambda: x + 1)
    for step in range(4):
        stream = torch.openreg.Stream()
        stream.wait_stream(torch.openreg.current_stream())
        with torch.openreg.stream(stream):
            torch.openreg._sleep(NAP // 10)
            x.fill_(step)
            graph.replay()
            assert y.tolist() == [step + 1.0] * 8


def test_the_default_stream_can_be_captured() -> None:
    x = torch.zeros(4, device="openreg")
    torch.openreg.synchronize()
    graph = torch.openreg.OpenRegGraph()
    graph.capture_begin()
    y = x + 1
    graph.capture_end()
    x.fill_(1)
    graph.replay()
    assert y.tolist() == [2.0] * 4


def test_streams_fork_and_join_within_a_capture() -> None:
    x = torch.zeros(16, device="openreg")
    side = torch.openreg.Stream()
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        a = x + 1
        side.wait_stream(torch.openreg.current_stream())
        with torch.openreg.stream(side):
            assert torch.openreg.is_current_stream_capturing()
            b = a * 2
        c = a * 3
        torch.openreg.current_stream().wait_stream(side)
        d = b + c
    x.fill_(1)
    graph.replay()
    assert d.tolist() == [10.0] * 16


def test_timed_events_measure_each_replay() -> None:
    start, end = torch.openreg.Event(enable_timing=True), torch.openreg.Event(enable_timing=True)
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        start.record()
        torch.openreg._sleep(NAP // 10)
        end.record()
    with pytest.raises(RuntimeError, match="no replay has recorded it"):
        end.synchronize()
    for _ in range(2):
        graph.replay()
        end.synchronize()
        assert start.elapsed_time(end) >= NAP / 10 / 1e6 * 0.9


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_numbers_beside_tensors_are_there_at_each_replay(dtype: torch.dtype) -> None:
    """Replays keep scalar operands, although 16-bit CPU kernels remove them from their iterator."""
    x = torch.randn(40, device="openreg", dtype=dtype)

    def step() -> list[torch.Tensor]:
        return [x / 3, x * 2.5, 2.5 * x, x + 1, 1 - x, x // 2, torch.maximum(x, x[0])]

    step()
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        results = step()
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.testing.assert_close(results, step())


def test_keep_graph_reset_and_drawing(tmp_path: Path) -> None:
    x = torch.zeros(2, device="openreg")
    graph = torch.openreg.OpenRegGraph(keep_graph=True)
    graph.enable_debug_mode()
    with torch.openreg.graph(graph):
        x.add_(1)
    graph.instantiate()
    graph.replay()
    graph.debug_dump(str(tmp_path / "graph.dot"))
    assert "aten::add" in (tmp_path / "graph.dot").read_text()
    graph.reset()
    with pytest.raises(RuntimeError, match="needs a captured graph"):
        graph.replay()
    with torch.openreg.graph(graph):
        x.add_(10)
    graph.replay()
    assert x.tolist() == [11.0] * 2


def test_launch_blocking_and_sites_during_a_capture() -> None:
    x = torch.zeros(1000, device="openreg")
    torch.openreg.set_launch_blocking(True)
    torch.openreg.set_launch_sites(True)
    try:
        graph, _ = capture(lambda: x.add_(1).mul_(1))
        assert x.tolist() == [1.0] * 1000
        graph.replay()
    finally:
        torch.openreg.set_launch_blocking(False)
        torch.openreg.set_launch_sites(False)
    graph.replay()
    assert x.tolist() == [3.0] * 1000


def test_other_threads_work_on_while_one_captures() -> None:
    x = torch.zeros(4, device="openreg")
    results: list[list[float]] = []

    def beside() -> None:
        with torch.openreg.stream(torch.openreg.Stream()):
            results.append(torch.full((4,), 2.0, device="openreg").add(1).tolist())

    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        x.add_(1)
    graph.replay()
    assert results == [[3.0] * 4]
    assert x.tolist() == [1.0] * 4


def test_the_graph_of_torch_accelerator(tmp_path: Path) -> None:
    x = torch.zeros(10, device="openreg")
    graph = torch.accelerator.Graph()
    graph.enable_debug_mode()
    with torch.openreg.Stream(), graph:
        x += 1
    assert not x.any()
    graph.replay()
    graph.replay()
    assert x.tolist() == [2.0] * 10
    graph.debug_dump(str(tmp_path / "graph.dot"))
    assert (tmp_path / "graph.dot").read_text().startswith("digraph")
    other = torch.accelerator.Graph(keep_graph=True, pool=graph.pool())
    with torch.openreg.Stream(), other:
        x *= 3
    other.instantiate()
    other.replay()
    assert other.pool() == graph.pool()
    assert x.tolist() == [6.0] * 10
    graph.reset()
    with pytest.raises(RuntimeError, match="needs a captured graph"):
        graph.replay()


def test_representation_of_a_graph() -> None:
    graph = torch.openreg.OpenRegGraph()
    assert repr(graph) == "<torch.openreg.OpenRegGraph without a capture>"
    x = torch.ones(3, device="openreg")
    with torch.openreg.graph(graph):
        assert repr(graph) == "<torch.openreg.OpenRegGraph without a capture>"
        x + 1
    assert repr(graph) == f"<torch.openreg.OpenRegGraph of {graph.node_count()} commands>"
