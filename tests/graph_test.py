# SPDX-License-Identifier: BSD-3-Clause
"""Graphs: nothing runs while they are captured, and a replay does what the program did."""

import copy
import ctypes
import gc
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch_openreg as torch_openreg
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils import _pytree

NAP = 100_000_000  # ns


@pytest.fixture(autouse=True)
def _quiet_devices() -> Iterator[None]:
    torch.openreg.set_device(0)
    yield
    assert not torch.openreg.is_current_stream_capturing()
    for index in range(torch.openreg.device_count()):
        torch.openreg.synchronize(index)


def capture(work: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
    """Run `work` once on a stream of its own, then capture it."""
    side = torch.openreg.Stream()
    side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        work()
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph, **options):
        result = work()
    return graph, result


# ------------------------------------------------------------------------------- capture and replay


def test_nothing_runs_during_the_capture_and_a_replay_takes_what_is_in_memory_then() -> None:
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


def test_several_replays_are_queued_and_a_graph_may_go_meanwhile() -> None:
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


def test_pinned_memory_is_read_and_written_by_each_replay() -> None:
    source = torch.zeros(1000).pin_memory()
    back = torch.zeros(1000).pin_memory()
    ours = torch.zeros(1000, device="openreg")
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        ours.copy_(source, non_blocking=True)
        ours.add_(1)
        back.copy_(ours, non_blocking=True)
    for value in (3.0, 4.0):
        source.fill_(value)
        graph.replay()
        torch.openreg.synchronize()
        assert back.tolist() == [value + 1] * 1000


def test_pinned_memory_of_a_capture_stays_until_the_graph_is_gone() -> None:
    ours = torch.zeros(1000, device="openreg")
    before = torch.full((1000,), 5.0).pin_memory()
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        within = torch.empty(1000, pin_memory=True)
        within.fill_(7)
        ours.copy_(before, non_blocking=True)
        total = ours + 0
        ours.copy_(within, non_blocking=True)
    del before, within
    others = [torch.zeros(1000, pin_memory=True) for _ in range(20)]
    graph.replay()
    assert total.tolist() == [5.0] * 1000
    assert ours.tolist() == [7.0] * 1000
    del others


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


def test_an_error_of_a_kernel_comes_with_the_replay() -> None:
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


# ---------------------------------------------------------------------------------- what is refused


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
        (wait_by_item, "_local_scalar_dense makes the host wait.*asks for a value.*capture"),
        (wait_by_cpu, "makes the host wait.*copies to host memory.*capture"),
        (wait_by_nonzero, "aten::nonzero makes the host wait.*capture"),
        (wait_by_pageable, "makes the host wait.*copies from host memory.*capture"),
        (wait_by_new_tensor, "makes the host wait.*copies from host memory.*capture"),
        (wait_by_stream, "orStreamSynchronize.*is captured"),
        (wait_by_query, "orStreamQuery.*is captured"),
        (wait_by_device, "orDeviceSynchronize.*is captured"),
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
    with pytest.raises(RuntimeError, match="without a captured graph"):
        graph.replay()
    assert x.add_(1).tolist() == [1.0] * 16
    with torch.openreg.graph(graph):  # the same object captures anew
        x.add_(1)
    graph.replay()
    assert x.tolist() == [2.0] * 16


def test_the_error_of_the_block_is_kept_behind_that_of_the_end() -> None:
    x = torch.zeros(16, device="openreg")
    with (
        pytest.raises(RuntimeError, match="capture is invalid") as caught,
        torch.openreg.graph(torch.openreg.OpenRegGraph()),
    ):
        x.sum().item()
    assert "asks for a value" in str(caught.value.__context__)


def test_bad_use_of_a_graph() -> None:
    graph = torch.openreg.OpenRegGraph()
    with pytest.raises(RuntimeError, match="without a captured graph"):
        graph.replay()
    with pytest.raises(RuntimeError, match="without a capture"):
        graph.capture_end()
    with pytest.raises(RuntimeError, match="before the graph was captured"):
        graph.pool()
    with pytest.raises(ValueError, match="capture_error_mode"):
        graph.capture_begin(capture_error_mode="other")
    x = torch.zeros(2, device="openreg")
    with torch.openreg.graph(graph):
        x.add_(1)
    with pytest.raises(RuntimeError, match="holds a capture already"):
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
    with pytest.raises(RuntimeError, match="without a captured graph"):
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


