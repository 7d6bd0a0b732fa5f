# SPDX-License-Identifier: BSD-3-Clause
"""Command-line flags as every program here has them: one clear line for a wrong one."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import torch

PICTURES = frozenset({".png", ".svg", ".pdf"})


class Help(argparse.ArgumentDefaultsHelpFormatter):
    """Shows a default only where it says something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, False, ""):
            return action.help
        return super()._get_help_string(action)


class Flags(argparse.ArgumentParser):
    """A parser that says in one line what is wrong and shows defaults in its help.

    Args:
        prog: name of the program.
        description: what it does.
        epilog: the last words of the help.
    """

    def __init__(self, prog: str, description: str | None, epilog: str | None = None) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=Help,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2."""
        self.exit(2, f"{self.prog}: {message} (--help lists the flags)\n")


def device(text: str) -> torch.device:
    """The device of that name, if this machine has it.

    Raises:
        argparse.ArgumentTypeError: it has not; the message names those that it has.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    counts = {"cpu": 1}
    hint = "; is torch_openreg installed, and TORCH_DEVICE_BACKEND_AUTOLOAD not 0?"
    if accelerator is not None:
        counts[accelerator.type] = torch.accelerator.device_count()
        hint = ""
    try:
        chosen = torch.device(text)
    except RuntimeError:
        chosen = torch.device("meta")  # no device has this name: reported below
    if (chosen.index or 0) < counts.get(chosen.type, 0):
        return chosen
    found = ", ".join(f"{kind} ({count})" for kind, count in counts.items())
    raise argparse.ArgumentTypeError(f"no device {text!r} here, but {found}{hint}")


def whole_number(least: int) -> Callable[[str], int]:
    """Makes the type of a flag: a whole number of at least that size."""

    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return number


def output(text: str) -> Path:
    """The absolute path of a file that can be written.

    `bazel run` starts a program in a folder of its own: a relative path means the folder where
    the command was typed.
    """
    path = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), text).absolute()
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{path} cannot be written")
    return path


def picture(text: str) -> Path | None:
    """Like output, for a picture whose suffix is its format; None for "none"."""
    if text == "none":
        return None
    path = output(text)
    if path.suffix not in PICTURES:
        kinds = ", ".join(sorted(PICTURES))
        raise argparse.ArgumentTypeError(f"{text!r} ends in none of {kinds} (or is 'none')")
    return path
