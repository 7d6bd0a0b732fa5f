# SPDX-License-Identifier: BSD-3-Clause
"""Runs cases in processes. A crash or hang becomes the verdict of its case, and the run continues.

One thread per process hands out cases and collects verdicts. A process is replaced if it died or
did not answer in time. It is also replaced after a fixed number of cases, to limit how many later
cases an earlier one can affect.
"""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch_device_conformance.contract.rows import rows
from torch_device_conformance.execution.worker import Died, Silent, Worker
from torch_device_conformance.verdict.verdict import CRASH, HANG, Case, Verdict

# Number of cases after which a process is replaced.
SHARD = 250


@dataclass(frozen=True)
class Limits:
    """The limits of a run.

    Attributes:
        jobs: number of worker processes.
        seconds: time limit for a case. Contract rows have their own limits.
    """

    jobs: int = 2
    seconds: float = 300.0


def groups(cases: Sequence[Case]) -> list[list[Case]]:
    """Groups the cases.

    The cases of a contract area form one group; every other case is a group of its own.
    """
    areas: dict[str, list[Case]] = {}
    rest = []
    for case in cases:
        if case.suite == "contract":
            areas.setdefault(case.mode, []).append(case)
        else:
            rest.append([case])
    return [*areas.values(), *rest]


def run(
    cases: Sequence[Case],
    limits: Limits,
    prepare: Callable[..., Callable[[Case], Iterator[Verdict]]],
    *arguments: Any,
) -> Iterator[Verdict]:
    """Yields a verdict for each case as soon as it is available.

    Args:
        cases: the cases to run.
        limits: limits of the run.
        prepare: function that returns the function that judges a case. Called in a worker.
        *arguments: arguments of prepare.

    Raises:
        Died: a process ended before it judged a case, because the subject could not be loaded.
    """
    waiting: queue.SimpleQueue[Sequence[Case]] = queue.SimpleQueue()
    done: queue.SimpleQueue[Verdict | BaseException] = queue.SimpleQueue()
    stop = threading.Event()
    for group in groups(cases):
        waiting.put(group)

    def work() -> None:
        try:
            _run_groups(waiting, limits, done.put, stop, prepare, *arguments)
        except BaseException as error:  # otherwise run() would wait forever
            done.put(error)

    for _ in range(min(limits.jobs, len(cases))):
        threading.Thread(target=work, daemon=True).start()
    try:
        for _ in cases:
            verdict = done.get()
            if isinstance(verdict, BaseException):
                raise verdict
            yield verdict
    finally:
        stop.set()


def _run_groups(
    waiting: queue.SimpleQueue[Sequence[Case]],
    limits: Limits,
    report: Callable[[Verdict], None],
    stop: threading.Event,
    prepare: Callable[..., Callable[[Case], Iterator[Verdict]]],
    *arguments: Any,
) -> None:
    worker: Worker[Case, Verdict] | None = None
    served = 0
    try:
        while True:
            try:
                group = waiting.get_nowait()
            except queue.Empty:
                return
            # Each contract area runs in a separate process.
            if worker and (served >= SHARD or group[0].suite == "contract"):
                worker.close()
                worker = None
            for case in group:
                if stop.is_set():
                    return
                if worker is None:
                    worker, served = Worker(prepare, *arguments, preloaded=True), 0
                worker, verdict = _ask(worker, case, limits)
                served = SHARD if case.suite == "contract" else served + 1
                report(verdict)
    finally:
        if worker:
            worker.close()


def _ask(
    worker: Worker[Case, Verdict], case: Case, limits: Limits
) -> tuple[Worker[Case, Verdict] | None, Verdict]:
    """Asks a worker for a verdict. Returns the worker, or None if it has ended, and the verdict.

    If the worker crashed or hung after it had judged the case, while it determined the routes of
    its operators, that verdict counts: torch's execution trace crashes on some sparse tensors.
    """
    row = rows().get(case)
    seconds = row.seconds if row else limits.seconds
    required = row.required if row else True
    try:
        return worker, worker.ask(case, seconds)
    except Died as died:
        if not worker.prepared:
            raise
        return None, died.answer or Verdict(
            case, CRASH, died.cause, stack=died.last_words, required=required
        )
    except Silent as silent:
        return None, silent.answer or Verdict(
            case, HANG, str(silent), stack=silent.stacks, required=required, seconds=seconds
        )
    except RuntimeError as error:  # an exception in the kit, not in the subject
        return worker, Verdict(case, CRASH, f"error in the kit: {error}", required=required)
