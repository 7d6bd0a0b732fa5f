# SPDX-License-Identifier: BSD-3-Clause
"""Another process that borrows memory of the device, for the soak.

One process serves many rounds, as starting it takes seconds. When its rounds are over it ends by
itself, or is killed while it has borrowed memory and work of its own is queued on it; another one
starts at once, and gets ready while the soak goes on.
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

PATIENCE = 100.0  # seconds until a process counts as hanging; to start is some of them
ELEMENTS = 1 << 16  # of a tensor that is lent: 256 KiB
NAP = 100_000_000  # nanoseconds: work that a kill interrupts


def borrow(inbox: Any, outbox: Any) -> None:
    """Be the other process: answer until there is a None.

    Args:
        inbox: a queue of the number of intra-op threads, then of pairs: a tensor, to which 1 is
            added, and whether to keep it and queue work on it that takes a while.
        outbox: a queue of answers: a tensor of this process, twice the other.
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
    parent.join()  # at once, if it is killed; else it has ended this process before
    os._exit(1)


class Borrower:
    """The process, and what a round does with it. Ends with the ``with`` block.

    Args:
        lifetime: rounds that one process serves.
    """

    def __init__(self, lifetime: int = 50) -> None:
        self.lifetime = lifetime
        self.started = 0
        self.rounds = 0  # of the process that lives
        self._context = torch.multiprocessing.get_context("spawn")
        self._process: Any = None

    def share(self) -> None:
        """Lend tensors of each device, borrow the answers, and have the memory back.

        Raises:
            RuntimeError: if a value is wrong, memory does not come back, or the process fails.
        """
        if self._process is None:
            self._start()
        self._require_alive()  # what nobody reads keeps its memory
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
            # Not the tensor itself when the process is to be killed: then it is being set to 0.
            total = answers[-1].sum().item()
            if total != 2 * (self.rounds + 1) * ELEMENTS:
                raise RuntimeError(f"the other process's tensor adds up to {total}")
            if not killed and tensor.sum().item() != (self.rounds + 1) * ELEMENTS:
                raise RuntimeError("the other process added to something else")
            del tensor
        if last:
            self._end(killed)
            # What was borrowed outlives its owner.
            if any(one.sub_(total / ELEMENTS).any().item() for one in answers):
                raise RuntimeError("memory changed when its owner ended")
        answers.clear()
        after = _allocated()
        if after != before:
            raise RuntimeError(f"{after - before:,} bytes that were lent did not come back")
        if last:
            self._start()

    def _start(self) -> None:
        self._inbox, self._outbox = self._context.Queue(), self._context.Queue()
        self._process = self._context.Process(
            target=borrow, args=(self._inbox, self._outbox), daemon=True
        )
        self._process.start()
        # The first message also starts the queue's thread: each round ends with as many threads.
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
        raise RuntimeError(f"the other process gave no answer within {PATIENCE:g} s")

    def _require_alive(self) -> None:
        if not self._process.is_alive():
            raise RuntimeError(f"the other process ended: status {self._process.exitcode}")

    def _end(self, killed: bool) -> None:
        process, self._process = self._process, None
        if not killed:
            self._inbox.put(None)
            process.join(PATIENCE)
        status = process.exitcode  # None as long as it lives
        process.kill()
        process.join()
        process.close()
        for one in (self._inbox, self._outbox):
            one.close()
            one.join_thread()
        del self._inbox, self._outbox
        if status != (None if killed else 0):
            raise RuntimeError(f"the other process did not end as it should: status {status}")

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
    """Bytes in tensors of all devices, when what was lent and is used no more has come back."""
    gc.collect()
    torch.openreg.ipc_collect()
    return sum(
        torch.openreg.memory_allocated(index) for index in range(torch.openreg.device_count())
    )
