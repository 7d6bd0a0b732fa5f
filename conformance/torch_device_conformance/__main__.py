# SPDX-License-Identifier: BSD-3-Clause
"""The command-line program. `python -m torch_device_conformance --help` lists its flags."""

import sys

from torch_device_conformance.command import compare, merge, model, run, table

# This import must precede any import of torch. It disables autoload, because this process must not
# load the device.
from torch_device_conformance.subject import preloaded  # noqa: F401

COMMANDS = {"diff": compare.main, "merge": merge.main, "model": model.main, "table": table.main}


def main(argv: list[str]) -> int:
    """Runs the command named by the first argument. Without a command, tests a device."""
    if argv and argv[0] in COMMANDS:
        return COMMANDS[argv[0]](argv[1:])
    return run.main(argv)


def program() -> int:
    """Runs the installed program with the command-line arguments."""
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(program())
