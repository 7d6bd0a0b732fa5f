# SPDX-License-Identifier: BSD-3-Clause
"""The stream sanitizer finds races regardless of their timing, and accepts ordered programs."""

import gc
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch_openreg.openreg import stream_sanitizer

from tests import child

N = 4096


@pytest.fixture(autouse=True)
def _sanitizer() -> Iterator[None]:
    torch.openreg.set_device(0)
    gc.collect()
    torch.openreg.synchronize(0)
    torch.openreg.synchronize(1)
    with stream_sanitizer.enabled("error"):
        yield
    torch.openreg.synchronize(0)
    torch.openreg.synchronize(1)


def side_stream(device: int = 0) -> torch.Stream:
    """Returns a stream that is not ordered with the other streams of the test."""
    return torch.Stream(f"openreg:{device}")


# ---------------------------------------------------------------------- races that must be reported


def test_a_read_of_what_another_stream_writes() -> None:
    x = torch.zeros(N, device="openreg")
    x.add_(1)
    with (
        torch.openreg.stream(side_stream()),
        pytest.raises(RuntimeError, match="two streams use one block of memory") as caught,
    ):
        x.mul(2)
    message = str(caught.value)
    assert "aten::mul reads it on stream 0x" in message
    assert "aten::add_ writes it on the default stream of openreg:0" in message
    assert f"{N * 4} bytes at " in message
    assert message.count("in test_a_read_of_what_another_stream_writes") == 2
    [race] = stream_sanitizer.races()
    assert race.later.operator == "aten::mul"
    assert race.later.access == "read"
    assert race.earlier.operator == "aten::add_"
    assert race.earlier.access == "write"
    assert race.pointer == x.data_ptr()
    assert race.bytes == N * 4
    assert race.later.stream != race.earlier.stream
    own = test_a_read_of_what_another_stream_writes.__code__.co_firstlineno
    assert f"line {own + 2}, in test" in race.earlier.stack
    assert f"line {own + 7}, in test" in race.later.stack


def test_a_race_does_not_depend_on_timing() -> None:
    x = torch.zeros(N, device="openreg")
    time.sleep(0.1)  # the write has finished, but the program has not synchronized with it
    with (
        torch.openreg.stream(side_stream()),
        pytest.raises(RuntimeError, match="aten::add_ writes"),
    ):
        x.add_(1)


def test_a_write_to_what_another_stream_reads() -> None:
    x = torch.ones(N, device="openreg")
    side = side_stream()
    side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        doubled = x * 2
    with pytest.raises(RuntimeError, match=r"aten::zero_ writes it on the default stream"):
        x.zero_()
    torch.openreg.current_stream().wait_stream(side)
    x.zero_()
    assert doubled.tolist() == [2.0] * N


def test_a_refused_operator_was_not_launched() -> None:
    x = torch.ones(N, device="openreg")
    with torch.openreg.stream(side_stream()), pytest.raises(RuntimeError):
        x.add_(41)
    assert x.tolist() == [1.0] * N


def test_memory_that_was_allocated_on_another_stream() -> None:
    x = torch.empty(N, device="openreg")
    with (
        torch.openreg.stream(side_stream()),
        pytest.raises(RuntimeError, match=r"aten::empty.* allocates it on the default stream"),
    ):
        x.fill_(1)


def test_an_event_that_was_recorded_too_early() -> None:
    x = torch.zeros(N, device="openreg")
    event = torch.openreg.current_stream().record_event()
    x.add_(1)
    side = side_stream()
    side.wait_event(event)
    with torch.openreg.stream(side), pytest.raises(RuntimeError, match="aten::add_ writes it"):
        x.sum()


def test_results_of_another_stream() -> None:
    with torch.openreg.stream(side_stream()):
        y = torch.ones(N, device="openreg") * 3
    with pytest.raises(RuntimeError, match=r"aten::sum reads it.*aten::mul writes it"):
        y.sum()


def test_views_share_memory() -> None:
    x = torch.zeros(64, 64, device="openreg")
    y = torch.zeros(64, 64, device="openreg")
    side = side_stream()
    side.wait_stream(torch.openreg.current_stream())
    x[:32].add_(1)
    y[:, :32].add_(1)
    with torch.openreg.stream(side):
        x[32:].add_(2)  # no race, because the rows differ
        y[:, 32:].add_(2)  # no race, because the columns differ
        with pytest.raises(RuntimeError, match="aten::add_"):
            x[31:33].add_(2)
        with pytest.raises(RuntimeError, match="aten::add_"):
            y.t()[31].add_(2)
    torch.openreg.current_stream().wait_stream(side)
    assert x.sum().item() == y.sum().item() == 3 * 32 * 64


def test_copies_between_devices() -> None:
    x = torch.zeros(N, device="openreg:0")
    y = torch.zeros(N, device="openreg:1")
    with (
        torch.openreg.stream(side_stream(1)),
        pytest.raises(RuntimeError, match="aten::_copy_from writes it on the default stream"),
    ):
        y.copy_(x)


