# SPDX-License-Identifier: BSD-3-Clause
"""Runs this module's functions in another process, for tests of sharing between processes."""

import gc
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

import torch
import torch.multiprocessing

#: A process that runs for more than this many seconds counts as hung. Importing torch is included.
PATIENCE = 100.0


class Marked(torch.Tensor):
    """A subclass of torch.Tensor, such as a program may define."""


#: The objects that this process keeps, by name.
kept: dict[str, Any] = {}
connections: list[Connection] = []


def keep(name: str, value: Any) -> None:
    """Keeps ``value`` in the process."""
    kept[name] = value


def give(name: str) -> Any:
    """Returns a kept object."""
    return kept[name]


def drop(name: str) -> None:
    """Drops a kept object."""
    del kept[name]
    gc.collect()


def values(name: str) -> Any:
    """Returns a tensor as a list."""
    return kept[name].tolist()


def add(name: str, number: float) -> None:
    """Queues an addition to a tensor."""
    with torch.no_grad():
        kept[name].add_(number)


def make(name: str, size: int, value: float) -> torch.Tensor:
    """Keeps and returns a new tensor filled with ``value``."""
    kept[name] = torch.full((size,), value, device="openreg")
    return kept[name]  # type: ignore[no-any-return]


def describe(name: str) -> dict[str, Any]:
    """Returns the metadata of a tensor."""
    tensor = kept[name]
    return {
        "type": type(tensor).__name__,
        "dtype": tensor.dtype,
        "shape": tuple(tensor.shape),
        "stride": tensor.stride(),
        "offset": tensor.storage_offset(),
        "requires_grad": tensor.requires_grad,
        "device": str(tensor.device),
        "conj": tensor.is_conj(),
        "neg": tensor.is_neg(),
        "shared": tensor.is_shared(),
    }


def same_storage(first: str, second: str) -> bool:
    """Returns whether two kept tensors share a storage."""
    one, two = kept[first].untyped_storage(), kept[second].untyped_storage()
    return bool(one._cdata == two._cdata)


def nap(seconds: float) -> None:
    """Keeps the current stream busy for some seconds."""
    torch.openreg._sleep(int(seconds * 1e9))


def synchronize() -> None:
    """Waits for the device."""
    torch.openreg.synchronize()


def collect() -> int:
    """Releases shared memory that no process uses any more."""
    return int(torch.openreg.ipc_collect())


def resize(name: str, size: int) -> None:
    """Resizes the storage of a tensor."""
    kept[name].untyped_storage().resize_(size)


def pass_on(name: str, connection: Connection, other: str) -> None:
    """Sends a kept object through ``connection`` to a process, which keeps it as ``other``."""
    connection.send((keep, (other, kept[name])))
    good, value = connection.recv()
    if not good:
        raise RuntimeError(value)


def on_side_stream(name: str, seconds: float, device: str) -> None:
    """Uses a tensor after a delay, on a new stream of ``device``, and then drops the tensor."""
    stream = torch.openreg.Stream(device)
    stream.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(stream):
        torch.openreg._sleep(int(seconds * 1e9))
        kept[name].add_(1)
    kept[name].record_stream(stream)
    drop(name)


def record(name: str) -> None:
    """Records an event on the current stream."""
    kept[name].record()


def query(name: str) -> bool:
    """Queries an event."""
    return bool(kept[name].query())


def wait(name: str) -> None:
    """Makes the host wait for an event."""
    kept[name].synchronize()


def make_event(name: str) -> bytes:
    """Keeps a new event and returns its handle."""
    kept[name] = torch.openreg.Event(interprocess=True)
    return kept[name].ipc_handle()  # type: ignore[no-any-return]


def open_event(name: str, handle: bytes) -> None:
    """Opens the handle of an event and keeps the event."""
    kept[name] = torch.openreg.Event.from_ipc_handle("openreg:0", handle)


def serve(connection: Connection) -> None:
    """Runs requests until the connection is closed."""
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        except Exception as error:  # unpickling the request raised an error
            connection.send((False, f"{type(error).__name__}: {error}"))
            continue
        try:
            connection.send((True, function(*arguments)))
        except Exception as error:  # the test receives the error
            connection.send((False, f"{type(error).__name__}: {error}"))
        del function, arguments


class Peer:
    """A test's handle to the other process. As a context manager, it ends the process on exit."""

    def __init__(self, method: str = "spawn") -> None:
        context = torch.multiprocessing.get_context(method)
        self.connection, theirs = context.Pipe()
        self.process: multiprocessing.Process = context.Process(
            target=serve, args=(theirs,), daemon=True
        )
        self.process.start()
        theirs.close()

    def send(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Requests a call to ``function``, but does not wait for its result."""
        self.connection.send((function, arguments))

    def receive(self) -> Any:
        """Waits for the requested call. Returns its result or raises its error."""
        assert self.connection.poll(PATIENCE), f"the process did not answer within {PATIENCE:g} s"
        good, value = self.connection.recv()
        if not good:
            raise RuntimeError(value)
        return value

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Runs ``function`` in the process and returns its result."""
        self.send(function, *arguments)
        return self.receive()

    def kill(self) -> None:
        """Ends the process with SIGKILL."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.connection.close()
        self.process.join(PATIENCE)
        assert self.process.exitcode is not None, f"the process did not exit within {PATIENCE:g} s"
