# SPDX-License-Identifier: BSD-3-Clause
"""Learns handwritten digits on a device, then on the CPU, and compares the two runs."""

import argparse
import sys
from collections.abc import Sequence

import torch
from tqdm import tqdm

from examples.digits.figure import draw
from examples.digits.training import BATCH, Digits, Record, train
from examples.digits.verdict import named, promises
from tools.flags.flags import Flags, device, picture, whole_number


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Reads the flags; ends the program if one is wrong."""
    parser = Flags(
        "digits",
        __doc__,
        "Exit status: 0 if every promise was kept, 1 if not, 2 for a wrong flag.",
    )
    parser.add_argument("--device", type=device, default="openreg", help="where to train first")
    parser.add_argument(
        "--epochs", type=whole_number(1), default=20, help="passes over the 1,437 training images"
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0),
        default=0,
        help="of the initial weights and the batches",
    )
    parser.add_argument(
        "--plot",
        type=picture,
        default="digits.png",
        metavar="FILE",
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
    digits = Digits.load()
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
