# SPDX-License-Identifier: BSD-3-Clause
"""Tests events, which order streams and measure time."""

import itertools
import threading

import pytest
import torch

from tests.devices import LAST, LAST_INDEX, needs_two_devices

NAP = 300_000_000  # nanoseconds


@pytest.fixture(autouse=True)
def _quiet_devices() -> None:
    torch.openreg.set_device(0)
    for index in range(torch.openreg.device_count()):
        torch.openreg.synchronize(index)


def test_elapsed_time_is_that_of_the_work() -> None:
    start = torch.openreg.Event(enable_timing=True)
    end = torch.openreg.Event(enable_timing=True)
    start.record()
    torch.openreg._sleep(100_000_000)
    end.record()
    end.synchronize()
    assert 100 <= start.elapsed_time(end) < 2000


def test_query_and_synchronize() -> None:
    event = torch.openreg.Event()
    assert event.query()  # never recorded, so there is nothing to wait for
    event.synchronize()
    torch.openreg._sleep(NAP)
    event.record()
    assert not event.query()
    event.synchronize()
    assert event.query()
    assert torch.openreg.current_stream().query()


def test_an_event_is_of_the_moment_of_its_record() -> None:
    event = torch.openreg.Event()
    event.record()
    torch.openreg._sleep(NAP)
    event.synchronize()
    assert not torch.openreg.current_stream().query()


def test_wait_orders_streams() -> None:
    first, second = torch.openreg.Stream(), torch.openreg.Stream()
    value = torch.zeros(4, device="openreg")
    torch.openreg.synchronize()
    with torch.openreg.stream(first):
        torch.openreg._sleep(NAP)
        value.fill_(5)
        event = first.record_event()
        torch.openreg._sleep(4 * NAP)
    second.wait_event(event)
    with torch.openreg.stream(second):
        assert value.tolist() == [5.0] * 4
    assert not first.query()  # the host did not wait for work queued after the event
    first.synchronize()


@needs_two_devices
def test_wait_on_the_current_stream_of_another_device() -> None:
    torch.openreg._sleep(NAP)
    event = torch.openreg.current_stream().record_event()
    with torch.openreg.device(LAST):
        event.wait(torch.openreg.current_stream())
        torch.openreg.current_stream().synchronize()
    assert event.query()


def test_recording_again_replaces_the_mark() -> None:
    event = torch.openreg.Event()
    event.record()
    event.synchronize()
    torch.openreg._sleep(NAP)
    event.record()
    assert not event.query()
    event.synchronize()


def test_elapsed_time_needs_timing_records_and_completion() -> None:
    plain = torch.openreg.Event()
    timed = torch.openreg.Event(enable_timing=True)
    with pytest.raises(ValueError, match="must be recorded"):
        timed.elapsed_time(torch.openreg.Event(enable_timing=True))
    plain.record()
    timed.record()
    torch.openreg.synchronize()
    with pytest.raises(ValueError, match="enable_timing=True"):
        plain.elapsed_time(timed)
    late = torch.openreg.Event(enable_timing=True)
    torch.openreg._sleep(NAP)
    late.record()
    with pytest.raises(RuntimeError, match="must be completed"):
        timed.elapsed_time(late)
    late.synchronize()
    assert timed.elapsed_time(late) >= NAP / 1e6


@needs_two_devices
def test_an_event_of_one_device_is_not_recorded_on_another() -> None:
    event = torch.openreg.Event(device="openreg:0")
    event.record()
    with pytest.raises(RuntimeError, match="does not match"):
        event.record(torch.openreg.current_stream(LAST))


def test_types() -> None:
    event = torch.openreg.Event(True, device=LAST)
    assert isinstance(event, torch.Event)
    assert isinstance(event, torch.openreg.Event)
    assert event.device.type == "openreg"
    event.record(torch.openreg.current_stream(LAST))
    assert event.device == torch.device(LAST)
    assert f"device_type=openreg, device_index={LAST_INDEX}" in repr(event)
    plain = torch.Event(device=LAST, enable_timing=True)
    assert isinstance(plain, torch.openreg.Event)
    plain.record(torch.openreg.current_stream(LAST))
    plain.synchronize()
    assert event.elapsed_time(plain) >= 0


