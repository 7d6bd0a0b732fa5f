# SPDX-License-Identifier: BSD-3-Clause
"""The program's command-line parser and the types of its flags."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn


class Flags(argparse.ArgumentParser):
    """A parser that reports an invalid flag in one line, without the usage text."""

    def __init__(self, program: str, description: str) -> None:
        super().__init__(
            prog=f"python -m torch_device_conformance{program}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Prints the message and ends the program with exit status 2."""
        self.exit(2, f"torch_device_conformance: {message} (--help lists the flags)\n")


def whole_number(least: int) -> Callable[[str], int]:
    """Returns an argparse type that accepts integers of at least `least`."""

    def number(text: str) -> int:
        if not re.fullmatch(r"[0-9]+", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least {least}")
        return int(text)

    return number


def shard(text: str) -> tuple[int, int]:
    """Parses the text "I/N", which selects the I-th of N parts, into (I, N)."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a shard I/N with 1 <= I <= N; write 1/4 for the first of four"
        )
    return int(found[1]), int(found[2])


def existing(text: str) -> Path:
    """Parses the path of an existing file."""
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"file {text} does not exist")
    return path
