# SPDX-License-Identifier: BSD-3-Clause
"""No wait or destructor blocks while it holds the GIL, and no device thread acquires the GIL.

The tests do not rely on timing: the work that a call waits for needs the GIL. A call that waits
with the GIL held therefore never returns, and the test kills its process.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import waits
from tests.peer import Peer

PATIENCE = 60.0  # seconds after which a call counts as hung, including the import of torch


class Process:
    """Owns a process that runs calls, and replaces the process if a call hangs."""

    def __init__(self) -> None:
        self.peer: Peer | None = None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Runs ``function`` in the process."""
        if self.peer is None:
            self.peer = Peer()
        self.peer.send(function, *arguments)
        if not self.peer.connection.poll(PATIENCE):
            self.close()
            pytest.fail(
                f"no answer within {PATIENCE:g} s: the call holds the GIL that the device waits for"
            )
        try:
            return self.peer.receive()
        except EOFError:
            self.close()
            pytest.fail("the process died during the call")

    def close(self) -> None:
        """Ends the process."""
        if self.peer is not None:
            self.peer.kill()
        self.peer = None


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    process = Process()
    yield process
    process.close()


@pytest.mark.parametrize("name", waits.WAITING)
def test_a_call_that_waits(process: Process, name: str) -> None:
    assert process.call(waits.run, name), "the call did not wait"


@pytest.mark.parametrize("name", waits.OTHERS)
def test_another_call(process: Process, name: str) -> None:
    process.call(waits.run, name)


@pytest.mark.parametrize("name", waits.WORK)
def test_work_that_needs_no_gil(process: Process, name: str) -> None:
    process.call(waits.run_without_gil, name)