def test_lists_of_tensors() -> None:
    parts = [torch.zeros(N, device="openreg") for _ in range(3)]
    side = side_stream()
    side.wait_stream(torch.openreg.current_stream())
    parts[2].add_(1)
    with torch.openreg.stream(side):
        for operator, call in (
            ("aten::cat", lambda: torch.cat(parts)),
            ("aten::_foreach_add_", lambda: torch._foreach_add_(parts, 1)),
        ):
            with pytest.raises(RuntimeError, match=f"{operator} "):
                call()


def test_outputs_that_are_given() -> None:
    x = torch.zeros(N, device="openreg")
    out = torch.zeros(N, device="openreg")
    side = side_stream()
    side.wait_stream(torch.openreg.current_stream())
    out.add_(1)
    with torch.openreg.stream(side), pytest.raises(RuntimeError, match="aten::add writes it"):
        torch.add(x, x, out=out)


def test_memory_freed_while_another_stream_uses_it() -> None:
    side = side_stream()
    x = torch.ones(N, device="openreg")
    pointer = x.data_ptr()
    side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        torch.openreg._sleep(1_000_000)
        y = x * 2
    del x
    with pytest.raises(RuntimeError, match=r"allocates it on the default stream.*") as caught:
        _ = [torch.empty(N, device="openreg") for _ in range(100)]
    assert "record_stream" in str(caught.value)
    assert "aten::mul reads it on stream 0x" in str(caught.value)
    assert stream_sanitizer.races()[0].pointer == pointer
    torch.openreg.current_stream().wait_stream(side)
    assert y.tolist() == [2.0] * N


def test_threads_are_watched_too() -> None:
    x = torch.zeros(N, device="openreg")
    x.add_(1)
    caught: list[BaseException] = []

    def use() -> None:
        try:
            with torch.openreg.stream(side_stream()):
                x.mul(2)
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert len(caught) == 1
    assert "aten::mul reads it" in str(caught[0])


def test_the_backward_pass_is_watched() -> None:
    x = torch.ones(N, device="openreg", requires_grad=True)
    with torch.openreg.stream(torch.openreg.current_stream()):
        y = (x * x).sum()
    side = side_stream()
    side.wait_stream(torch.openreg.current_stream())
    y.backward()
    assert x.grad is not None
    with torch.openreg.stream(side), pytest.raises(RuntimeError, match="aten::sum reads it"):
        x.grad.sum()


def test_warnings_do_not_stop_the_program() -> None:
    stream_sanitizer.enable("warn")
    assert stream_sanitizer.action() == "warn"
    x = torch.zeros(N, device="openreg")
    x.add_(1)
    with (
        torch.openreg.stream(side_stream()),
        pytest.warns(UserWarning, match="aten::mul reads it"),
    ):
        y = x.mul(2)
    torch.openreg.synchronize()
    assert y.tolist() == [2.0] * N
    assert len(stream_sanitizer.races()) == 1


# --------------------------------------------------------------------------- programs without races


def test_wait_stream_and_events_order() -> None:
    first, second = side_stream(), side_stream()
    x = torch.zeros(N, device="openreg")
    first.wait_stream(torch.openreg.current_stream())
    for _ in range(10):
        with torch.openreg.stream(first):
            x.add_(1)
            event = first.record_event()
        second.wait_event(event)
        with torch.openreg.stream(second):
            x.mul_(2)
        first.wait_stream(second)
    torch.openreg.current_stream().wait_stream(first)
    assert x[0].item() == 2046
    assert not stream_sanitizer.races()


@pytest.mark.parametrize("wait", ["device", "stream", "event", "query", "item", "cpu"])
def test_the_host_orders(wait: str) -> None:
    x = torch.zeros(N, device="openreg")
    x.add_(1)
    event = torch.openreg.current_stream().record_event()

    def poll() -> None:
        while not event.query():
            pass

    waits: dict[str, Callable[[], object]] = {
        "device": torch.openreg.synchronize,
        "stream": torch.openreg.current_stream().synchronize,
        "event": event.synchronize,
        "query": poll,
        "item": x[0].item,
        "cpu": x.cpu,
    }
    waits[wait]()
    with torch.openreg.stream(side_stream()):
        x.mul_(2)
    torch.openreg.synchronize()
    assert x[0].item() == 2


def test_readers_need_no_order() -> None:
    x = torch.ones(N, device="openreg")
    streams = [side_stream() for _ in range(4)]
    sums = []
    for stream in streams:
        stream.wait_stream(torch.openreg.current_stream())
    for stream in streams:
        with torch.openreg.stream(stream):
            sums.append(x.sum())
    for stream in streams:
        torch.openreg.current_stream().wait_stream(stream)
    assert torch.stack(sums).tolist() == [N] * 4


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10)
    ).to("openreg")


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_training_on_a_side_stream(optimizer: type[torch.optim.Optimizer]) -> None:
    model = make_model()
    steps = optimizer(model.parameters(), lr=1e-3)  # type: ignore[call-arg]
    side = side_stream()
    for _ in range(3):
        x = torch.randn(2, 1, 8, 8).to("openreg")
        y = torch.zeros(2, dtype=torch.int64).to("openreg")
        side.wait_stream(torch.openreg.current_stream())
        with torch.openreg.stream(side):
            steps.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            steps.step()
        for batch in (x, y):
            batch.record_stream(side)
        torch.openreg.current_stream().wait_stream(side)
        assert loss.isfinite().item()
    assert not stream_sanitizer.races()