# ------------------------------------------------------------------------------------------- memory


def test_the_memory_of_a_graph_is_its_own() -> None:
    x = torch.ones(1000, device="openreg")
    graph, y = capture(lambda: (x + 1) * (x + 2))
    others = [torch.zeros(1000, device="openreg") for _ in range(50)]
    graph.replay()
    assert y.tolist() == [6.0] * 1000
    assert all(not other.any() for other in others)


def test_graphs_share_a_pool() -> None:
    x = torch.ones(1000, device="openreg")
    first, y = capture(lambda: x + 1)
    second, z = capture(lambda: y * 2, pool=first.pool())
    assert second.pool() == first.pool()
    handle = torch.openreg.graph_pool_handle()
    third, _ = capture(lambda: x + 5, pool=handle)
    assert third.pool() == handle != first.pool()
    x.fill_(2)
    first.replay()
    second.replay()
    assert z.tolist() == [6.0] * 1000
    fourth, w = capture(lambda: x + 7, pool=handle)
    third.reset()
    fourth.replay()
    assert w.tolist() == [9.0] * 1000


def test_the_memory_goes_back_with_the_graph() -> None:
    x = torch.ones(1000, device="openreg")
    torch.openreg.synchronize()
    torch.openreg.empty_cache()
    before = torch.openreg.memory_reserved()
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        y = torch.zeros(30 << 20, dtype=torch.uint8, device="openreg")
    graph.replay()
    assert torch.openreg.memory_reserved() >= before + (30 << 20)
    del y
    torch.openreg.empty_cache()
    assert torch.openreg.memory_reserved() >= before + (30 << 20)  # replays use it
    graph.reset()
    torch.openreg.synchronize()
    torch.openreg.empty_cache()
    assert torch.openreg.memory_reserved() <= before
    assert x.sum().item() == 1000


def test_memory_that_a_captured_stream_uses_is_freed_during_the_capture() -> None:
    side = torch.openreg.Stream()
    graph = torch.openreg.OpenRegGraph()
    x = torch.ones(1000, device="openreg")
    outside = torch.ones(1000, device="openreg")
    with torch.openreg.graph(graph):
        used = x + 1
        side.wait_stream(torch.openreg.current_stream())
        with torch.openreg.stream(side):
            y = used * outside
        used.record_stream(side)
        outside.record_stream(side)
        del used, outside
        z = torch.zeros(1000, device="openreg")
        torch.openreg.current_stream().wait_stream(side)
    graph.replay()
    assert y.tolist() == [2.0] * 1000
    assert not z.any()


# ------------------------------------------------------------------------------------------- random


