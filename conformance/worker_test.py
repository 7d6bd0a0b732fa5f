# SPDX-License-Identifier: BSD-3-Clause
"""A parent gets its worker's answers, and detects exceptions, crashes and hangs."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable

import pytest
from torch_device_conformance.execution.worker import Died, Silent, Worker


def adder(first: int) -> Callable[[int], int]:
    return lambda second: first + second


def answering() -> Callable[[str], str]:
    def answer(request: str) -> str:
        if request == "segv":
            print("about to read address 8", file=sys.stderr)
            return ctypes.string_at(8).decode()
        if request == "exit":
            os._exit(3)
        if request == "hang":
            time.sleep(600)
        if request == "raise":
            raise ValueError("not that")
        return str(os.getpid())

    return answer


def slow() -> Callable[[int], int]:
    time.sleep(1)
    return lambda request: request + 1


def endless() -> Callable[[str], str]:
    time.sleep(600)
    raise AssertionError


def failing() -> Callable[[str], str]:
    raise LookupError("no device here")


def test_answers_in_a_process_of_its_own() -> None:
    with Worker(adder, 40) as worker:
        assert worker.ask(2) == 42
        assert worker.ask(3) == 43
    with Worker(answering) as worker:
        assert int(worker.ask("who")) != os.getpid()


def test_worker_survives_an_exception() -> None:
    with Worker(answering) as worker:
        before = worker.ask("who")
        with pytest.raises(RuntimeError, match="ValueError: not that"):
            worker.ask("raise")
        assert worker.ask("who") == before


def test_worker_that_is_never_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch_device_conformance.execution.worker.PREPARING", 0.5)
    with Worker(endless) as worker, pytest.raises(Died) as died:
        worker.ask("anything")
    assert died.value.cause == "not ready within 0.5 s"


def test_crash_reports_signal_and_last_output() -> None:
    with Worker(answering) as worker, pytest.raises(Died) as died:
        worker.ask("segv")
    assert died.value.cause == signal.SIGSEGV.name
    assert died.value.last_words.startswith("about to read address 8")


def test_exit_reports_its_status() -> None:
    with Worker(answering) as worker, pytest.raises(Died) as died:
        worker.ask("exit")
    assert died.value.cause == "exit status 3"


def test_timeout_ends_the_process() -> None:
    worker = Worker(answering)
    process = int(worker.ask("who"))
    with pytest.raises(Silent, match=r"within 0\.2 s"):
        worker.ask("hang", timeout=0.2)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_preparation_does_not_count_toward_the_timeout() -> None:
    with Worker(slow) as worker:
        assert worker.ask(1, timeout=0.5) == 2


def test_failed_preparation_is_reported() -> None:
    with Worker(failing) as worker, pytest.raises(Died) as died:
        worker.ask("who")
    assert died.value.cause == "exit status 1"
    assert "LookupError: no device here" in died.value.last_words


def test_close_ends_the_process() -> None:
    worker = Worker(answering)
    process = int(worker.ask("who"))
    worker.close()
    worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
