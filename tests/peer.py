# SPDX-License-Identifier: BSD-3-Clause
"""Another process, for tests of what processes share: it runs functions of this module."""

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

#: Seconds after which a process is taken to hang. Importing torch is some of them.
PATIENCE = 100.0


class Marked(torch.Tensor):
    """A subclass of torch.Tensor, as programs have them."""


#: What the process has been given, by name.
kept: dict[str, Any] = {}
connections: list[Connection] = []


def keep(name: str, value: Any) -> None:
    """Keep ``value`` in the process."""
    kept[name] = value


def give(name: str) -> Any:
    """Return what is kept."""
    return kept[name]


def drop(name: str) -> None:
    """Forget what is kept."""
    del kept[name]
    gc.collect()


def values(name: str) -> Any:
    """Return the tensor as a list."""
    return kept[name].tolist()


def add(name: str, number: float) -> None:
    """Queue an addition to the tensor."""
    with torch.no_grad():
        kept[name].add_(number)


def make(name: str, size: int, value: float) -> torch.Tensor:
    """Keep a new tensor full of ``value``, and return it."""
    kept[name] = torch.full((size,), value, device="openreg")
    return kept[name]  # type: ignore[no-any-return]


def describe(name: str) -> dict[str, Any]:
    """Return what a tensor is, apart from its elements."""
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
    """Tell whether two kept tensors are of one storage."""
    one, two = kept[first].untyped_storage(), kept[second].untyped_storage()
    return bool(one._cdata == two._cdata)


def nap(seconds: float) -> None:
    """Keep the current stream busy."""
    torch.openreg._sleep(int(seconds * 1e9))


def synchronize() -> None:
    """Wait for the device."""
    torch.openreg.synchronize()


def collect() -> int:
    """Let go of shared memory."""
    return int(torch.openreg.ipc_collect())


def resize(name: str, size: int) -> None:
    """Resize the storage of a tensor."""
    kept[name].untyped_storage().resize_(size)


def pass_on(name: str, connection: Connection, other: str) -> None:
    """Have the process at the other end keep what this one has, as ``other``."""
    connection.send((keep, (other, kept[name])))
    good, value = connection.recv()
    if not good:
        raise RuntimeError(value)


def on_side_stream(name: str, seconds: float, device: str) -> None:
    """Use the tensor, after a nap, on a stream of ``device``, not its own, and forget it."""
    stream = torch.openreg.Stream(device)
    stream.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(stream):
        torch.openreg._sleep(int(seconds * 1e9))
        kept[name].add_(1)
    kept[name].record_stream(stream)
    drop(name)


def record(name: str) -> None:
    """Record the event on the current stream."""
    kept[name].record()


def query(name: str) -> bool:
    """Query the event."""
    return bool(kept[name].query())


def wait(name: str) -> None:
    """Wait for the event on the host."""
    kept[name].synchronize()


def make_event(name: str) -> bytes:
    """Keep a new event and return its handle."""
    kept[name] = torch.openreg.Event(interprocess=True)
    return kept[name].ipc_handle()  # type: ignore[no-any-return]


def open_event(name: str, handle: bytes) -> None:
    """Keep the event of a handle."""
    kept[name] = torch.openreg.Event.from_ipc_handle("openreg:0", handle)


def serve(connection: Connection) -> None:
    """Run what comes in until the connection is closed."""
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        except Exception as error:  # what came in could not be opened
            connection.send((False, f"{type(error).__name__}: {error}"))
            continue
        try:
            connection.send((True, function(*arguments)))
        except Exception as error:  # the test wants to know
            connection.send((False, f"{type(error).__name__}: {error}"))
        del function, arguments


class Peer:
    """The process, from the outside. Ends with the ``with`` block."""

    def __init__(self, method: str = "spawn") -> None:
        context = torch.multiprocessing.get_context(method)
        self.connection, theirs = context.Pipe()
        self.process: multiprocessing.Process = context.Process(
            target=serve, args=(theirs,), daemon=True
        )
        self.process.start()
        theirs.close()

    def send(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have it run ``function``."""
        self.connection.send((function, arguments))

    def receive(self) -> Any:
        """Return what the function returned."""
        assert self.connection.poll(PATIENCE), "the process hangs"
        good, value = self.connection.recv()
        if not good:
            raise RuntimeError(value)
        return value

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run ``function`` there."""
        self.send(function, *arguments)
        return self.receive()

    def kill(self) -> None:
        """End it by SIGKILL."""
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
        assert self.process.exitcode is not None, "the process hangs"
