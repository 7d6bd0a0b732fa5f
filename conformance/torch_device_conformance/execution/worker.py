# SPDX-License-Identifier: BSD-3-Clause
"""A sub-process that answers one request at a time, and whose death or silence is an answer too.

The parent owns the process and talks to it from one thread. What the process writes to stderr
goes to a file, so that the last words of a crashed one can be reported. Python's faulthandler
writes the stacks of all threads there when the process crashes, and before a silent one is ended.

A process is a new interpreter. On request it comes from a fork server, which has imported torch and
its databases and nothing of a device: it is there in some ten milliseconds, inherits no threads and
no device, and has to load installed backends itself (subject/subject.py).
"""

import faulthandler
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any, Generic, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")

# Seconds that a silent process has to write its stacks.
STACKS = 3.0

# What the server imports: torch without any device, and its databases.
PRELOADED = [
    "torch_device_conformance.subject.preloaded",
    "torch_device_conformance.execution.judge",
]


class Died(Exception):
    """The process ended instead of answering.

    Attributes:
        cause: the signal's name, or the exit status.
        last_words: the end of what it wrote to stderr.
    """

    def __init__(self, cause: str, last_words: str) -> None:
        super().__init__(f"{cause}: {last_words}" if last_words else cause)
        self.cause = cause
        self.last_words = last_words


class Silent(TimeoutError):
    """The process did not answer in time; it has been ended.

    Attributes:
        stacks: of its threads.
    """

    def __init__(self, message: str, stacks: str = "") -> None:
        super().__init__(message)
        self.stacks = stacks


class Worker(Generic[Request, Answer]):
    """A process with the function that answers requests.

    Args:
        prepare: called once in the process with `arguments`; returns the function that answers.
            It must be importable by name. An exception in it ends the process.
        arguments: of prepare; they are pickled.
        preloaded: whether the process comes from the fork server.

    Attributes:
        prepared: whether `prepare` has returned, as far as the parent has asked.
    """

    def __init__(
        self,
        prepare: Callable[..., Callable[[Request], Answer]],
        *arguments: Any,
        preloaded: bool = False,
    ) -> None:
        context: SpawnContext | ForkServerContext = (
            fork_server() if preloaded else multiprocessing.get_context("spawn")
        )
        self._stderr = tempfile.NamedTemporaryFile(prefix="worker-")  # noqa: SIM115
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(theirs, self._stderr.name, dict(os.environ), prepare, arguments),
            daemon=False,  # a case may have processes of its own
        )
        self._process.start()
        self.prepared = False
        theirs.close()

    def ask(self, request: Request, timeout: float | None = None) -> Answer:
        """Sends a request and waits for its answer.

        Args:
            request: what is asked; it is pickled.
            timeout: seconds from when the process is prepared; None waits forever.

        Raises:
            Died: the process ended; the worker is closed.
            Silent: the time is over; the worker is closed.
            Exception: what the function raised. The worker is alive.
        """
        try:
            if not self.prepared:
                self._connection.recv()
                self.prepared = True
            self._connection.send(request)
            if not self._connection.poll(timeout):
                stacks = self._stacks()
                self.close()
                raise Silent(f"no answer within {timeout:g} s", stacks)
            good, answer = self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            died = Died(_cause(self._process.exitcode), self._last_words())
            self.close()
            raise died from None
        if not good:
            raise answer
        result: Answer = answer
        return result

    def close(self) -> None:
        """Ends the process at once. Closing twice is allowed."""
        self._connection.close()
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._stderr.close()

    def __enter__(self) -> "Worker[Request, Answer]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _last_words(self, most: int = 6000) -> str:
        size = os.path.getsize(self._stderr.name)
        self._stderr.seek(max(0, size - most))
        return self._stderr.read().decode(errors="replace").strip()

    def _stacks(self) -> str:
        """Has the process write the stacks of its threads, which ends it."""
        pid = self._process.pid
        if pid is None or not self._process.is_alive():
            return self._last_words()
        os.kill(pid, signal.SIGABRT)
        self._process.join(STACKS)
        return self._last_words()


_lock = threading.Lock()


def fork_server() -> ForkServerContext:
    """The context of the processes; its server imports torch once."""
    context = multiprocessing.get_context("forkserver")
    with _lock:
        context.set_forkserver_preload(PRELOADED)
    return context


def _cause(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return signal.Signals(-exitcode).name
    return f"exit status {exitcode}"


def _serve(
    connection: Connection,
    stderr: str,
    environment: dict[str, str],
    prepare: Callable[..., Callable[[Any], Any]],
    arguments: tuple[Any, ...],
) -> None:
    """The life of the process: ends when the parent closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    # The server has the environment of when it was started.
    os.environ.clear()
    os.environ.update(environment)
    with open(stderr, "wb", buffering=0) as file:
        os.dup2(file.fileno(), 2)
    faulthandler.enable(file=2, all_threads=True)
    answer = prepare(*arguments)
    connection.send(None)  # ready
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        try:
            reply = True, answer(request)
        except Exception as error:
            # As text: not every exception can be pickled.
            reply = False, RuntimeError(f"{type(error).__name__}: {error}")
        connection.send(reply)
