# SPDX-License-Identifier: BSD-3-Clause
"""A subprocess that answers one request at a time. Crashes and timeouts are answers, too.

The parent owns the process and uses it from one thread. The process writes stderr to a file, so
that the parent can report the last output of a crashed process. Python's faulthandler writes the
stacks of all threads to this file when the process crashes. It also does so after a timeout, before
the parent ends the process.

The process is either a new interpreter, or a fork of a server that has imported torch and its
databases but has not loaded a device. A forked process starts in about ten milliseconds. It
inherits neither threads nor a device, and must load the installed backends itself
(subject/subject.py).
"""

import faulthandler
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any, Generic, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")

# After a timeout, a process has this many seconds to write its stacks.
STACKS = 3.0

# The time in seconds that a process has to exit once it has no more requests.
EXITING = 1.0

# The time in seconds after which a process that has not prepared itself counts as hung.
PREPARING = 600.0

# The fork server imports these modules: torch without any backend, and torch's databases.
PRELOADED = [
    "torch_device_conformance.subject.preloaded",
    "torch_device_conformance.execution.judge",
]


class Died(Exception):
    """The process ended instead of answering.

    Attributes:
        cause: the signal that ended the process, its exit status, or "not ready ...".
        last_words: the end of the process's stderr output.
        answer: the last answer that arrived before, or None.
    """

    def __init__(self, cause: str, last_words: str, answer: Any = None) -> None:
        super().__init__(f"{cause}: {last_words}" if last_words else cause)
        self.cause = cause
        self.last_words = last_words
        self.answer = answer


class Silent(TimeoutError):
    """The process did not answer in time, so the parent ended it.

    Attributes:
        stacks: the stacks of the process's threads.
        answer: the last answer that arrived before, or None.
    """

    def __init__(self, message: str, stacks: str = "", answer: Any = None) -> None:
        super().__init__(message)
        self.stacks = stacks
        self.answer = answer


class Worker(Generic[Request, Answer]):
    """A process that calls a function to answer requests. Its creator must close it.

    Args:
        prepare: function that is called once in the process with `arguments`, and that returns the
            function that answers. It must be importable by name. If it raises an exception, the
            process ends. The function that answers yields at least one answer; a later answer to
            the same request replaces the earlier ones.
        arguments: arguments for `prepare`; they are pickled.
        preloaded: whether the process is forked from the fork server.

    Attributes:
        prepared: whether the parent has been informed that `prepare` has returned.
    """

    def __init__(
        self,
        prepare: Callable[..., Callable[[Request], Iterator[Answer]]],
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
            daemon=False,  # a daemon could not start processes, but a case may do so
        )
        self._process.start()
        self.prepared = False
        theirs.close()

    def ask(self, request: Request, timeout: float | None = None) -> Answer:
        """Sends a request and returns the last answer.

        Args:
            request: the request; it is pickled.
            timeout: seconds to wait for the last answer, not counting `prepare`; None waits
                forever.

        Raises:
            Died: the process ended, or `prepare` did not return. The worker is closed.
            Silent: the timeout expired. The worker is closed.
            RuntimeError: the function raised an exception. The worker stays alive.
        """
        answer: Any = None
        try:
            if not self.prepared:
                if not self._connection.poll(PREPARING):
                    stacks = self._stacks()
                    self.close()
                    raise Died(f"not ready within {PREPARING:g} s", stacks)
                self._connection.recv()
                self.prepared = True
            self._connection.send(request)
            end = None if timeout is None else time.monotonic() + timeout
            while True:
                left = None if end is None else max(0.0, end - time.monotonic())
                if not self._connection.poll(left):
                    stacks = self._stacks()
                    self.close()
                    raise Silent(f"no answer within {timeout:g} s", stacks, answer)
                found = self._connection.recv()
                if found is None:
                    break
                good, value = found
                if not good:
                    raise value
                answer = value
        except (EOFError, ConnectionError):
            self._process.join()
            died = Died(_cause(self._process.exitcode), self._last_words(), answer)
            self.close()
            raise died from None
        result: Answer = answer
        return result

    def close(self) -> None:
        """Ends the process. A second call has no effect.

        An idle process exits by itself and releases its semaphores, of which Python would otherwise
        warn at the end of the program. A busy process is killed.
        """
        self._connection.close()
        self._process.join(EXITING)
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
        """Makes the process write its threads' stacks and end. Returns the text that it wrote."""
        pid = self._process.pid
        if pid is None or not self._process.is_alive():
            return self._last_words()
        os.kill(pid, signal.SIGABRT)
        self._process.join(STACKS)
        return self._last_words()


_lock = threading.Lock()


def fork_server() -> ForkServerContext:
    """Returns a multiprocessing context whose fork server has imported the modules in PRELOADED."""
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
    prepare: Callable[..., Callable[[Any], Iterator[Any]]],
    arguments: tuple[Any, ...],
) -> None:
    """Runs in the process. Answers requests until the parent closes its end of the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    # A forked process inherits the environment in which the fork server was started, so replace it.
    os.environ.clear()
    os.environ.update(environment)
    with open(stderr, "wb", buffering=0) as file:
        os.dup2(file.fileno(), 2)
    faulthandler.enable(file=2, all_threads=True)
    answer = prepare(*arguments)
    connection.send(None)  # reports that the process is ready
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        try:
            for found in answer(request):
                connection.send((True, found))
            connection.send(None)  # no further answer
        except Exception as error:
            # Send only the text, because some exceptions cannot be pickled.
            connection.send((False, RuntimeError(f"{type(error).__name__}: {error}")))