def test_each_replay_draws_what_eager_would() -> None:
    x = torch.empty(100, device="openreg")

    def work() -> torch.Tensor:
        noise = torch.nn.functional.dropout(x.uniform_(), 0.5)
        return noise + torch.randn(100, device="openreg") + torch.rand(100, device="openreg")

    graph, result = capture(work)
    torch.openreg.manual_seed(7)
    eager = [work().cpu() for _ in range(3)]
    torch.openreg.manual_seed(7)
    torch.openreg._sleep(NAP // 10)
    replayed = []
    for _ in range(3):
        graph.replay()
        replayed.append(result.clone())
    for ours, theirs in zip(replayed, eager, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=0)
    assert not torch.equal(eager[0], eager[1])
    state = torch.openreg.get_rng_state()
    graph.replay()
    again = result.clone()
    torch.openreg.set_rng_state(state)
    graph.replay()
    assert torch.equal(result.cpu(), again.cpu())


def test_replays_and_eager_share_one_sequence() -> None:
    x = torch.empty(10, device="openreg")
    graph, _ = capture(lambda: x.uniform_())
    torch.openreg.manual_seed(3)
    expected = [torch.empty(10, device="openreg").uniform_().cpu() for _ in range(3)]
    torch.openreg.manual_seed(3)
    graph.replay()
    first = x.clone()
    second = torch.empty(10, device="openreg").uniform_()
    graph.replay()
    for ours, theirs in zip((first, second, x), expected, strict=True):
        assert torch.equal(ours.cpu(), theirs)


def test_generators_have_to_be_registered() -> None:
    generator = torch.Generator("openreg")
    x = torch.empty(10, device="openreg")
    graph = torch.openreg.OpenRegGraph()
    with (
        torch.openreg.graph(graph),
        pytest.raises(RuntimeError, match="register_generator_state"),
    ):
        x.uniform_(generator=generator)
    graph.reset()
    graph.register_generator_state(generator)
    with torch.openreg.graph(graph):
        x.uniform_(generator=generator)
        with pytest.raises(RuntimeError, match="while a graph is captured"):
            generator.manual_seed(3)
    for seed in (5, 6):
        generator.manual_seed(seed)
        expected = torch.empty(10, device="openreg").uniform_(generator=generator).cpu()
        generator.manual_seed(seed)
        graph.replay()
        assert torch.equal(x.cpu(), expected)
    with pytest.raises(RuntimeError, match="device openreg only"):
        torch.openreg.OpenRegGraph().register_generator_state(torch.Generator())


# -------------------------------------------------------------------------------- torch's own doors


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
    with pytest.raises(RuntimeError, match="without a captured graph"):
        graph.replay()


def test_a_training_step() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    ours = copy.deepcopy(model).to("openreg")
    theirs_optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(5, 8), torch.randn(5, 4)
    static_x, static_y = x.to("openreg"), y.to("openreg")

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(ours(static_x), static_y)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.openreg.Stream()
    side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        for _ in range(3):
            step()
    torch.openreg.current_stream().wait_stream(side)
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        loss = step()
    data = [(x, y)] * 3 + [(torch.randn(5, 8), torch.randn(5, 4)) for _ in range(5)]
    for index, (inputs, targets) in enumerate(data):
        theirs_optimizer.zero_grad()
        expected = torch.nn.functional.mse_loss(model(inputs), targets)
        expected.backward()
        theirs_optimizer.step()
        if index >= 3:
            static_x.copy_(inputs)
            static_y.copy_(targets)
            graph.replay()
            torch.testing.assert_close(loss.detach().cpu(), expected.detach())
    for mine, other in zip(ours.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.detach().cpu(), other.detach())


def test_graphed_callables() -> None:
    torch.manual_seed(0)
    first = torch.nn.Linear(8, 16).to("openreg")
    second = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(16, 4)).to("openreg")
    plain_first, plain_second = copy.deepcopy(first).cpu(), copy.deepcopy(second).cpu()
    graphed_first, graphed_second = torch.openreg.make_graphed_callables(
        (first, second),
        (
            (torch.randn(5, 8, device="openreg"),),
            (torch.randn(5, 16, device="openreg", requires_grad=True),),
        ),
    )
    for _ in range(3):
        x = torch.randn(5, 8)
        ours = graphed_second(graphed_first(x.to("openreg")))
        theirs = plain_second(plain_first(x))
        torch.testing.assert_close(ours.detach().cpu(), theirs.detach())
        for parameter in (*first.parameters(), *second.parameters()):
            parameter.grad = None
        plain_first.zero_grad()
        plain_second.zero_grad()
        ours.square().sum().backward()
        theirs.square().sum().backward()
        for mine, other in zip(
            (*first.parameters(), *second.parameters()),
            (*plain_first.parameters(), *plain_second.parameters()),
            strict=True,
        ):
            assert mine.grad is not None
            torch.testing.assert_close(mine.grad.cpu(), other.grad)
    graphed_first.eval()
    torch.testing.assert_close(  # without its graph, so of any shape
        graphed_first(torch.ones(2, 8, device="openreg")).detach().cpu(),
        plain_first(torch.ones(2, 8)).detach(),
    )


