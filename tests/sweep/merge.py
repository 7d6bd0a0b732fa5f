# SPDX-License-Identifier: BSD-3-Clause
"""Merges files of the sweep into one Markdown table."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.sweep import known
from tests.sweep.outcome import Case, Outcome
from tests.sweep.record import load
from tests.sweep.summary import table
from tools.flags.flags import Flags


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table.

    Returns:
        0 if every outcome is expected, otherwise 1.
    """
    parser = Flags("merge", __doc__, "Exit status: 0 if every outcome is expected, 1 if not.")
    parser.add_argument("files", nargs="+", metavar="FILE", help="output of --json of a sweep")
    outcomes: dict[Case, Outcome] = {}
    try:
        for name in parser.parse_args(argv).files:
            path = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), name)
            outcomes |= {outcome.case: outcome for outcome in load(path)}
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(table(list(outcomes.values())))
    return int(any(map(known.surprising, outcomes.values())))


if __name__ == "__main__":
    sys.exit(main())
