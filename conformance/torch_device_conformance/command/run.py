# SPDX-License-Identifier: BSD-3-Clause
"""The command that tests a device and writes a report."""

import argparse
import datetime
import fnmatch
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch_device_conformance.command.files import write
from torch_device_conformance.command.flags import Flags, existing, shard, whole_number
from torch_device_conformance.execution.judge import Settings, prepare, prepare_description
from torch_device_conformance.execution.plan import TIERS, cases
from torch_device_conformance.execution.runner import Limits, run
from torch_device_conformance.execution.worker import Died, Silent, Worker
from torch_device_conformance.mode.modes import BadModes
from torch_device_conformance.report import waivers as waivers_file
from torch_device_conformance.report.generic_tests import configuration
from torch_device_conformance.report.markdown import works
from torch_device_conformance.report.report import BadReport, Journal, Report, complete
from torch_device_conformance.report.waivers import Waivers, failure
from torch_device_conformance.subject.subject import NoSubject, Subject
from torch_device_conformance.verdict.verdict import NOT_RUN, Case, Verdict
from tqdm import tqdm

DESCRIPTION = """Tests a PyTorch device and reports what works, with evidence.

  python -m torch_device_conformance --device npu
  python -m torch_device_conformance --device npu --only 'op/*/float32/add'
  python -m torch_device_conformance --device npu --tier full --shard 1/4 --resume
  python -m torch_device_conformance diff BEFORE.json AFTER.json
  python -m torch_device_conformance merge PART.json... --output DIR
  python -m torch_device_conformance model FILE [--device npu]
  python -m torch_device_conformance table REPORT.json README.md [--check]

Exit status: 0 if nothing is wrong, 1 if something is wrong or was not run, 2 for a wrong flag,
3 if the device cannot be used.
"""


# The minimum number of seconds between two progress lines if stderr is not a terminal.
BETWEEN_LINES = 60.0

# The maximum number of operators that --perf prints. The slowest operators are printed first.
SLOWEST = 15


def parser() -> Flags:
    """Returns the parser of the command's flags."""
    flags = Flags("", DESCRIPTION)
    flags.add_argument("--device", required=True, help="name of the device, such as npu or cpu")
    flags.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="module, or path of a .py file, that registers the device on import; may be repeated",
    )
    flags.add_argument(
        "--no-autoload",
        dest="autoload",
        action="store_false",
        help="do not load backends that are installed as entry points",
    )
    flags.add_argument(
        "--fallback-counter",
        default="",
        metavar="MODULE:FUNCTION",
        help="the backend's function that returns the number of fallbacks by operator",
    )
    tiers = "; ".join(f"{name}: {tier.purpose}" for name, tier in TIERS.items())
    flags.add_argument(
        "--tier", choices=list(TIERS), default="quick", help=f"{tiers} (default: quick)"
    )
    flags.add_argument(
        "--modes",
        action="append",
        default=[],
        metavar="MODULE",
        help="module, or path of a .py file, that adds modes to the tier full; may be repeated",
    )
    flags.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="CASE",
        help="run only the cases, of all tiers, that match this shell pattern; may be repeated",
    )
    flags.add_argument(
        "--shard", type=shard, default=(1, 1), metavar="I/N", help="run one of N parts"
    )
    flags.add_argument(
        "--seed",
        type=whole_number(0),
        default=0,
        help="seed for random operators and the samples of modules; torch fixes those of operators",
    )
    flags.add_argument("--jobs", type=whole_number(1), default=2, help="number of worker processes")
    flags.add_argument(
        "--timeout", type=whole_number(1), default=300, help="time limit for a case, in seconds"
    )
    flags.add_argument(
        "--minutes", type=whole_number(1), help="stop after this many minutes; --resume continues"
    )
    flags.add_argument(
        "--output",
        type=Path,
        default=Path("conformance"),
        metavar="DIR",
        help="folder for the report",
    )
    flags.add_argument(
        "--resume", action="store_true", help="keep the verdicts in DIR and run the other cases"
    )
    waiver_flags(flags)
    flags.add_argument(
        "--emit-test-config",
        type=Path,
        metavar="FILE",
        help="write the arguments for PrivateUse1TestBase.set_test_configs",
    )
    flags.add_argument(
        "--perf",
        action="store_true",
        help="time the operators that pass, on the device and on the CPU",
    )
    flags.add_argument("--list", action="store_true", help="only print the cases")
    return flags


