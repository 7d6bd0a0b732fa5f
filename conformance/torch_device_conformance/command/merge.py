# SPDX-License-Identifier: BSD-3-Clause
"""The command that merges the shards of a run into one report."""

from collections.abc import Sequence
from pathlib import Path

from torch_device_conformance.command.files import write
from torch_device_conformance.command.flags import Flags, existing
from torch_device_conformance.command.run import conclusion, status, waiver_flags, waivers_of
from torch_device_conformance.execution.plan import cases
from torch_device_conformance.report.report import BadReport, Report, complete, load

# Fields of the heading that must be equal in all shards of a run.
COMMON = ("device", "tier", "seed", "modes")


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns the exit status that a single run of all cases would have."""
    flags = Flags(" merge", "Merges the shards of a run into one report.")
    flags.add_argument("parts", type=existing, nargs="+", help="report.json of each shard")
    flags.add_argument("--output", type=Path, default=Path("conformance"), metavar="DIR")
    waiver_flags(flags)
    options = flags.parse_args(argv)
    try:
        parts = [load(path) for path in options.parts]
    except BadReport as error:
        flags.error(str(error))
    waivers = waivers_of(flags, options)
    first = parts[0].heading
    for path, part in zip(options.parts, parts, strict=True):
        for key in COMMON:
            if part.heading.get(key) != first.get(key):
                flags.error(
                    f"cannot merge {path}: its {key} is {part.heading.get(key)!r}, "
                    f"but that of {options.parts[0]} is {first.get(key)!r}"
                )
    heading = {**first, "shard": "1/1", "seconds": sum(p.heading.get("seconds", 0) for p in parts)}
    verdicts = [verdict for part in parts for verdict in part.verdicts.values()]
    known = cases(str(first["tier"])) if first["tier"] in ("quick", "standard", "full") else ()
    # cases() does not list the cases of --modes; the verdicts of the shards do.
    every = dict.fromkeys([*known, *(verdict.case for verdict in verdicts)])
    report = Report(heading, complete(every, verdicts))
    options.output.mkdir(parents=True, exist_ok=True)
    write(options.output, report, waivers)
    print(conclusion(report, waivers, options.output))
    return status(report, waivers)
