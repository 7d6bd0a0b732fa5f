# SPDX-License-Identifier: BSD-3-Clause
"""Runs another process that imports device memory, for the soak.

A process serves many rounds, because its start takes seconds. After these rounds it exits, or it is
killed while it uses imported memory and its own queued work is running. The next process starts
immediately and initializes while the soak continues.
"""

import contextlib
import gc
import multiprocessing
import os
import queue
import threading
import time
from types import TracebackType
from typing import Any, Self

import torch
import torch.multiprocessing

PATIENCE = 100.0  # Seconds, including the start, after which the process is considered to hang.
ELEMENTS = 1 << 16  # The number of elements in a shared tensor of 256 KiB.
NAP = 100_000_000  # The duration, in nanoseconds, of the work that a kill interrupts.


def serve(inbox: Any, outbox: Any) -> None:
    """Answers messages until it receives None. This is the other process's main function.

    Args:
        inbox: a queue. The first message is the number of intra-op threads. Each later message is
            a pair: a tensor, to which this process adds 1, and whether this process keeps the
            tensor and queues long work on it.
        outbox: a queue of answers. An answer is a tensor of this process with twice the values.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(inbox.get())
    kept: list[torch.Tensor] = []
    while (message := inbox.get()) is not None:
        tensor, keep = message
        own = tensor.add_(1) * 2
        torch.openreg.synchronize(tensor.device)
        if keep:
            with torch.openreg.stream(torch.openreg.Stream(tensor.device)):
                torch.openreg._sleep(NAP)
                kept.append(tensor.zero_())
        del message, tensor
        torch.openreg.ipc_collect()
        outbox.put(own)
        del own


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()  # returns if the parent was killed; otherwise the parent ends this process first
    os._exit(1)


class Importer:
    """The other process, as used in each round. On exit, the context manager ends the process.

    Args:
        lifetime: the number of rounds that one process serves.
    """

    def __init__(self, lifetime: int = 50) -> None:
        self.lifetime = lifetime
        self.started = 0
        self.rounds = 0  # the number of rounds that the current process has served
        self._context = torch.multiprocessing.get_context("spawn")
        self._process: Any = None

    def share(self) -> None:
        """Shares tensors on each device, imports the answers, and waits until all memory is freed.

        Raises:
            RuntimeError: if a value is wrong, memory is not released, or the process fails.
        """
        if self._process is None:
            self._start()
        self._require_alive()  # a message that is never read would keep its memory in use
        self.rounds += 1
        last = self.rounds >= self.lifetime
        killed = last and self.started % 2 == 1
        devices = range(torch.openreg.device_count())
        before = _allocated()
        answers = []
        for index in devices:
            tensor = torch.full((ELEMENTS,), float(self.rounds), device=f"openreg:{index}")
            self._inbox.put((tensor, killed))
            answers.append(self._answer())
            # If the process will be killed, do not check the tensor that was sent: queued work sets
            # it to 0.
            total = answers[-1].sum().item()
            if total != 2 * (self.rounds + 1) * ELEMENTS:
                raise RuntimeError(
                    f"the sum of the other process's tensor is {total}, but must be "
                    f"{2 * (self.rounds + 1) * ELEMENTS}"
                )
            if not killed and tensor.sum().item() != (self.rounds + 1) * ELEMENTS:
                raise RuntimeError("the other process did not add to the shared tensor")
            del tensor
        if last:
            self._end(killed)
            # Imported memory must remain valid after its owner has ended.
            if any(one.sub_(total / ELEMENTS).any().item() for one in answers):
                raise RuntimeError("imported memory changed after its owner ended")
        answers.clear()
        after = _allocated()
        if after != before:
            raise RuntimeError(f"{after - before:,} shared bytes were not released")
        if last:
            self._start()

    def _start(self) -> None:
        self._inbox, self._outbox = self._context.Queue(), self._context.Queue()
        self._process = self._context.Process(
            target=serve, args=(self._inbox, self._outbox), daemon=True
        )
        self._process.start()
        # The first message also starts the queue's thread here, so that the number of threads is
        # the same after each round.
        self._inbox.put(torch.get_num_threads())
        self.started += 1
        self.rounds = 0

    def _answer(self) -> torch.Tensor:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                answer: torch.Tensor = self._outbox.get(timeout=1)
                return answer
            except queue.Empty:
                self._require_alive()
        raise RuntimeError(f"the other process did not answer within {PATIENCE:g} s")

    def _require_alive(self) -> None:
        if not self._process.is_alive():
            raise RuntimeError(f"the other process ended: status {self._process.exitcode}")

    def _end(self, killed: bool) -> None:
        process, self._process = self._process, None
        if not killed:
            self._inbox.put(None)
            process.join(PATIENCE)
        status = process.exitcode  # None if the process is alive
        process.kill()
        process.join()
        process.close()
        for one in (self._inbox, self._outbox):
            one.close()
            one.join_thread()
        del self._inbox, self._outbox
        if status != (None if killed else 0):
            raise RuntimeError(f"the other process ended with an unexpected status: {status}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            with contextlib.suppress(*([RuntimeError] if error else [])):
                self._end(killed=error is not None)


def _allocated() -> int:
    """Releases unused shared memory. Returns the number of bytes in tensors on all devices."""
    gc.collect()
    torch.openreg.ipc_collect()
    return sum(
        torch.openreg.memory_allocated(index) for index in range(torch.openreg.device_count())
    )
