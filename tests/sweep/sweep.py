# SPDX-License-Identifier: BSD-3-Clause
"""Runs torch's databases of operators, modules and optimizers on the device beside the CPU.

The score is the share of the entries that agree, among those that the CPU itself passes.
"""

import argparse
import json
import os
import queue
import re
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from tests.sweep.database import DATABASES, prepare
from tests.sweep.outcome import AGREES, CRASHED, TIMED_OUT, Outcome, cause
from tools.flags.flags import Flags, device, output, whole_number
from tools.worker.worker import Died, Silent, Worker

BOUND = 0.95


def sweep(
    names: Sequence[str],
    jobs: int,
    timeout: float,
    prepare: Callable[..., Callable[[str], Outcome]],
    *arguments: Any,
) -> Iterator[Outcome]:
    """Evaluates entries in sub-processes; one that dies or hangs is the outcome of its entry.

    Args:
        names: of the entries.
        jobs: sub-processes at a time.
        timeout: seconds that an entry may take.
        prepare: makes the function that evaluates an entry, in a sub-process.
        *arguments: of prepare.

    Yields:
        An outcome an entry, as they come.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    done: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)

    def work() -> None:
        worker: Worker[str, Outcome] | None = None
        try:
            while True:
                try:
                    name = waiting.get_nowait()
                except queue.Empty:
                    return
                worker = worker or Worker(prepare, *arguments)
                try:
                    done.put(worker.ask(name, timeout))
                except Died as died:
                    done.put(Outcome(name, CRASHED, message=str(died)))
                    worker = None
                except Silent as silent:
                    done.put(Outcome(name, TIMED_OUT, message=str(silent)))
                    worker = None
        except BaseException as error:  # else the reader would wait for ever
            done.put(error)
        finally:
            if worker:
                worker.close()

    for _ in range(min(jobs, len(names))):
        threading.Thread(target=work, daemon=True).start()
    for _ in names:
        outcome = done.get()
        if isinstance(outcome, BaseException):
            raise outcome
        yield outcome


def score(outcomes: Sequence[Outcome]) -> tuple[int, int]:
    """How many entries agree, and how many count."""
    counted = [o for o in outcomes if o.counts]
    return sum(o.status == AGREES for o in counted), len(counted)


def summary(outcomes: Sequence[Outcome]) -> str:
    """What failed, by cause; what does not count, and why; what was compared how; the score."""
    lines = []
    failed: dict[str, list[Outcome]] = defaultdict(list)
    left_out: dict[str, list[Outcome]] = defaultdict(list)
    for o in sorted(outcomes, key=lambda o: o.name):
        if not o.counts:
            left_out[o.status].append(o)
        elif o.status != AGREES:
            failed[cause(o)].append(o)
    for group in sorted(failed.values(), key=lambda group: -len(group)):
        lines.append(f"{len(group)} x {group[0].status}: {', '.join(o.name for o in group)}")
        lines += [f"    {line}" for line in group[0].message.splitlines()[:6]]
    for reason, group in left_out.items():
        lines.append(f"not counted, {reason}: {len(group)}")
        lines += [f"    {o.name}: {o.message.splitlines()[0]}" for o in group if o.message]
    for way, reason in (
        ("distribution", "random: metadata, and the distribution of 100 draws"),
        ("metadata", "uninitialized memory: metadata only"),
    ):
        names = sorted(o.name for o in outcomes if o.counts and o.compared == way)
        if names:
            lines.append(f"{reason}: {len(names)}\n    {', '.join(names)}")
    agree, count = score(outcomes)
    states = Counter(o.status for o in outcomes)
    lines.append(", ".join(f"{n} {status}" for status, n in states.most_common()))
    share = f"{agree / count:.1%}" if count else "nothing to compare"
    lines.append(
        f"score: {agree} of {count} entries agree with the CPU: {share} (bound {BOUND:.0%})"
    )
    return "\n".join(lines)


def document(outcomes: Sequence[Outcome], heading: dict[str, str]) -> dict[str, Any]:
    """The outcomes as objects of JSON."""
    agree, count = score(outcomes)
    found = [asdict(o) for o in sorted(outcomes, key=lambda o: o.name)]
    return {**heading, "agree": agree, "counted": count, "entries": found}


def save(path: Path, outcomes: Sequence[Outcome], heading: dict[str, str]) -> None:
    """Writes the outcomes; a reader never sees half of them."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(document(outcomes, heading), indent=1) + "\n")
    os.replace(part, path)


