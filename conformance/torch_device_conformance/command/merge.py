# SPDX-License-Identifier: BSD-3-Clause
"""The command that merges the reports of a run's shards into one report.

The merged report contains every case of the run. If a shard is missing, its cases have the verdict
"not-run", which fails the run.
"""

from collections.abc import Sequence
from pathlib import Path

from torch_device_conformance.command.files import write
from torch_device_conformance.command.flags import Flags, existing, shard
from torch_device_conformance.command.run import (
    chosen,
    conclusion,
    status,
    waiver_flags,
    waivers_of,
)
from torch_device_conformance.execution.plan import TIERS
from torch_device_conformance.mode.modes import BadModes
from torch_device_conformance.report.report import BadReport, Report, complete, load

# Fields of the heading that must be the same in all shards of a run.
COMMON = ("device", "tier", "only", "seed", "modes")


def main(argv: Sequence[str]) -> int:
    """Runs the command. Returns the exit status of a single run of all cases."""
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
    if first["tier"] not in TIERS:
        flags.error(f"cannot merge {options.parts[0]}: its tier {first['tier']!r} has no shards")
    try:
        todo = chosen(first["tier"], first.get("modes", ()), first.get("only", ()), (1, 1))
    except BadModes as error:
        flags.error(f"cannot list the cases of {options.parts[0]}: {error}")
    heading = {**first, "shard": "1/1", "seconds": sum(p.heading.get("seconds", 0) for p in parts)}
    verdicts = [verdict for part in parts for verdict in part.verdicts.values()]
    report = Report(heading, complete(todo, verdicts))
    options.output.mkdir(parents=True, exist_ok=True)
    write(options.output, report, waivers)
    print(conclusion(report, waivers, options.output))
    missing = absent([str(part.heading["shard"]) for part in parts])
    if missing:
        print(f"missing shards: {', '.join(missing)}")
    return status(report, waivers)


def absent(given: Sequence[str]) -> list[str]:
    """Returns the shards of the run that were not given, for example "2/4"."""
    _, count = shard(given[0])
    return [name for number in range(1, count + 1) if (name := f"{number}/{count}") not in given]
