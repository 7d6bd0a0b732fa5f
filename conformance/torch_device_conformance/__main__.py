# SPDX-License-Identifier: BSD-3-Clause
"""The program: python -m torch_device_conformance --help."""

import sys

from torch_device_conformance.command import compare, merge, model, run, table

# This must come before any import of torch: this process must not load the device.
from torch_device_conformance.subject import preloaded  # noqa: F401

COMMANDS = {"diff": compare.main, "merge": merge.main, "model": model.main, "table": table.main}


def main(argv: list[str]) -> int:
    """Runs the command that the first argument names; without one, tests a device."""
    if argv and argv[0] in COMMANDS:
        return COMMANDS[argv[0]](argv[1:])
    return run.main(argv)


def program() -> int:
    """The entry point of the installed program."""
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(program())