def saved(path: Path, heading: dict[str, str]) -> list[Outcome]:
    """Reads what a run before this one wrote.

    Raises:
        ValueError: the file is something else, or of another device, dtype or torch.
    """
    if not path.exists():
        return []
    content = dict(json.loads(path.read_text()))
    for key, value in heading.items():
        if content.get(key) != value:
            raise ValueError(f"{path} has {key} {content.get(key)!r}, this run {value!r}")
    return [Outcome(**entry) for entry in content["entries"]]


def dtype(text: str) -> str:
    """Name of a floating point or complex dtype."""
    found = getattr(torch, text, None)
    if not isinstance(found, torch.dtype):
        raise argparse.ArgumentTypeError(f"torch has no dtype {text!r}")
    return text


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the sweep.

    Returns:
        0 if the score reaches the bound, else 1.
    """
    parser = Flags("sweep", __doc__, "Exit status: 0 if the score reaches the bound, 1 if not.")
    parser.add_argument("--database", choices=DATABASES, default="op", help="what is swept")
    parser.add_argument("--device", type=device, default="openreg", help="to compare with the CPU")
    parser.add_argument("--dtype", type=dtype, default="float32", help="of the sample inputs")
    parser.add_argument(
        "--filter",
        type=pattern,
        default="",
        metavar="REGEX",
        help="run the entries whose name it finds",
    )
    parser.add_argument("--jobs", type=whole_number(1), default=2, help="sub-processes at a time")
    parser.add_argument(
        "--timeout", type=whole_number(1), default=300, help="seconds that one entry may take"
    )
    parser.add_argument(
        "--json", type=output, metavar="FILE", help="write all outcomes, as they come"
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep what the file of --json has, run the rest"
    )
    flags = parser.parse_args(argv)
    if flags.resume and not flags.json:
        parser.error("--resume needs --json")
    names = [name for name in DATABASES[flags.database]() if flags.filter.search(name)]
    if not names:
        parser.error(f"{flags.filter.pattern!r} finds none of the entries of {flags.database}_db")
    heading = {
        "database": flags.database,
        "device": str(flags.device),
        "dtype": flags.dtype,
        "torch": torch.__version__,
    }
    outcomes: list[Outcome] = []
    if flags.resume:
        try:
            outcomes = [o for o in saved(flags.json, heading) if o.name in set(names)]
        except (ValueError, KeyError, TypeError) as error:
            parser.error(f"cannot resume: {error}")
    have = {o.name for o in outcomes}
    rest = [name for name in names if name not in have]
    threads = max(1, len(os.sched_getaffinity(0)) // flags.jobs)
    with tqdm(total=len(names), initial=len(have), unit="entry", disable=None) as bar:
        for outcome in sweep(
            rest,
            flags.jobs,
            flags.timeout,
            prepare,
            flags.database,
            heading["device"],
            flags.dtype,
            threads,
        ):
            outcomes.append(outcome)
            if flags.json:
                save(flags.json, outcomes, heading)
            agree, count = score(outcomes)
            bar.set_postfix_str(f"{agree}/{count} {outcome.name}", refresh=False)
            bar.update()
    print(summary(outcomes))
    agree, count = score(outcomes)
    return int(agree < BOUND * count or not count)


if __name__ == "__main__":
    sys.exit(main())
