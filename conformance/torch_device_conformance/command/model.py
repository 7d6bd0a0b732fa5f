# SPDX-License-Identifier: BSD-3-Clause
"""The command that tests the operators called by one model."""

import datetime
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from torch_device_conformance.command.files import write
from torch_device_conformance.command.flags import Flags, existing, whole_number
from torch_device_conformance.command.run import conclusion, describe, progress, status, threads
from torch_device_conformance.execution.judge import Settings
from torch_device_conformance.execution.runner import Limits, run
from torch_device_conformance.model.entries import cases, prepare
from torch_device_conformance.model.recording import BadModel, load, record, routes
from torch_device_conformance.report import report as report_file
from torch_device_conformance.report.markdown import table
from torch_device_conformance.report.report import BadReport, Report, complete
from torch_device_conformance.report.waivers import Waivers
from torch_device_conformance.subject.subject import NoSubject, Subject
from torch_device_conformance.verdict.verdict import FALLBACK, MISSING

DESCRIPTION = """Records the operator calls of a model and tests only these operators, dtypes and
shapes.

Without --device, the command only lists the operators. With --against, it shows how each operator
would be dispatched on the device that a report describes. The file defines model() and inputs(),
and may define loss(output) and optimizer(parameters).
"""


def main(argv: Sequence[str]) -> int:
    """Runs the command. The exit statuses are the same as those of a run of the kit."""
    flags = Flags(" model", DESCRIPTION)
    flags.add_argument("file", type=existing, help="Python file that defines the model")
    flags.add_argument("--device", help="name of the device")
    flags.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE")
    flags.add_argument("--no-autoload", dest="autoload", action="store_false")
    flags.add_argument("--fallback-counter", default="", metavar="MODULE:FUNCTION")
    flags.add_argument("--record-on", choices=("cpu", "meta"), default="cpu")
    flags.add_argument(
        "--against", type=existing, metavar="REPORT.json", help="report about the device"
    )
    flags.add_argument("--seed", type=whole_number(0), default=0)
    flags.add_argument("--jobs", type=whole_number(1), default=2)
    flags.add_argument("--timeout", type=whole_number(1), default=300)
    flags.add_argument("--output", type=Path, default=Path("conformance"), metavar="DIR")
    options = flags.parse_args(argv)
    try:
        recording = record(load(options.file), options.record_on)
        known = report_file.load(options.against).routes() if options.against else {}
    except (BadModel, BadReport) as error:
        flags.error(str(error))
    if not options.device:
        print(listing(routes(recording, known), bool(known)))
        return 0
    subject = Subject(
        options.device, tuple(options.imports), options.autoload, options.fallback_counter
    )
    try:
        description = describe(subject)
    except NoSubject as error:
        print(f"torch_device_conformance: {error}", file=sys.stderr)
        return 3
    begun = time.monotonic()
    todo = cases(recording)
    settings = Settings("full", options.seed, threads(options.jobs))
    limits = Limits(options.jobs, options.timeout)
    path = options.file.absolute()
    waivers = Waivers()
    verdicts = list(
        progress(
            run(todo, limits, prepare, subject, settings, recording, path),
            len(todo),
            [],
            waivers,
        )
    )
    heading = {
        "device": options.device,
        "command": f"python -m torch_device_conformance model {options.file} {subject.command()}",
        "tier": f"model {recording.name}",
        "seed": options.seed,
        "shard": "1/1",
        "description": description,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - begun, 1),
    }
    report = Report(heading, complete(todo, verdicts))
    options.output.mkdir(parents=True, exist_ok=True)
    write(options.output, report, waivers)
    print(listing(routes(recording, report.routes()), True))
    print()
    print(conclusion(report, waivers, options.output))
    return status(report, waivers)


def listing(found: Sequence[tuple[str, int, str]], known: bool) -> str:
    """Returns the operators of a model as text.

    Args:
        found: the name, the number of calls and the route of each operator.
        known: whether the routes are known; if so, counts the operators that the device would not
            run itself.
    """
    lines = [table(("operator", "calls", "on the device"), found)]
    if known:
        for way, words in ((FALLBACK, "would run on the CPU"), (MISSING, "have no kernel")):
            names = [name for name, _, route in found if route == way]
            line = f"{len(names)} of {len(found)} operators {words}"
            lines.append(f"{line}: {', '.join(names)}" if names else line)
    return "\n".join(lines)
