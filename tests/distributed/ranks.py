# SPDX-License-Identifier: BSD-3-Clause
"""Runs test functions on ranks, which are processes in a process group.

The ranks are forked from a process that has already imported torch, so they start within about 20
ms.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist

#: A process that runs for more than this many seconds counts as hung.
HANG_TIMEOUT = 120.0
#: After a rank has failed, the other ranks must end within this many seconds.
FAILURE_TIMEOUT = 30.0
#: The number of emulated machines. Ranks are assigned to machines in turn, unless a test assigns
#: them.
HOSTS = int(os.environ.get("OPENREG_TEST_HOSTS", "1"))

_context = multiprocessing.get_context("forkserver")
_preloaded = ["torch", "tests.distributed.ranks"]
_context.set_forkserver_preload(_preloaded)


def preload(*modules: str) -> None:
    """Imports modules once, before the ranks are forked. Test files call this function on import.

    Otherwise each rank would spend seconds to import the modules that torch imports on first use.
    """
    _preloaded.extend(module for module in modules if module not in _preloaded)
    _context.set_forkserver_preload(_preloaded)


@dataclass
class Outcome:
    """How the function of a rank ended."""

    #: The return value of the function.
    value: Any = None
    #: The traceback of the exception that the function raised.
    error: str | None = None
    #: The exit code of the process. If a signal ended the process, this is the negative signal
    #: number.
    exit_code: int | None = None


@dataclass
class Group:
    """The settings for the ranks' process group."""

    backend: str | None = "occl"
    #: The timeout of a collective in seconds.
    timeout: float = 60.0
    #: Whether the group is bound to the rank's device.
    bound: bool = False
    #: For each rank, the number of the emulated machine on which it runs.
    hosts: Sequence[int] | None = None
    #: Environment variables that each process sets before it uses the device.
    environment: Mapping[str, str] | None = None


def _serve(
    rank: int,
    size: int,
    store: str,
    group: Group,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    connection: Connection,
) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), **(group.environment or {})
    )
    if group.hosts is not None or HOSTS > 1:
        host = rank % HOSTS if group.hosts is None else group.hosts[rank]
        os.environ["OPENREG_HOST_ID"] = f"host {host}"
    torch.set_num_threads(1)
    try:
        dist.set_debug_level_from_env()
        device = torch.device("openreg", rank % torch.openreg.device_count())
        torch.openreg.set_device(device)
        dist.init_process_group(
            group.backend,
            store=dist.FileStore(store, size),
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=group.timeout),
            device_id=device if group.bound else None,
        )
        value = function(*arguments)
        torch.openreg.synchronize()
        connection.send(Outcome(value=value))
        if dist.is_initialized():
            dist.destroy_process_group()
    except BaseException:
        connection.send(Outcome(error=traceback.format_exc()))
        sys.exit(1)


class Ranks:
    """Starts and owns the processes of the ranks, and kills them when the ``with`` block ends."""

    def __init__(
        self, size: int, function: Callable[..., Any], *arguments: Any, group: Group | None = None
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        store = os.path.join(self._folder.name, "store")
        self.connections: list[Connection] = []
        self.processes = []
        for rank in range(size):
            ours, theirs = _context.Pipe()
            process = _context.Process(
                target=_serve,
                args=(rank, size, store, group or Group(), function, arguments, theirs),
                daemon=True,
            )
            process.start()
            theirs.close()
            self.connections.append(ours)
            self.processes.append(process)

    def kill(self, rank: int) -> None:
        """Ends a rank with SIGKILL."""
        pid = self.processes[rank].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def outcomes(self, hang_timeout: float = HANG_TIMEOUT) -> list[Outcome]:
        """Waits until all ranks have ended. If a rank hangs, its outcome is an error."""
        end = time.monotonic() + hang_timeout
        outcomes = [Outcome() for _ in self.processes]
        waiting = {connection: rank for rank, connection in enumerate(self.connections)}
        while waiting:
            ready = wait(list(waiting), max(end - time.monotonic(), 0))
            if not ready:
                break
            for connection in self.connections:
                if connection not in ready:
                    continue
                rank = waiting.pop(connection)
                # A killed rank sends no outcome.
                with contextlib.suppress(EOFError, ConnectionError):
                    outcomes[rank] = connection.recv()
                if outcomes[rank].error is not None:
                    end = min(end, time.monotonic() + FAILURE_TIMEOUT)
        for rank in waiting.values():
            outcomes[rank].error = "the rank hangs: it has sent no outcome in time"
        for outcome, process in zip(outcomes, self.processes, strict=True):
            process.join(max(end - time.monotonic(), 1))
            outcome.exit_code = process.exitcode
            if process.exitcode is None:
                outcome.error = f"the process has not ended after its outcome: {outcome}"
        return outcomes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        self._folder.cleanup()


def run(
    size: int,
    function: Callable[..., Any],
    *arguments: Any,
    group: Group | None = None,
    hang_timeout: float = HANG_TIMEOUT,
) -> list[Any]:
    """Runs ``function(*arguments)`` on ``size`` ranks, each of which uses its own device.

    Returns:
        The return values, by rank.

    Raises:
        AssertionError: a rank raised an error, hung or died. The message contains all tracebacks.
    """
    with Ranks(size, function, *arguments, group=group) as ranks:
        outcomes = ranks.outcomes(hang_timeout)
    bad = [
        f"rank {rank}: exit status {outcome.exit_code}\n{outcome.error or ''}"
        for rank, outcome in enumerate(outcomes)
        if outcome.error is not None or outcome.exit_code != 0
    ]
    assert not bad, "\n".join(bad)
    return [outcome.value for outcome in outcomes]