def test_the_first_argument_is_that_of_cuda() -> None:
    start, end = torch.openreg.Event(True), torch.openreg.Event(True, False)
    start.record()
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    for device in (LAST, torch.device(LAST)):
        with pytest.raises(TypeError, match="Event\\(device="):
            torch.openreg.Event(device)
    with pytest.raises(NotImplementedError, match="enable_timing=True"):
        torch.openreg.Event(external=True)


def test_many_events_do_not_leak() -> None:
    stream = torch.openreg.current_stream()
    for _ in range(20_000):
        stream.record_event()
    stream.synchronize()


def test_elapsed_times_add_up() -> None:
    marks = [torch.openreg.Event(enable_timing=True) for _ in range(4)]
    marks[0].record()
    for mark in marks[1:]:
        torch.openreg._sleep(20_000_000)
        mark.record()
    marks[-1].synchronize()
    parts = [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]
    assert all(part >= 20 for part in parts)
    assert sum(parts) == pytest.approx(marks[0].elapsed_time(marks[-1]), abs=0.01)
    assert marks[-1].elapsed_time(marks[0]) == pytest.approx(-sum(parts), abs=0.01)


def test_times_of_two_streams_are_on_one_clock() -> None:
    start, one, two = (torch.openreg.Event(enable_timing=True) for _ in range(3))
    first, second = torch.openreg.Stream(), torch.openreg.Stream()
    start.record(first)
    with torch.openreg.stream(first):
        torch.openreg._sleep(NAP // 6)
        one.record()
    second.wait_event(one)
    two.record(second)
    two.synchronize()
    assert start.elapsed_time(two) >= start.elapsed_time(one) >= NAP / 6 / 1e6


def test_an_event_passes_between_threads() -> None:
    value = torch.zeros(1000, device="openreg")
    events: list[torch.Event] = []

    def produce() -> None:
        stream = torch.openreg.Stream()
        stream.wait_stream(torch.openreg.default_stream())
        with torch.openreg.stream(stream):
            torch.openreg._sleep(NAP // 3)
            value.fill_(9)
            events.append(stream.record_event())

    thread = threading.Thread(target=produce)
    thread.start()
    thread.join()
    torch.openreg.current_stream().wait_event(events[0])
    assert value.tolist() == [9.0] * 1000


def test_many_threads_wait_for_one_event() -> None:
    torch.openreg._sleep(NAP // 3)
    event = torch.openreg.current_stream().record_event()
    ready: list[bool] = []

    def wait() -> None:
        event.synchronize()
        ready.append(event.query())

    threads = [threading.Thread(target=wait) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ready == [True] * 8


def test_an_event_may_be_destroyed_before_its_waiters() -> None:
    side = torch.openreg.Stream()
    value = torch.zeros(4, device="openreg")
    torch.openreg._sleep(NAP // 3)
    value.fill_(2)
    event = torch.openreg.current_stream().record_event()
    side.wait_event(event)
    del event
    with torch.openreg.stream(side):
        assert value.tolist() == [2.0] * 4


def test_recording_again_does_not_change_a_wait() -> None:
    event = torch.openreg.current_stream().record_event()
    side = torch.openreg.Stream()
    side.wait_event(event)
    torch.openreg._sleep(NAP)
    event.record()
    side.synchronize()
    assert not event.query()
    event.synchronize()


@needs_two_devices
def test_elapsed_time_between_two_devices_is_an_error() -> None:
    events = []
    for index in range(2):
        event = torch.openreg.Event(enable_timing=True, device=index)
        event.record(torch.openreg.current_stream(index))
        event.synchronize()
        events.append(event)
    with pytest.raises(RuntimeError, match=r"the start event belongs to device 0 .* to device 1"):
        events[0].elapsed_time(events[1])
