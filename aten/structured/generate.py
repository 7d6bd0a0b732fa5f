# SPDX-License-Identifier: BSD-3-Clause
"""Generates the device's C++ kernels for the operators listed in operators.yaml.

The operator list of the installed torchgen contains the signature of each operator and the class
that implements the operator on the CPU. The output depends on nothing else, so it is reproducible.

  generate.py kernels --operators operators.yaml --shards 7 --output DIR    DIR/kernels_0.cc ...
  generate.py table --output structured_table.cc                            for the boxed fallback
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from aten.structured.operator_list import ListError, read_entries
from aten.structured.source_file import write_shards, write_table
from aten.structured.torch_operators import Torch


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    kernels = commands.add_parser("kernels", help="write the kernels of the listed operators")
    kernels.add_argument("--operators", type=pathlib.Path, required=True, help="operators.yaml")
    kernels.add_argument("--shards", type=int, required=True, help="number of files")
    kernels.add_argument("--output", type=pathlib.Path, required=True, help="folder of the files")
    table = commands.add_parser("table", help="write the table of structured operators")
    table.add_argument("--output", type=pathlib.Path, required=True, help="the file")
    options = parser.parse_args(arguments)

    torch = Torch()
    if options.command == "table":
        options.output.write_text(write_table(torch))
        return 0
    try:
        entries = read_entries(options.operators.read_text(), torch)
    except ListError as error:
        print(f"{options.operators}: {error}", file=sys.stderr)
        return 1
    for number, text in enumerate(write_shards(entries, torch, options.shards)):
        (options.output / f"kernels_{number}.cc").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