def test_autograd_across_streams() -> None:
    x = torch.ones(N, device="openreg", requires_grad=True)
    left, right = side_stream(), side_stream()
    halves = []
    for stream in (left, right):
        stream.wait_stream(torch.openreg.current_stream())
        with torch.openreg.stream(stream):
            halves.append((x * 3).relu())
    for stream in (left, right):
        torch.openreg.current_stream().wait_stream(stream)
    (halves[0] * halves[1]).sum().backward()  # backward uses the streams of forward
    assert x.grad is not None
    assert x.grad.tolist() == [18.0] * N


def test_pinned_copies_on_a_copy_stream() -> None:
    copies = side_stream()
    total = torch.zeros(N, device="openreg")
    for number in range(10):
        batch = torch.full((N,), float(number)).pin_memory()
        with torch.openreg.stream(copies):
            moved = batch.to("openreg", non_blocking=True)
        torch.openreg.current_stream().wait_stream(copies)
        total.add_(moved)
        moved.record_stream(torch.openreg.current_stream())
    back = torch.empty(N).pin_memory()
    back.copy_(total, non_blocking=True)
    torch.openreg.current_stream().synchronize()
    assert back.tolist() == [45.0] * N


def test_record_stream_guards_reuse() -> None:
    side = side_stream()
    for _ in range(50):
        x = torch.ones(N, device="openreg")
        side.wait_stream(torch.openreg.current_stream())
        with torch.openreg.stream(side):
            y = x * 2
        x.record_stream(side)
        del x
    torch.openreg.current_stream().wait_stream(side)
    assert y.tolist() == [2.0] * N


def test_freeing_before_the_wait_is_fine_if_nothing_is_allocated_between() -> None:
    side = side_stream()
    for _ in range(20):
        x = torch.ones(N, device="openreg")
        side.wait_stream(torch.openreg.current_stream())
        with torch.openreg.stream(side):
            y = x * 2
        del x
        torch.openreg.current_stream().wait_stream(side)
    assert y.tolist() == [2.0] * N


def test_peer_copies_are_ordered() -> None:
    x = torch.ones(N, device="openreg:0")
    for _ in range(5):
        y = x.to("openreg:1")
        y.mul_(2)
        x.copy_(y)
        x.add_(1)
    assert x[0].item() == 63


def test_out_of_use_memory_of_other_streams() -> None:
    for _ in range(3):
        for stream in (side_stream(), torch.openreg.current_stream()):
            with torch.openreg.stream(stream):
                x = torch.ones(1 << 20, device="openreg")
                x.mul_(2)
                del x
        torch.openreg.empty_cache()


def test_captured_work_does_not_use_memory() -> None:
    x = torch.zeros(N, device="openreg")
    torch.openreg.synchronize()
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        y = x * 2
    x.fill_(4)  # no race, because the capture runs nothing
    graph.replay()
    assert (y + 1).tolist() == [9] * N
    assert stream_sanitizer.races() == []
    x.fill_(5)
    with torch.openreg.stream(side_stream()), pytest.raises(RuntimeError, match="aten::fill_ wri"):
        x.mul(2)


# ------------------------------------------------------------------------ settings of the sanitizer


def test_disabled_sanitizer_reports_nothing() -> None:
    stream_sanitizer.disable()
    assert stream_sanitizer.action() == "off"
    x = torch.zeros(N, device="openreg")
    with torch.openreg.stream(side_stream()):
        x.mul(2)
    assert stream_sanitizer.races() == []
    torch.openreg.synchronize()


def test_wrong_actions_are_refused() -> None:
    with pytest.raises(ValueError, match="'loud': expected one of off, warn, error"):
        stream_sanitizer.enable("loud")  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "expected"), [("1", "error"), ("warn", "warn"), ("0", "off")])
def test_the_environment_starts_it(value: str, expected: str) -> None:
    printed = child.output(
        """
        import warnings, torch
        x = torch.zeros(1000, device="openreg")
        found = "off"
        with torch.openreg.stream(torch.openreg.Stream()):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    x.add_(1)
                except RuntimeError as error:
                    assert "aten::add_ writes it" in str(error)
                    found = "error"
        if caught:
            found = "warn"
        print(found, torch.openreg.stream_sanitizer.action())
        """,
        OPENREG_STREAM_SANITIZER=value,
    )
    assert printed == f"{expected} {expected}"
