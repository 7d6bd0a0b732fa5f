# SPDX-License-Identifier: BSD-3-Clause
"""Parses the command line flags of examples and benchmarks; reports a wrong flag in one line."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import torch

PICTURES = frozenset({".png", ".svg", ".pdf"})


class Help(argparse.ArgumentDefaultsHelpFormatter):
    """A help formatter that shows only informative default values."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, False, ""):
            return action.help
        return super()._get_help_string(action)


class Flags(argparse.ArgumentParser):
    """A parser that reports an error in one line and shows default values in its help.

    Args:
        prog: the program's name.
        description: what the program does.
        epilog: the text at the end of the help.
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
        """Prints the message and exits with status 2."""
        self.exit(2, f"{self.prog}: {message} (--help lists the flags)\n")


def device(text: str) -> torch.device:
    """Returns the device with the given name.

    Raises:
        argparse.ArgumentTypeError: if there is no such device; the message lists the existing ones.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    counts = {"cpu": 1}
    hint = "; check that torch_openreg is installed and TORCH_DEVICE_BACKEND_AUTOLOAD is not 0"
    if accelerator is not None:
        counts[accelerator.type] = torch.accelerator.device_count()
        hint = ""
    try:
        chosen = torch.device(text)
    except RuntimeError:
        chosen = torch.device("meta")  # the text is not a device name; the error is raised below
    if (chosen.index or 0) < counts.get(chosen.type, 0):
        return chosen
    found = ", ".join(f"{kind} ({count})" for kind, count in counts.items())
    raise argparse.ArgumentTypeError(f"there is no device {text!r}, only {found}{hint}")


def whole_number(least: int) -> Callable[[str], int]:
    """Returns the parser of a flag whose value is an integer of at least `least`."""

    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least {least}")
        return int(text)

    return number


def output(text: str) -> Path:
    """Returns the absolute path of a file that can be written.

    `bazel run` starts a program in another folder. Therefore a relative path is resolved from the
    folder in which the user typed the command.

    Raises:
        argparse.ArgumentTypeError: if the file cannot be written.
    """
    path = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), text).absolute()
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{path} cannot be written")
    return path


def picture(text: str) -> Path | None:
    """Returns the path of an image file, as `output` does, or None for "none".

    Raises:
        argparse.ArgumentTypeError: if the file cannot be written, or its suffix is not in PICTURES.
    """
    if text == "none":
        return None
    path = output(text)
    if path.suffix not in PICTURES:
        kinds = ", ".join(sorted(PICTURES))
        raise argparse.ArgumentTypeError(f"{text!r} must end in one of {kinds}, or be 'none'")
    return path
