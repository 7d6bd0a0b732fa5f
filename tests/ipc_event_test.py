# SPDX-License-Identifier: BSD-3-Clause
"""Tests events that processes share."""

from collections.abc import Iterator

import pytest
import torch

from tests import peer
from tests.peer import Peer

NAP = 300_000_000  # nanoseconds


@pytest.fixture(scope="module")
def other() -> Iterator[Peer]:
    with Peer() as process:
        yield process


def test_another_process_waits_on_the_host(other: Peer) -> None:
    event = torch.openreg.Event(interprocess=True)
    other.call(peer.open_event, "e", event.ipc_handle())
    assert other.call(peer.query, "e")  # never recorded, so there is nothing to wait for
    torch.openreg._sleep(NAP)
    event.record()
    assert not other.call(peer.query, "e")
    assert not event.query()
    other.call(peer.wait, "e")
    assert event.query()
    assert other.call(peer.query, "e")
    torch.openreg._sleep(NAP)
    assert torch.openreg.current_stream().record_event(event) is event  # records the event again
    assert not other.call(peer.query, "e")
    other.call(peer.wait, "e")
    event.synchronize()  # the event may complete before the stream's position is updated
    assert torch.openreg.current_stream().query()


def test_a_stream_waits_for_another_process(other: Peer) -> None:
    event = torch.openreg.Event.from_ipc_handle(
        torch.device("openreg:0"), other.call(peer.make_event, "e")
    )
    other.call(peer.nap, 0.3)
    other.call(peer.record, "e")
    stream = torch.openreg.Stream()
    stream.wait_event(event)
    assert not stream.query()
    assert torch.openreg.current_stream().query()
    stream.synchronize()
    assert event.query()


def test_an_event_is_sent_unchanged(other: Peer) -> None:
    event = torch.openreg.Event(interprocess=True)
    torch.openreg._sleep(NAP)
    event.record()
    other.call(peer.keep, "e", event)
    assert not other.call(peer.query, "e")
    event.synchronize()
    assert other.call(peer.query, "e")


def test_a_killed_recorder_ends_waits() -> None:
    with Peer() as third:
        event = torch.openreg.Event.from_ipc_handle("openreg", third.call(peer.make_event, "e"))
        third.call(peer.nap, 60.0)
        third.call(peer.record, "e")
        torch.openreg.current_stream().wait_event(event)
        assert not event.query()
        third.kill()
    for use in (event.query, event.synchronize, torch.openreg.synchronize):
        with pytest.raises(RuntimeError, match="ended before it had done"):
            use()
    torch.openreg.synchronize()


def test_limits_of_an_opened_event(other: Peer) -> None:
    handle = other.call(peer.make_event, "e")
    event = torch.openreg.Event.from_ipc_handle("openreg", handle)
    with pytest.raises(RuntimeError, match="only the process that created it can record it"):
        event.record()
    with pytest.raises(RuntimeError, match="pass that handle on"):
        event.ipc_handle()
    with pytest.raises(ValueError, match="belongs to device openreg:0"):
        torch.openreg.Event.from_ipc_handle("openreg:1", handle)
    other.call(peer.drop, "e")
    with pytest.raises(RuntimeError, match="has destroyed"):
        event.query()
    with pytest.raises(RuntimeError, match="destroyed the event before it was opened"):
        torch.openreg.Event.from_ipc_handle("openreg", handle)


def test_invalid_handle_is_rejected() -> None:
    with pytest.raises(ValueError, match="expected a handle of 64 bytes, but got 3 bytes"):
        torch.openreg.Event.from_ipc_handle("openreg", b"abc")
    with pytest.raises(RuntimeError, match="not a valid handle"):
        torch.openreg.Event.from_ipc_handle("openreg", bytes(64))
    event = torch.openreg.Event(interprocess=True)
    with pytest.raises(RuntimeError, match="this process made the handle: use the event itself"):
        torch.openreg.Event.from_ipc_handle("openreg", event.ipc_handle())
    with pytest.raises(ValueError, match="cannot be timed"):
        torch.openreg.Event(interprocess=True, enable_timing=True)


def test_an_event_of_the_other_device(other: Peer) -> None:
    event = torch.openreg.Event(interprocess=True, device="openreg:1")
    assert event.device == torch.device("openreg:1")
    assert isinstance(event, torch.openreg.Event)
    event.record(torch.openreg.current_stream(1))
    event.synchronize()
    with pytest.raises(RuntimeError, match="does not match"):
        event.record(torch.openreg.current_stream(0))
