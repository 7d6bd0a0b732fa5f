# SPDX-License-Identifier: BSD-3-Clause
"""The command that writes the table "what works" to a README, or checks the existing table."""

import re
from collections.abc import Sequence
from pathlib import Path

from torch_device_conformance.command.flags import Flags, existing
from torch_device_conformance.report.markdown import works
from torch_device_conformance.report.report import BadReport, load

BEGIN = "<!-- conformance: begin -->"
END = "<!-- conformance: end -->"


def main(argv: Sequence[str]) -> int:
    """Runs the command. With --check, returns 1 if the file's table differs from the report's."""
    flags = Flags(" table", f"Writes a report's table between {BEGIN} and {END} in a file.")
    flags.add_argument("report", type=existing, help="report.json")
    flags.add_argument("file", type=existing, help="Markdown file that contains both lines")
    flags.add_argument(
        "--check", action="store_true", help="fail if the table differs, instead of writing it"
    )
    options = flags.parse_args(argv)
    path: Path = options.file
    text = path.read_text()
    try:
        table = works(load(options.report))
    except BadReport as error:
        flags.error(str(error))
    found = re.search(f"{re.escape(BEGIN)}\n(.*?){re.escape(END)}", text, re.DOTALL)
    if not found:
        flags.error(f"{path} must contain the lines {BEGIN} and {END}, in this order")
    new = f"{text[: found.start(1)]}{table}\n{text[found.end(1) :]}"
    if options.check:
        if new != text:
            print(f"{path} is not current; run without --check to replace its table with:\n{table}")
        return int(new != text)
    path.write_text(new)
    return 0