def test_what_graphed_callables_refuse() -> None:
    module = torch.nn.Linear(2, 2).to("openreg")
    module.register_forward_hook(lambda *_: None)
    x = torch.ones(2, 2, device="openreg")
    with pytest.raises(RuntimeError, match="has hooks"):
        torch.openreg.make_graphed_callables(module, (x,))
    with pytest.raises(TypeError, match="tensors only"):
        torch.openreg.make_graphed_callables(lambda t, n: t * n, (x, 3))
    with pytest.raises(ValueError, match="2 callables"):
        torch.openreg.make_graphed_callables((torch.sin, torch.cos), ((x,),))


# ---------------------------------------------------------------------------------------- operators


def _to(value: Any, device: str) -> Any:
    return _pytree.tree_map_only(torch.Tensor, lambda t: t.detach().to(device), value)


# Why an operator of the sweep can not be captured: its results, their sizes or an error of the
# matrix are known only when it has run; it makes a tensor of numbers of the host; or the sample
# itself sets the seed.
REFUSALS = ("makes the host wait", "the seed and the offset of a generator can be neither")
REFUSED = {
    "__getitem__",
    "allclose",
    "argwhere",
    "combinations",
    "corrcoef",
    "cov",
    "equal",
    "histogramdd",
    "index_put",
    "linalg.cholesky",
    "linalg.inv",
    "linalg.ldl_factor",
    "linalg.lstsq",
    "linalg.lstsq.grad_oriented",
    "linalg.lu_factor",
    "linalg.solve",
    "linalg.tensorinv",
    "linalg.tensorsolve",
    "linspace.tensor_overload",
    "logspace.tensor_overload",
    "masked.amax",
    "masked.amin",
    "masked.argmax",
    "masked.argmin",
    "masked.cumprod",
    "masked.cumsum",
    "masked.log_softmax",
    "masked.logaddexp",
    "masked.logsumexp",
    "masked.mean",
    "masked.median",
    "masked.norm",
    "masked.prod",
    "masked.softmax",
    "masked.softmin",
    "masked.std",
    "masked.sum",
    "masked.var",
    "masked_select",
    "narrow",
    "nn.functional.ctc_loss",
    "nn.functional.gaussian_nll_loss",
    "nonzero",
    "to_sparse",
    "unique",
    "unique_consecutive",
    "item",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.multi_head_attention_forward",
    "nn.functional.rrelu",
    "nn.functional.scaled_dot_product_attention",
    "pca_lowrank",
    "svd_lowrank",
}


# How an operator is called: as it is, with out= of its results' dtype or of a wider one, in place.
PLAIN, OUT, WIDER, IN_PLACE = "plain", "out=", "out= of another dtype", "in place"


# They resize what they write to, which is not known before they have run.
RESIZED_IN_PLACE = {"addbmm"}


def _widened(result: torch.Tensor) -> torch.Tensor:
    dtype = torch.complex128 if result.is_complex() else torch.float64
    return torch.zeros_like(result, dtype=dtype)


def _caller(op: Any, way: str, like: Any) -> Callable[[Any], Any]:
    """A function of the arguments; `like` is a result, from which out= is made."""
    function = op.get_inplace() if way == IN_PLACE else op
    more = {}
    if way in (OUT, WIDER):
        make = torch.zeros_like if way == OUT else _widened
        more["out"] = _pytree.tree_map_only(torch.Tensor, make, like)
    return lambda values: function(values[0], *values[1], **values[2], **more)


