# SPDX-License-Identifier: BSD-3-Clause
"""Learns handwritten digits on a device, then on the CPU, and compares the two runs."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import torch
from tqdm import tqdm

from examples.digits.figure import FORMATS, draw
from examples.digits.training import BATCH, Digits, Record, train
from examples.digits.verdict import named, promises


class Arguments(argparse.ArgumentParser):
    """A parser that says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2."""
        self.exit(2, f"{self.prog}: {message} (--help lists the flags)\n")


def device(text: str) -> torch.device:
    """The device of that name, if this machine has it."""
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


def whole_number(text: str, least: int) -> int:
    """A number of at least that size."""
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return int(text)


def plot_path(text: str) -> Path | None:
    """Where to write the figure; None for "none".

    `bazel run` starts a program in a folder of its own: a relative path means the folder where
    the command was typed.
    """
    if text == "none":
        return None
    path = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), text).absolute()
    if path.suffix not in FORMATS:
        kinds = ", ".join(sorted(FORMATS))
        raise argparse.ArgumentTypeError(f"{text!r} ends in none of {kinds} (or 'none')")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{path} cannot be written")
    return path


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Reads the flags; ends the program if one is wrong."""
    parser = Arguments(
        prog="digits",
        description=__doc__,
        epilog="Exit status: 0 if every promise was kept, 1 if not, 2 for a wrong flag.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--device", type=device, default="openreg", help="where to train first")
    parser.add_argument(
        "--epochs",
        type=lambda text: whole_number(text, 1),
        default=20,
        help="passes over the 1,437 training images",
    )
    parser.add_argument(
        "--seed",
        type=lambda text: whole_number(text, 0),
        default=0,
        help="of the split of the images, the initial weights and the batches",
    )
    parser.add_argument(
        "--plot",
        type=plot_path,
        default="digits.png",
        help="figure to write (.png, .svg, .pdf), or 'none'",
    )
    return parser.parse_args(argv)


def run(digits: Digits, where: torch.device, epochs: int, seed: int) -> Record:
    """Trains under a progress bar, if a person is watching."""
    steps = epochs * (len(digits.train) // BATCH)
    with tqdm(total=steps, desc=f"training on {where}", unit="step", disable=None) as bar:

        def progress(done: int, loss: float) -> None:
            bar.set_postfix_str(f"loss {loss:.4f}", refresh=False)
            bar.update(done)

        return train(digits, where, epochs, seed, progress)


def report(record: Record, name: str, out: int = 14) -> None:
    """Prints what a run cost."""
    steps = len(record.losses)
    print(f"{name}:")
    print(f"  {'training':{out}} {record.seconds:.2f} s, {steps} steps", end="")
    print(f", {1e3 * record.seconds / steps:.2f} ms a step")
    print(f"  {'test accuracy':{out}} {record.accuracy:.2%}")
    if record.peak_bytes is not None:
        print(f"  {'memory peak':{out}} {record.peak_bytes / 2**20:.2f} MiB")
    if record.fallbacks is not None:
        calls = sorted(record.fallbacks.items(), key=lambda item: -item[1])
        print(f"  {'fallbacks':{out}} {sum(record.fallbacks.values())}")
        for operator, count in calls:
            print(f"    {operator}: {count}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the example.

    Returns:
        0 if every promise was kept, else 1.
    """
    flags = parse(argv)
    digits = Digits.load(flags.seed)
    on_device = run(digits, flags.device, flags.epochs, flags.seed)
    on_cpu = run(digits, torch.device("cpu"), flags.epochs, flags.seed)
    for name, record in named(on_device, on_cpu):
        report(record, name)
    if flags.plot:
        draw(on_device, on_cpu, digits, flags.plot)
        print(f"figure: {flags.plot}")
    verdict = promises(on_device, on_cpu)
    for promise in verdict:
        print(f"{'kept  ' if promise.kept else 'BROKEN'} {promise.text}: {promise.found}")
    return 0 if all(promise.kept for promise in verdict) else 1


if __name__ == "__main__":
    sys.exit(main())
