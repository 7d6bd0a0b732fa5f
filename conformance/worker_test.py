# SPDX-License-Identifier: BSD-3-Clause
"""A parent gets its worker's answers, and detects exceptions, crashes and hangs."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch_device_conformance.execution.worker import Died, Silent, Worker


def adder(first: int) -> Callable[[int], Iterator[int]]:
    def answer(second: int) -> Iterator[int]:
        yield first + second

    return answer


def answering() -> Callable[[str], Iterator[str]]:
    def answer(request: str) -> Iterator[str]:
        if request.startswith("twice"):
            yield "first"
            request = request.removeprefix("twice, ")
        if request == "segv":
            print("about to read address 8", file=sys.stderr)
            yield ctypes.string_at(8).decode()
        if request == "exit":
            os._exit(3)
        if request == "hang":
            time.sleep(600)
        if request == "raise":
            raise ValueError("not that")
        yield str(os.getpid())

    return answer


def locking() -> Callable[[str], Iterator[str]]:
    kept = []

    def answer(request: str) -> Iterator[str]:
        kept.append(multiprocessing.Lock())
        yield request

    return answer


def slow() -> Callable[[int], Iterator[int]]:
    time.sleep(1)
    return adder(1)


def endless() -> Callable[[str], Iterator[str]]:
    time.sleep(600)
    raise AssertionError


def failing() -> Callable[[str], Iterator[str]]:
    raise LookupError("no device here")


def test_answers_in_a_process_of_its_own() -> None:
    with Worker(adder, 40) as worker:
        assert worker.ask(2) == 42
        assert worker.ask(3) == 43
    with Worker(answering) as worker:
        assert int(worker.ask("who")) != os.getpid()


def test_last_answer_counts() -> None:
    with Worker(answering) as worker:
        assert worker.ask("twice") == worker.ask("who")


def test_answer_before_a_failure_is_kept() -> None:
    with Worker(answering) as worker, pytest.raises(Died) as died:
        worker.ask("twice, exit")
    assert died.value.answer == "first"
    with Worker(answering) as worker, pytest.raises(Silent) as silent:
        worker.ask("twice, hang", timeout=0.2)
    assert silent.value.answer == "first"
    with Worker(answering) as worker:
        with pytest.raises(RuntimeError, match="ValueError: not that"):
            worker.ask("twice, raise")
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


def test_closed_worker_releases_its_semaphores() -> None:
    code = """
import worker_test
from torch_device_conformance.execution.worker import Worker

if __name__ == "__main__":
    with Worker(worker_test.locking) as worker:
        worker.ask("lock")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


def test_close_ends_the_process() -> None:
    worker = Worker(answering)
    process = int(worker.ask("who"))
    worker.close()
    worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