def _outcome(op: Any, sample: SampleInput, tolerance: float, way: str = PLAIN) -> str:
    """Capture one call, replay it with other inputs and compare with the CPU."""
    arguments = (sample.input, sample.args, sample.kwargs)
    theirs = _to(arguments, "cpu")
    ours = _to(arguments, "openreg")
    pristine = _to(arguments, "openreg")
    tensors = [t for t in _pytree.tree_leaves(ours) if isinstance(t, torch.Tensor)]
    kept = [t for t in _pytree.tree_leaves(pristine) if isinstance(t, torch.Tensor)]
    try:
        like = _caller(op, PLAIN, None)(copy.deepcopy(theirs))
        expected = _caller(op, way, like)(copy.deepcopy(theirs))
        call = _caller(op, way, _to(like, "openreg"))
        for _ in range(3):  # the first calls learn what results look like
            call(_pytree.tree_map_only(torch.Tensor, torch.clone, ours))
        for tensor in tensors:
            tensor.zero_()  # what the capture sees is not what the replay gets
        torch.openreg.synchronize()
    except Exception:
        return "not supported eagerly, or not to be written to"
    graph = torch.openreg.OpenRegGraph()
    try:
        with torch.openreg.graph(graph):
            result = call(ours)
    except RuntimeError as error:
        texts = f"{error} {error.__context__}"
        refused = any(reason in texts for reason in REFUSALS)
        return "refused" if refused else f"failed: {texts[:300]}"
    if any(ours.shape != origin.shape for ours, origin in zip(tensors, kept, strict=True)):
        return "changes sizes in place"
    for _ in range(2):
        # Results first: in place, they are among the arguments.
        for leaf in _pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and way != PLAIN:
                leaf.zero_()
        for tensor, origin in zip(tensors, kept, strict=True):
            tensor.copy_(origin)
        try:
            graph.replay()
            torch.openreg.synchronize()
        except RuntimeError as error:
            return f"failed in the replay: {str(error)[:300]}"
        try:
            torch.testing.assert_close(
                _to(result, "cpu"),
                _to(expected, "cpu"),
                equal_nan=True,
                rtol=tolerance,
                atol=tolerance / 10,
            )
        except AssertionError as error:
            return f"differs: {str(error)[:200]}"
    return "same"


# Results that are not a function of the arguments: tested above, or undefined.
WITHOUT_DEFINED_RESULT = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"}
WITHOUT_DEFINED_RESULT |= {"new_empty_strided"}
# Its samples read beyond their tensors, what a copy to the device does not take along.
WITHOUT_DEFINED_RESULT |= {"as_strided"}

# The CPU writes past the end of an out= of another dtype.
WITHOUT_OUT = {(WIDER, "tril"), (WIDER, "triu")}


def _is_random(op: Any) -> bool:
    return (
        any(word in op.full_name for word in ("rand", "dropout", "bernoulli", "multinomial"))
        or op.name.startswith(("normal", "nn.functional.dropout"))
        or op.name in ("uniform", "cauchy", "exponential", "geometric", "log_normal", "poisson")
    )


@pytest.mark.parametrize(
    ("way", "dtype", "tolerance", "least"),
    [
        (PLAIN, torch.float32, 1e-4, 1000),
        (PLAIN, torch.bfloat16, 2e-2, 800),
        (OUT, torch.float32, 1e-4, 500),
        (WIDER, torch.float32, 1e-4, 200),
        (WIDER, torch.int64, 1e-4, 100),
        (IN_PLACE, torch.float32, 1e-4, 200),
    ],
)
def test_operators_replay_as_the_cpu_runs_them(
    way: str, dtype: torch.dtype, tolerance: float, least: int
) -> None:
    outcomes: dict[str, list[str]] = {}
    for op in op_db:
        if (
            dtype not in op.dtypes
            or op.name in WITHOUT_DEFINED_RESULT
            or _is_random(op)
            or (way in (OUT, WIDER) and not op.supports_out)
            or (way == IN_PLACE and op.get_inplace() is None)
            or (way, op.name) in WITHOUT_OUT
        ):
            continue
        for sample in list(op.sample_inputs("cpu", dtype))[:2]:
            outcomes.setdefault(_outcome(op, sample, tolerance, way), []).append(op.full_name)
    counts = {outcome: len(names) for outcome, names in outcomes.items()}
    wrong = {
        outcome: names
        for outcome, names in outcomes.items()
        if outcome.startswith(("failed", "differs"))
    }
    assert not wrong, wrong
    refused = set(outcomes.get("refused", ())) - REFUSED
    if way == IN_PLACE:
        refused -= RESIZED_IN_PLACE
    assert not refused
    assert counts["same"] > least, counts


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_random_operators_replay_as_eager_runs_them(dtype: torch.dtype) -> None:
    """With the same seed; two replays draw different numbers."""
    wrong, same = [], 0
    for op in filter(_is_random, op_db):
        if dtype not in op.dtypes:
            continue
        for sample in list(op.sample_inputs("cpu", dtype))[:2]:
            ours = _to((sample.input, sample.args, sample.kwargs), "openreg")
            if op.name in ("rand", "randn", "randint", "randperm", "normal"):
                ours[2]["device"] = "openreg"
            call = _caller(op, PLAIN, None)
            kept = _pytree.tree_map_only(torch.Tensor, torch.clone, ours)
            targets = _pytree.tree_leaves(ours), _pytree.tree_leaves(kept)

            def restore(targets: Any = targets) -> None:
                for tensor, origin in zip(*targets, strict=True):
                    if isinstance(tensor, torch.Tensor):
                        tensor.copy_(origin)

            def eager(seed: int, call: Any = call, ours: Any = ours) -> list[Any]:
                torch.openreg.manual_seed(seed)
                with unseeded():
                    return [_to(call(ours), "cpu") for _ in range(2)]

            try:
                expected = eager(3)
                restore()
            except Exception:
                continue
            graph = torch.openreg.OpenRegGraph()
            try:
                with torch.openreg.graph(graph), unseeded():
                    result = call(ours)
            except RuntimeError as error:
                texts = f"{error} {error.__context__}"
                if not any(reason in texts for reason in REFUSALS):
                    wrong.append(f"{op.full_name}: {texts[:200]}")
                continue
            torch.openreg.manual_seed(3)
            for want in expected:
                graph.replay()
                try:
                    torch.testing.assert_close(_to(result, "cpu"), want, equal_nan=True)
                except AssertionError as error:
                    wrong.append(f"{op.full_name}: {str(error)[:200]}")
                else:
                    same += 1
    assert not wrong, wrong
    assert same > 50


