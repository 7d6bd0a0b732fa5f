# SPDX-License-Identifier: BSD-3-Clause
"""The flags of the program: one clear line for a wrong one."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn


class Flags(argparse.ArgumentParser):
    """A parser that says in one line what is wrong."""

    def __init__(self, program: str, description: str) -> None:
        super().__init__(
            prog=f"python -m torch_device_conformance{program}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2."""
        self.exit(2, f"torch_device_conformance: {message} (--help lists the flags)\n")


def whole_number(least: int) -> Callable[[str], int]:
    """Makes the type of a flag: a whole number of at least that size."""

    def number(text: str) -> int:
        if not re.fullmatch(r"[0-9]+", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return number


def shard(text: str) -> tuple[int, int]:
    """Two numbers: I/N, the I-th of N parts."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is no shard: 1/4 is the first of four")
    return int(found[1]), int(found[2])


def existing(text: str) -> Path:
    """The path of a file that exists."""
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return path
