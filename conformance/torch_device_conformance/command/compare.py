# SPDX-License-Identifier: BSD-3-Clause
"""The command that compares two reports."""

from collections.abc import Sequence

from torch_device_conformance.command.flags import Flags, existing
from torch_device_conformance.report.difference import difference, text
from torch_device_conformance.report.report import BadReport, load


def main(argv: Sequence[str]) -> int:
    """Runs the command. Returns the exit status: 1 if a verdict got worse, otherwise 0."""
    flags = Flags(
        " diff", "Lists what got worse and what got better. Exit status: 1 if something got worse."
    )
    flags.add_argument("before", type=existing, help="report.json of the first run")
    flags.add_argument("after", type=existing, help="report.json of the second run")
    options = flags.parse_args(argv)
    try:
        found = difference(load(options.before), load(options.after))
    except BadReport as error:
        flags.error(str(error))
    print(text(found))
    return int(bool(found.regressions))