@contextmanager
def unseeded() -> Iterator[None]:
    """Many samples seed themselves, which a capture refuses."""
    with mock.patch.object(
        common_methods_invocations, "wrapper_set_seed", lambda f, *a, **k: f(*a, **k)
    ):
        yield


@pytest.mark.parametrize("host", [torch.float32, torch.float64, torch.int32, torch.bool])
@pytest.mark.parametrize(
    ("way", "layout"),
    [
        (way, layout)
        for way in ("read", "written")
        for layout in ("contiguous", "transposed", "with gaps", "expanded", "empty")
        if (way, layout) != ("written", "expanded")  # refused: elements share memory
    ],
)
def test_copies_of_pinned_memory_are_replayed(way: str, host: torch.dtype, layout: str) -> None:
    """Without a wait where torch copies as it is; what waits is refused."""
    pinned = {
        "contiguous": lambda: torch.zeros(6, 8, dtype=host).pin_memory(),
        "transposed": lambda: torch.zeros(8, 6, dtype=host).pin_memory().t(),
        "with gaps": lambda: torch.zeros(6, 16, dtype=host).pin_memory()[:, ::2],
        "expanded": lambda: torch.zeros(6, 1, dtype=host).pin_memory().expand(6, 8),
        "empty": lambda: torch.zeros(0, 8, dtype=host).pin_memory(),
    }[layout]()
    ours = torch.zeros(pinned.shape, device="openreg")
    source, target = (pinned, ours) if way == "read" else (ours, pinned)
    graph = torch.openreg.OpenRegGraph()
    try:
        with torch.openreg.graph(graph):
            target.copy_(source, non_blocking=True)
    except RuntimeError as error:
        texts = f"{error} {error.__context__}"
        assert any(reason in texts for reason in REFUSALS), texts
        assert layout != "contiguous" or host != torch.float32
        assert ours.add(1).sum().item() == ours.numel()
        return
    for value in (1, 0, 1):
        base = pinned[:, :1] if layout == "expanded" else pinned
        base.fill_(value if way == "read" else 1 - value)
        ours.fill_(value if way == "written" else 1 - value)
        graph.replay()
        torch.openreg.synchronize()
        assert target.float().cpu().tolist() == torch.full(pinned.shape, float(value)).tolist()


