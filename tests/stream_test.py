# SPDX-License-Identifier: BSD-3-Clause
"""Python runs ahead of streams, the work of a stream is ordered, and streams are independent."""

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_openreg

from tests.devices import LAST, LAST_INDEX, needs_two_devices

# A stream is kept busy for this many nanoseconds, which is much longer than a launch takes.
NAP = 300_000_000


@pytest.fixture(autouse=True)
def _quiet_devices() -> None:
    torch.openreg.set_device(0)
    for index in range(torch.openreg.device_count()):
        torch.openreg.synchronize(index)


def test_python_continues_while_the_device_works() -> None:
    value = torch.zeros(4, device="openreg")
    start = time.monotonic()
    torch.openreg._sleep(NAP)
    value.add_(1)
    assert time.monotonic() - start < NAP / 1e9
    assert not torch.openreg.current_stream().query()
    assert value.tolist() == [1.0] * 4
    assert time.monotonic() - start >= NAP / 1e9
    assert torch.openreg.current_stream().query()


def test_work_of_a_stream_is_in_order() -> None:
    with torch.openreg.stream(torch.openreg.Stream()):
        value = torch.zeros(1000, device="openreg")
        torch.openreg._sleep(NAP // 10)
        for factor in range(1, 20):
            value.mul_(2).add_(factor)
        expected = 0
        for factor in range(1, 20):
            expected = 2 * expected + factor
        assert value.tolist() == [float(expected)] * 1000


def test_streams_are_independent() -> None:
    slow, fast = torch.openreg.Stream(), torch.openreg.Stream()
    with torch.openreg.stream(slow):
        torch.openreg._sleep(NAP)
    with torch.openreg.stream(fast):
        value = torch.ones(4, device="openreg") + 1
    fast.synchronize()
    assert not slow.query()
    assert fast.query()
    slow.synchronize()
    assert value.tolist() == [2.0] * 4


def test_default_stream_does_not_wait_for_others() -> None:
    slow = torch.openreg.Stream()
    with torch.openreg.stream(slow):
        torch.openreg._sleep(NAP)
    torch.ones(4, device="openreg").add_(1)
    torch.openreg.default_stream().synchronize()
    assert not slow.query()
    slow.synchronize()


@needs_two_devices
def test_devices_are_independent() -> None:
    torch.openreg._sleep(NAP)
    assert torch.ones(2, device=LAST).sum().item() == 2
    assert not torch.openreg.current_stream(0).query()


def test_wait_stream() -> None:
    first, second = torch.openreg.Stream(), torch.openreg.Stream()
    value = torch.zeros(4, device="openreg")
    torch.openreg.synchronize()
    with torch.openreg.stream(first):
        torch.openreg._sleep(NAP)
        value.fill_(3)
    second.wait_stream(first)
    with torch.openreg.stream(second):
        doubled = value * 2
        assert not second.query()
        assert doubled.tolist() == [6.0] * 4


@needs_two_devices
def test_wait_stream_of_another_device() -> None:
    torch.openreg._sleep(NAP)
    other = torch.openreg.Stream(LAST)
    other.wait_stream(torch.openreg.current_stream(0))
    start = time.monotonic()
    other.synchronize()
    assert time.monotonic() - start > NAP / 1e9 / 3
    assert torch.openreg.current_stream(0).query()


def test_synchronize_lets_other_threads_run() -> None:
    torch.openreg._sleep(NAP)
    beats = 0
    done = threading.Event()

    def wait() -> None:
        torch.openreg.synchronize()
        done.set()

    thread = threading.Thread(target=wait)
    thread.start()
    while not done.wait(0.01):
        beats += 1
    thread.join()
    assert beats > 3


@needs_two_devices
def test_context_sets_and_restores_stream_and_device() -> None:
    outer = torch.openreg.Stream(0)
    inner = torch.openreg.Stream(LAST)
    with torch.openreg.stream(outer):
        assert torch.openreg.current_stream() == outer
        with torch.openreg.stream(inner):
            assert torch.openreg.current_device() == LAST_INDEX
            assert torch.openreg.current_stream() == inner
            assert torch.openreg.current_stream(0) == outer
            with torch.openreg.stream(None), torch.openreg.stream(inner):
                assert torch.openreg.current_stream() == inner
            assert torch.openreg.current_stream() == inner
        assert torch.openreg.current_device() == 0
        assert torch.openreg.current_stream() == outer
        assert torch.openreg.current_stream(LAST) == torch.openreg.default_stream(LAST)
    assert torch.openreg.current_stream() == torch.openreg.default_stream()


def test_context_survives_exceptions() -> None:
    with pytest.raises(KeyError), torch.openreg.stream(torch.openreg.Stream(LAST)):
        raise KeyError
    assert torch.openreg.current_device() == 0
    assert torch.openreg.current_stream(LAST) == torch.openreg.default_stream(LAST)


def test_a_context_can_be_entered_again() -> None:
    context = torch.openreg.stream(torch.openreg.Stream())
    with context, context:
        assert torch.openreg.current_stream() != torch.openreg.default_stream()
    assert torch.openreg.current_stream() == torch.openreg.default_stream()


def test_a_stream_is_a_context() -> None:
    stream = torch.openreg.Stream(LAST)
    with stream:
        assert torch.openreg.current_stream() == stream
        assert torch.openreg.current_device() == LAST_INDEX
    assert torch.openreg.current_device() == 0
    assert torch.openreg.current_stream(LAST) == torch.openreg.default_stream(LAST)


def test_set_stream() -> None:
    stream = torch.openreg.Stream(LAST)
    torch.openreg.set_stream(stream)
    try:
        assert torch.openreg.current_device() == LAST_INDEX
        assert torch.openreg.current_stream() == stream
        torch.openreg.set_stream(None)
        assert torch.openreg.current_stream() == stream
    finally:
        torch.openreg.set_stream(torch.openreg.default_stream(LAST))


def test_current_stream_belongs_to_the_thread() -> None:
    seen: list[torch.Stream] = []
    with torch.openreg.stream(torch.openreg.Stream()):
        thread = threading.Thread(target=lambda: seen.append(torch.openreg.current_stream()))
        thread.start()
        thread.join()
    assert seen == [torch.openreg.default_stream()]


def test_types_and_names() -> None:
    stream = torch.openreg.Stream(device=LAST)
    assert isinstance(stream, torch.Stream)
    assert isinstance(torch.openreg.current_stream(), torch.openreg.Stream)
    assert isinstance(stream.record_event(), torch.openreg.Event)
    assert stream.device == torch.device(LAST)
    assert repr(stream) == f"<torch.openreg.Stream device={LAST} {stream.stream_id:#x}>"
    assert repr(torch.openreg.default_stream()) == (
        "<torch.openreg.Stream device=openreg:0 default>"
    )
    same = torch.openreg.Stream(
        stream_id=stream.stream_id, device_index=LAST_INDEX, device_type=stream.device_type
    )
    assert same == stream
    assert hash(same) == hash(stream)
    assert len({torch.openreg.Stream() for _ in range(4)}) == 4
    assert torch.accelerator.current_stream() == torch.openreg.current_stream()


def test_priorities() -> None:
    least, greatest = torch.openreg.Stream.priority_range()
    assert greatest <= least
    assert torch.openreg.Stream(priority=greatest).priority == greatest
    assert torch.openreg.Stream(priority=greatest - 100).priority == greatest
    assert torch.openreg.Stream(priority=least + 100).priority == least
    assert greatest <= torch.openreg.default_stream().priority <= least


def test_memory_freed_under_a_kernel_is_not_given_away() -> None:
    # The tensor is freed before its stream has written to it. That write must not reach a new
    # tensor of the same size.
    side = torch.openreg.Stream()
    with torch.openreg.stream(side):
        torch.openreg._sleep(NAP // 3)
        torch.empty(100_000, device="openreg").fill_(7)
    other = torch.zeros(100_000, device="openreg")
    side.synchronize()
    assert other.abs().max().item() == 0


@contextmanager
def foreign_stream(device: int) -> Iterator[int]:
    """Creates a stream through the driver instead of torch, and yields its handle."""
    library = Path(torch_openreg.__file__).parent / "lib" / "libopenreg.so"
    driver = ctypes.CDLL(str(library))
    handle = ctypes.c_void_p()
    with torch.openreg.device(device):
        assert driver.orStreamCreate(ctypes.byref(handle)) == 0
    assert handle.value is not None
    try:
        yield handle.value
    finally:
        assert driver.orStreamDestroy(handle) == 0


def test_external_streams() -> None:
    with foreign_stream(LAST_INDEX) as handle:
        stream = torch.openreg.ExternalStream(handle, device=LAST)
        assert isinstance(stream, torch.openreg.Stream)
        assert stream.device == torch.device(LAST)
        assert stream.native_handle == handle
        assert torch.openreg.Stream(LAST_INDEX, stream_ptr=handle) == stream
        assert torch.openreg.get_stream_from_external(handle, LAST_INDEX) == stream
        with pytest.raises(ValueError, match="priority=-1"):
            torch.openreg.ExternalStream(handle, LAST, priority=-1)
        assert stream != torch.openreg.default_stream(LAST)
        with torch.openreg.stream(stream):
            assert torch.openreg.current_stream() == stream
            torch.openreg._sleep(NAP // 3)
            value = torch.ones(4, device=LAST) + 1
            assert not stream.query()
        torch.openreg.current_stream(LAST).wait_stream(stream)
        assert (value * 2).tolist() == [4.0] * 4
        stream.synchronize()
        del value
        torch.openreg.empty_cache()


def test_a_native_handle_names_its_stream() -> None:
    stream = torch.openreg.Stream(LAST)
    assert torch.openreg.ExternalStream(stream.native_handle, LAST) == stream
    default = torch.openreg.default_stream(0)
    assert default.native_handle != 0
    assert torch.openreg.ExternalStream(default.native_handle, 0) == default


def test_a_stream_is_made_current_by_its_numbers() -> None:
    stream = torch.openreg.Stream(LAST)
    numbers = {name: getattr(stream, name) for name in ("stream_id", "device_index", "device_type")}
    torch.openreg._set_stream_by_id(**numbers)
    assert torch.openreg.current_device() == LAST_INDEX
    assert torch.openreg.current_stream() == stream
    torch.openreg.set_stream(torch.openreg.default_stream(LAST))


@needs_two_devices
def test_a_handle_of_another_device_is_refused() -> None:
    with (
        foreign_stream(0) as handle,
        pytest.raises(RuntimeError, match="belongs to device openreg:0"),
    ):
        torch.openreg.ExternalStream(handle, device=LAST)


def test_wrong_handles_are_refused() -> None:
    with foreign_stream(0) as handle:
        stream = torch.openreg.ExternalStream(handle, device=0)
    for wrong in (12345, handle):  # not a stream, and a destroyed stream
        with pytest.raises(RuntimeError, match="is not a valid stream; it may have been destroyed"):
            torch.openreg.ExternalStream(wrong, device=0)
    with pytest.raises(RuntimeError, match="is not a valid stream; it may have been destroyed"):
        stream.synchronize()
    with pytest.raises(RuntimeError, match="is not a valid stream; it may have been destroyed"):
        torch.openreg.set_stream(stream)
    assert torch.ones(2, device="openreg").sum().item() == 2


def test_streams_of_other_devices_are_refused() -> None:
    event = torch.openreg.current_stream().record_event()
    other = torch.Stream(LAST)
    other.wait_event(event)
    assert other.device == torch.device(LAST)
    for index in (7, -2):
        with pytest.raises((RuntimeError, ValueError)):
            torch.openreg.Stream(index)
    assert torch.ones(2, device="openreg").sum().item() == 2


@pytest.mark.parametrize("wrong", [3, "event", torch.ones(1)], ids=repr)
def test_only_events_and_streams_are_waited_for(wrong: Any) -> None:
    stream = torch.openreg.Stream()
    for wait in (stream.wait_event, stream.wait_stream, stream.record_event):
        with pytest.raises(TypeError, match="but expected"):
            wait(wrong)
    with pytest.raises(TypeError, match="expected an event; wait_stream waits for a stream"):
        stream.wait_event(None)
    with pytest.raises(TypeError, match="expected an event; wait_stream waits for a stream"):
        stream.wait_event(torch.openreg.Stream())
    with pytest.raises(TypeError, match="expected a stream; wait_event waits for an event"):
        stream.wait_stream(torch.openreg.Event())


@needs_two_devices
def test_nested_contexts_across_devices_and_exceptions() -> None:
    streams = [torch.openreg.Stream(index % 2) for index in range(6)]
    seen = []
    with (
        torch.openreg.stream(streams[0]),
        torch.openreg.stream(streams[1]),
        torch.openreg.device(0),
        torch.openreg.stream(streams[2]),
    ):
        seen.append((torch.openreg.current_device(), torch.openreg.current_stream()))
        try:
            with torch.openreg.stream(streams[3]), streams[4]:
                seen.append((torch.openreg.current_device(), torch.openreg.current_stream()))
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        seen.append((torch.openreg.current_device(), torch.openreg.current_stream(0)))
        assert torch.openreg.current_stream(LAST) == streams[1]
    assert seen == [(0, streams[2]), (0, streams[4]), (0, streams[2])]
    assert torch.openreg.current_device() == 0
    assert torch.openreg.current_stream(0) == torch.openreg.default_stream(0)
    assert torch.openreg.current_stream(LAST) == torch.openreg.default_stream(LAST)


@needs_two_devices
def test_each_thread_has_its_current_streams() -> None:
    barrier = threading.Barrier(4)
    wrong: list[int] = []

    def work(number: int) -> None:
        mine = [torch.openreg.Stream(device) for device in (0, 1)]
        with torch.openreg.stream(mine[0]), torch.openreg.stream(mine[1]):
            for _ in range(20):
                barrier.wait()
                value = torch.full((64,), float(number), device=LAST).add_(1)
                if [torch.openreg.current_stream(device) for device in (0, 1)] != mine:
                    wrong.append(number)
                if value.tolist() != [number + 1.0] * 64:
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_backward_pass_runs_on_the_streams_of_the_forward_pass() -> None:
    side = torch.openreg.Stream()
    seen: list[torch.Stream] = []

    class Spy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            seen.append(torch.openreg.current_stream())
            return gradient * 2

    x = torch.ones(1000, device="openreg", requires_grad=True)
    side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        torch.openreg._sleep(NAP // 10)
        y = Spy.apply(x * 3)  # type: ignore[no-untyped-call]
    torch.openreg.current_stream().wait_stream(side)
    (y * 5).sum().backward()
    assert seen == [side]
    assert x.grad is not None
    assert (
        x.grad.tolist() == [30.0] * 1000
    )  # read on the default stream, which waits for the side stream


def test_a_backward_pass_in_another_thread() -> None:
    x = torch.ones(1000, device=LAST, requires_grad=True)
    y = (x * 3).sum()
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0] * 1000


@needs_two_devices
def test_peer_copies_are_in_the_order_of_both_streams() -> None:
    first, second = torch.openreg.Stream(0), torch.openreg.Stream(LAST)
    with torch.openreg.stream(first), torch.openreg.stream(second):
        x = torch.zeros(10_000, device="openreg:0")
        y = torch.zeros(10_000, device=LAST)
        for value in range(1, 6):
            with torch.openreg.device(0):
                torch.openreg._sleep(NAP // 30)
            x.fill_(value)
            y.copy_(x, non_blocking=True)  # after the fill, and before the next one
            with torch.openreg.device(LAST):
                torch.openreg._sleep(NAP // 30)
            y.mul_(2)
            x.copy_(y, non_blocking=True)
            x.add_(0.5)
        assert x.tolist() == [10.5] * 10_000
        assert y.tolist() == [10.0] * 10_000
