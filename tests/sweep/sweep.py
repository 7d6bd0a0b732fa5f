# SPDX-License-Identifier: BSD-3-Clause
"""Compares the device with the CPU on torch's databases of operators, modules and optimizers.

A case is one check of one entry with one dtype. The score is the share of cases that agree among
those that the CPU itself passes. known.py lists the exceptions.
"""

import argparse
import os
import queue
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from time import monotonic
from typing import Any

import torch
from torch_device_conformance.execution.worker import Died, Silent, Worker
from tqdm import tqdm

from tests.sweep import known
from tests.sweep.checks import CHECKS, DATABASES, DTYPES, cases, prepare
from tests.sweep.outcome import CRASHED, TIMED_OUT, Case, Outcome
from tests.sweep.record import load, save
from tests.sweep.summary import score, summary
from tools.flags.flags import Flags, device, output, whole_number

# Seconds between two writes of the outcomes.
WRITE_EVERY = 5.0


def sweep(
    todo: Sequence[Case],
    jobs: int,
    timeout: float,
    prepare: Callable[..., Callable[[Case], Outcome]],
    *arguments: Any,
) -> Iterator[Outcome]:
    """Evaluates cases in subprocesses. A crash or a hang is the outcome of its case.

    Args:
        todo: the cases to evaluate.
        jobs: number of subprocesses.
        timeout: time limit of a case in seconds.
        prepare: returns the function that evaluates a case; called in a subprocess.
        *arguments: arguments of prepare.

    Yields:
        An outcome for each case, as soon as it is available.
    """
    waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
    done: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
    for case in todo:
        waiting.put(case)

    def work() -> None:
        worker: Worker[Case, Outcome] | None = None
        try:
            while True:
                try:
                    case = waiting.get_nowait()
                except queue.Empty:
                    return
                worker = worker or Worker(prepare, *arguments)
                try:
                    done.put(worker.ask(case, timeout))
                except Died as died:
                    done.put(Outcome(case, CRASHED, message=str(died)))
                    worker = None
                except Silent as silent:
                    done.put(Outcome(case, TIMED_OUT, message=str(silent)))
                    worker = None
        except BaseException as error:  # otherwise the reader would wait forever
            done.put(error)
        finally:
            if worker:
                worker.close()

    for _ in range(min(jobs, len(todo))):
        threading.Thread(target=work, daemon=True).start()
    for _ in todo:
        outcome = done.get()
        if isinstance(outcome, BaseException):
            raise outcome
        yield outcome


def dtype(text: str) -> str:
    """Parses the name of a torch dtype."""
    if not isinstance(getattr(torch, text, None), torch.dtype):
        raise argparse.ArgumentTypeError(f"torch has no dtype {text!r}")
    return text


def several(
    everything: Collection[str], one: Callable[[str], str] | None = None
) -> Callable[[str], list[str]]:
    """Returns the type of a flag: names separated by commas, or "all".

    Args:
        everything: the names that "all" stands for.
        one: checks a name; by default a name must be in `everything`.
    """

    def known_name(text: str) -> str:
        if text not in everything:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(everything)}, all")
        return text

    def names(text: str) -> list[str]:
        return list(everything) if text == "all" else [*map(one or known_name, text.split(","))]

    return names


def shard(text: str) -> tuple[int, int]:
    """Parses I/N, the I-th of N parts."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a shard: write 1/4 for the first of four"
        )
    return int(found[1]), int(found[2])


def pattern(text: str) -> re.Pattern[str]:
    """Parses a regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the sweep.

    Returns:
        0 if every outcome is expected, otherwise 1.
    """
    parser = Flags(
        "sweep", __doc__, "Exit status: 0 if all cases were run and are as expected, 1 if not."
    )
    lists = "; several separated by commas, or all"
    parser.add_argument(
        "--database",
        type=several(DATABASES),
        default="op",
        metavar="NAMES",
        help=f"databases to sweep: {', '.join(DATABASES)}{lists}",
    )
    parser.add_argument(
        "--check",
        type=several(CHECKS),
        default="results",
        metavar="NAMES",
        help=f"checks to run: {', '.join(CHECKS)}{lists}",
    )
    parser.add_argument(
        "--dtype",
        type=several(DTYPES, dtype),
        default="float32",
        metavar="NAMES",
        help=f"dtypes of the sample inputs{lists}",
    )
    parser.add_argument(
        "--device", type=device, default="openreg", help="device to compare with the CPU"
    )
    parser.add_argument(
        "--filter",
        type=pattern,
        default="",
        metavar="REGEX",
        help="run the entries whose name matches",
    )
    parser.add_argument(
        "--shard",
        type=shard,
        default="1/1",
        metavar="I/N",
        help="run one of N parts, always the same cases",
    )
    parser.add_argument("--jobs", type=whole_number(1), default=2, help="number of subprocesses")
    parser.add_argument(
        "--timeout", type=whole_number(1), default=300, help="time limit of a case in seconds"
    )
    parser.add_argument(
        "--minutes", type=whole_number(1), help="stop after this time; --resume continues"
    )
    parser.add_argument(
        "--json", type=output, metavar="FILE", help="write all outcomes to FILE during the run"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep the outcomes in the file of --json, run the rest",
    )
    flags = parser.parse_args(argv)
    if flags.resume and not flags.json:
        parser.error("--resume needs --json")
    chosen = [
        case
        for case in cases(flags.database, flags.check, flags.dtype)
        if flags.filter.search(case.name) and known.reason(known.UNSUPPORTED, case) is None
    ]
    if not chosen:
        parser.error(f"{flags.filter.pattern!r} matches no entry with this check and dtype")
    part, parts = flags.shard
    chosen = chosen[part - 1 :: parts]
    heading = {"device": str(flags.device), "torch": torch.__version__}
    outcomes: list[Outcome] = []
    if flags.resume and flags.json.exists():
        try:
            wanted = set(chosen)
            outcomes = [o for o in load(flags.json, heading) if o.case in wanted]
        except ValueError as error:
            parser.error(f"cannot resume: {error}")
    have = {o.case for o in outcomes}
    rest = [case for case in chosen if case not in have]
    threads = max(1, len(os.sched_getaffinity(0)) // flags.jobs)
    start = written = monotonic()
    with tqdm(total=len(chosen), initial=len(have), unit="case", disable=None) as bar:
        for outcome in sweep(rest, flags.jobs, flags.timeout, prepare, heading["device"], threads):
            outcomes.append(outcome)
            now = monotonic()
            late = flags.minutes and now - start > 60 * flags.minutes
            if flags.json and (late or now - written > WRITE_EVERY):
                save(flags.json, outcomes, heading)
                written = now
            agree, count = score(outcomes)
            bar.set_postfix_str(f"{agree}/{count} {outcome.case}", refresh=False)
            bar.update()
            if late:
                break
    if flags.json:
        save(flags.json, outcomes, heading)
    print(summary(outcomes))
    left = len(chosen) - len(outcomes)
    if left:
        print(f"{left} cases are left; --resume runs them")
    return int(left > 0 or any(map(known.surprising, outcomes)))


if __name__ == "__main__":
    sys.exit(main())