def test_errors_during_a_capture_leave_the_stream_usable() -> None:
    """The wrong inputs of torch's database: at the call, or when the graph is replayed."""
    seen, wrong = 0, []
    x = torch.zeros(3, device="openreg")
    for op in op_db:
        if op.error_inputs_func is None:
            continue
        for mistake in list(op.error_inputs("cpu"))[:3]:
            sample = mistake.sample_input
            try:
                ours = _to((sample.input, sample.args, sample.kwargs), "openreg")
            except Exception:
                continue
            graph = torch.openreg.OpenRegGraph()
            raised = False
            try:
                with torch.openreg.graph(graph):
                    try:
                        _caller(op, PLAIN, None)(ours)
                    except Exception:
                        raised = True
                    x.add_(1)
                graph.replay()
                torch.openreg.synchronize()
            except Exception:
                raised = True
            seen += raised
            try:
                assert not torch.openreg.is_current_stream_capturing()
                torch.openreg.synchronize()
                assert x.fill_(1).add_(1).tolist() == [2.0] * 3
                again = torch.openreg.OpenRegGraph()
                with torch.openreg.graph(again):
                    x.add_(1)
                again.replay()
                assert x.tolist() == [3.0] * 3
            except Exception as error:
                wrong.append(f"{op.full_name}: {type(error).__name__}: {str(error)[:200]}")
    assert not wrong, wrong
    assert seen > 300


CAPTURES = 100


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def _host_bytes() -> int:
    """Bytes that the process has from malloc."""
    gc.collect()
    function = ctypes.CDLL(None).mallinfo2
    function.restype = _Mallinfo
    found = function()
    return int(found.uordblks + found.hblkhd)


def _capture_kernels(x: torch.Tensor) -> None:
    (x.add(1) @ x).sort().values.sum()


def _capture_pinned(x: torch.Tensor) -> None:
    source = torch.empty(x.shape, pin_memory=True)
    x.copy_(source, non_blocking=True)


def _capture_random(x: torch.Tensor) -> None:
    torch.nn.functional.dropout(x.uniform_(), 0.5)


def _capture_out(x: torch.Tensor) -> None:
    torch.add(x, 1, out=torch.empty(x.shape, device="openreg", dtype=torch.float64))


def _capture_error(x: torch.Tensor) -> None:
    with pytest.raises(RuntimeError):
        x @ x[:1]


@pytest.mark.parametrize(
    "work", [_capture_kernels, _capture_pinned, _capture_random, _capture_out, _capture_error]
)
def test_nothing_is_left_of_a_capture(work: Callable[[torch.Tensor], None]) -> None:
    x = torch.ones(8, 8, device="openreg")

    def captures() -> tuple[int, int, int, int]:
        for _ in range(CAPTURES):
            graph = torch.openreg.OpenRegGraph()
            with torch.openreg.graph(graph):
                work(x)
            graph.replay()
        del graph
        torch.openreg.synchronize()
        torch.openreg.empty_cache()
        pinned = torch.openreg.host_memory_stats()
        return (
            _host_bytes(),
            torch.openreg.memory_allocated(),
            torch.openreg.memory_reserved(),
            pinned["allocated_bytes.current"],
        )

    work(x)  # the first call learns what results look like
    captures()
    rounds = [captures() for _ in range(5)]
    growth = [[b - a for a, b in zip(*pair, strict=True)] for pair in itertools.pairwise(rounds)]
    # The least of several rounds: a table that grows does so once. 32 bytes a capture is less than
    # any object.
    assert min(host for host, *_ in growth) < CAPTURES * 32, growth
    assert rounds[-1][1:] == rounds[0][1:]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_numbers_beside_tensors_are_there_at_each_replay(dtype: torch.dtype) -> None:
    """The CPU's kernels of 16-bit floats take the number out of the iterator they are given."""
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


def test_what_a_graph_says_of_itself() -> None:
    graph = torch.openreg.OpenRegGraph()
    assert repr(graph) == "<torch.openreg.OpenRegGraph without a capture>"
    x = torch.ones(3, device="openreg")
    with torch.openreg.graph(graph):
        assert repr(graph) == "<torch.openreg.OpenRegGraph without a capture>"
        x + 1
    assert repr(graph) == f"<torch.openreg.OpenRegGraph of {graph.node_count()} commands>"