def waiver_flags(flags: Flags) -> None:
    """Adds the flags that specify which verdicts fail a run."""
    flags.add_argument(
        "--waivers", type=existing, metavar="FILE", help="TOML file of accepted verdicts"
    )
    flags.add_argument(
        "--strict",
        action="store_true",
        help="also fail if something is missing or a waived case passes",
    )


def waivers_of(flags: Flags, options: argparse.Namespace) -> Waivers:
    """Loads the waiver file that a flag specifies. Ends the program if the file is invalid."""
    if not options.waivers:
        return Waivers(strict=options.strict)
    try:
        return waivers_file.load(options.waivers, options.strict)
    except waivers_file.BadWaivers as error:
        flags.error(str(error))


def chosen(
    tier: str, modes: Sequence[str], only: Sequence[str], part: tuple[int, int]
) -> list[Case]:
    """Selects the cases of a run.

    Args:
        tier: name of the tier.
        modes: modules that add modes.
        only: patterns that select cases from all tiers. If empty, all cases of `tier` are selected.
        part: (I, N) selects every N-th case, starting with the I-th.
    """
    found = cases(tier, tuple(modes))
    if only:
        everything = dict.fromkeys([*found, *cases("full", tuple(modes))])
        names = [name.strip() for name in only]
        found = [c for c in everything if any(fnmatch.fnmatchcase(str(c), n) for n in names)]
    number, parts = part
    return list(found)[number - 1 :: parts]


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns the exit status."""
    flags = parser()
    options = flags.parse_args(argv)
    subject = Subject(
        options.device, tuple(options.imports), options.autoload, options.fallback_counter
    )
    modes = tuple(options.modes)
    try:
        todo = chosen(options.tier, modes, options.only, options.shard)
    except BadModes as error:
        flags.error(str(error))
    if not todo:
        flags.error(f"no case matches {', '.join(options.only)}")
    if modes and options.tier != "full" and not options.only:
        flags.error(
            f"the tier {options.tier} has no cases of --modes; add --tier full, or select them "
            "with --only"
        )
    if options.list:
        print("\n".join(map(str, todo)))
        return 0
    waivers = waivers_of(flags, options)
    try:
        description = describe(subject)
    except NoSubject as error:
        print(f"torch_device_conformance: {error}", file=sys.stderr)
        return 3
    heading = {
        "device": options.device,
        "command": f"python -m torch_device_conformance {subject.command()} "
        f"{''.join(f'--modes {name} ' for name in modes)}"
        f"--tier {options.tier} --seed {options.seed}",
        "tier": options.tier,
        "only": options.only,
        "seed": options.seed,
        "modes": options.modes,
        "shard": "/".join(map(str, options.shard)),
        "description": description,
    }
    options.output.mkdir(parents=True, exist_ok=True)
    journal = Journal(options.output / "verdicts.jsonl", heading)
    try:
        have = journal.read() if options.resume else []
    except BadReport as error:
        flags.error(f"cannot resume: {error}")
    wanted = set(todo)
    have = [v for v in have if v.case in wanted]
    journal.start(have)
    begun = time.monotonic()
    settings = Settings(options.tier, options.seed, threads(options.jobs), options.perf, modes)
    limits = Limits(options.jobs, options.timeout)
    found = list(have)
    late = 60 * options.minutes if options.minutes else float("inf")
    left = [case for case in rest(todo, have) if not waivers.leaves_out(case)]
    verdicts = run(left, limits, prepare, subject, settings)
    for verdict in progress(verdicts, len(left) + len(have), found, waivers):
        journal.add(verdict)
        found.append(verdict)
        if time.monotonic() - begun > late:
            break
    full = {
        **heading,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - begun, 1),
    }
    report = Report(full, complete(todo, found))
    write(options.output, report, waivers)
    if options.emit_test_config:
        source = configuration(report, options.emit_test_config.stem)
        options.emit_test_config.write_text(source)
    print(conclusion(report, waivers, options.output))
    return status(report, waivers)


def describe(subject: Subject) -> dict[str, Any]:
    """Returns the subject's description for the heading of a report.

    Raises:
        NoSubject: the subject cannot be loaded.
    """
    seconds = 300
    try:
        with Worker[None, dict[str, Any]](prepare_description, subject, preloaded=True) as worker:
            return worker.ask(None, seconds)
    except Silent as silent:
        raise NoSubject(
            f"the process that describes the device did not answer within {seconds} s; "
            f"the stacks of its threads:\n{silent.stacks}"
        ) from None
    except Died as died:
        _, found, reason = died.last_words.rpartition("NoSubject: ")
        if not found:
            reason = f"the process that loads the backend: {died.cause}\n{died.last_words}".strip()
        raise NoSubject(reason) from None


def rest(todo: Sequence[Case], have: Sequence[Verdict]) -> list[Case]:
    """Returns the cases in `todo` that have no verdict in `have`."""
    done = {verdict.case for verdict in have}
    return [case for case in todo if case not in done]


def threads(jobs: int) -> int:
    """Returns the number of CPU threads for each of `jobs` worker processes."""
    return max(1, len(os.sched_getaffinity(0)) // jobs)


def progress(
    verdicts: Iterator[Verdict], total: int, have: Sequence[Verdict], waivers: Waivers
) -> Iterator[Verdict]:
    """Yields the verdicts. Displays how many have arrived, and how many of these fail the run.

    Displays a progress bar on a terminal. Otherwise, prints at most one line per minute.
    """
    failed = sum(map(waivers.fails, have))
    printed = time.monotonic()
    with tqdm(total=total, initial=len(have), unit="case", disable=None) as bar:
        for done, verdict in enumerate(verdicts, len(have) + 1):
            failed += waivers.fails(verdict)
            bar.set_postfix_str(f"{failed} failed, {verdict.case}"[:60], refresh=False)
            bar.update()
            if bar.disable and time.monotonic() - printed >= BETWEEN_LINES:
                printed = time.monotonic()
                print(f"{done} of {total} cases, {failed} failed", file=sys.stderr, flush=True)
            yield verdict


def conclusion(report: Report, waivers: Waivers, folder: Path, most: int = 30) -> str:
    """Returns the text that the program prints after a run. It lists at most `most` failures."""
    lines = [works(report), ""]
    failures = waivers.failures(report.verdicts.values())
    failed = [verdict for verdict in failures if verdict.verdict != NOT_RUN]
    for verdict in failed[:most]:
        lines.append(f"{verdict.verdict:<16} {verdict.case}  {failure(verdict)[:160]}")
    if len(failed) > most:
        lines.append(f"and {len(failed) - most} more")
    lines += waivers.complaints(report.verdicts.values())
    slow = sorted(report.verdicts.values(), key=lambda v: -v.slowdown)[:SLOWEST]
    for verdict in slow:
        if verdict.slowdown > 0:
            lines.append(
                f"{verdict.slowdown:8.1f} times the CPU's time  {verdict.case}  "
                f"{verdict.device_us:.1f} us on the device, {verdict.cpu_us:.1f} us on the CPU"
            )
    passed, of = report.required()
    waived = sum(waivers.reason(verdict) is not None for verdict in report.verdicts.values())
    parts = [f"required rows: {passed} of {of}", f"failed: {len(failed)}"]
    parts += [f"waived: {waived}"] if waived else []
    lines.append("; ".join([*parts, f"report: {folder}"]))
    if len(failures) > len(failed):
        lines.append(f"{len(failures) - len(failed)} cases were not run; --resume runs them")
    return "\n".join(lines)


def status(report: Report, waivers: Waivers) -> int:
    """Returns the exit status: 1 if any verdict fails the run, otherwise 0."""
    return int(any(map(waivers.fails, report.verdicts.values())))
