# SPDX-License-Identifier: BSD-3-Clause
"""Learns handwritten digits on a device and then on the CPU, and compares the two runs.

With --amp: compares mixed precision with float32, on the device, with three seeds each.
With --compile: compares compiled training with eager training, on the device.
With --quantize int8: compares int8 linear layers with float32 ones in the test, on the device.
With --profile: also writes a trace of another epoch on the device, and an image of the trace.
"""

import argparse
import itertools
import sys
from collections.abc import Sequence

import torch
from torch.profiler import ProfilerActivity, profile
from torch_openreg.trace import events, summary
from tqdm import tqdm

from examples.digits.figure import draw
from examples.digits.training import BATCH, Digits, Mode, Record, train
from examples.digits.verdict import (
    named,
    promises,
    promises_of_amp,
    promises_of_quantization,
)
from tools.flags.flags import Flags, device, output, picture, whole_number

# The number of seeds to compare, because the result of a single seed may be due to chance.
AMP_SEEDS = 3


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parses the flags; exits if a flag is wrong."""
    parser = Flags(
        "digits",
        __doc__,
        "Exit status: 0 if every promise was kept, 1 if not, 2 for a wrong flag.",
    )
    parser.add_argument("--device", type=device, default="openreg", help="device to train on first")
    parser.add_argument(
        "--epochs", type=whole_number(1), default=20, help="passes over the 1,437 training images"
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0),
        default=0,
        help="seed for initial weights and batches",
    )
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        "--amp",
        action="store_true",
        help="compare mixed precision (autocast to float16, scaled gradients) with float32, both "
        f"on the device, for {AMP_SEEDS} consecutive seeds from --seed",
    )
    modes.add_argument(
        "--compile",
        action="store_true",
        help="compare compiled forward, backward and optimizer (torch.compile) with eager mode, "
        "both on the device",
    )
    modes.add_argument(
        "--quantize",
        choices=["int8"],
        help="compare the trained network with a copy with int8 linear layers, on the device",
    )
    parser.add_argument(
        "--plot",
        type=picture,
        default="digits.png",
        metavar="FILE",
        help="output file for the figure (.png, .svg, .pdf), or 'none'",
    )
    parser.add_argument(
        "--profile",
        type=output,
        metavar="FILE",
        help="output file for a trace of another epoch on the device (.json, for ui.perfetto.dev); "
        "an image of it is written next to it",
    )
    return parser.parse_args(argv)


def write_trace(digits: Digits, flags: argparse.Namespace) -> None:
    """Profiles one epoch on the device, writes the trace and its image, and prints a summary."""
    activities = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    with profile(activities=activities) as profiler:
        run(digits, flags.device, 1, flags.seed)
    profiler.export_chrome_trace(str(flags.profile))
    trace = events.read(flags.profile)
    picture_of_it = flags.profile.with_suffix(".png")
    summary.draw(trace, picture_of_it, top=12)
    print("\n".join(summary.summarize(trace).lines(top=12)))
    print(f"trace: {flags.profile}\nimage of it: {picture_of_it}")


def run(
    digits: Digits, where: torch.device, epochs: int, seed: int, mode: Mode = Mode.PLAIN
) -> Record:
    """Trains a network and returns the results.

    Shows a progress bar on a terminal, and otherwise prints a line after each epoch to stderr.
    """
    steps = epochs * (len(digits.train) // BATCH)
    what = f"training on {Record(where, mode).name}"
    numbers = itertools.count(1)
    with tqdm(total=steps, desc=what, unit="step", disable=None) as bar:

        def progress(done: int, loss: float) -> None:
            bar.set_postfix_str(f"loss {loss:.4f}", refresh=False)
            bar.update(done)
            if bar.disable:
                print(
                    f"{what}: epoch {next(numbers)} of {epochs}, loss {loss:.4f}", file=sys.stderr
                )

        return train(digits, where, epochs, seed, mode, progress)


def report(record: Record, name: str, out: int = 14) -> None:
    """Prints the cost and the accuracy of a run."""
    steps = len(record.losses)
    print(f"{name}:")
    print(f"  {'training':{out}} {record.seconds:.2f} s, {steps} steps", end="")
    print(f", {1e3 * record.seconds / steps:.2f} ms a step")
    print(f"  {'test accuracy':{out}} {record.accuracy:.2%}")
    if record.peak_bytes is not None:
        print(f"  {'memory peak':{out}} {record.peak_bytes / 2**20:.2f} MiB")
    if record.graphs is not None:
        print(f"  {'graphs a step':{out}} {record.graphs}")
    if record.fallbacks is not None:
        calls = sorted(record.fallbacks.items(), key=lambda item: -item[1])
        print(f"  {'fallbacks':{out}} {sum(record.fallbacks.values())}")
        for operator, count in calls:
            print(f"    {operator}: {count}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the example.

    Returns:
        0 if every promise was kept, otherwise 1.
    """
    flags = parse(argv)
    digits = Digits.load()
    if flags.amp:
        seeds = range(flags.seed, flags.seed + AMP_SEEDS)
        runs, references = (
            [run(digits, flags.device, flags.epochs, seed, mode) for seed in seeds]
            for mode in (Mode.AMP, Mode.PLAIN)
        )
        verdict = promises_of_amp(runs, references)
    elif flags.quantize:
        runs = [run(digits, flags.device, flags.epochs, flags.seed, Mode.INT8)]
        references = [run(digits, flags.device, flags.epochs, flags.seed)]
        verdict = promises_of_quantization(runs[0], references[0])
    else:
        mode = Mode.COMPILED if flags.compile else Mode.PLAIN
        other = flags.device if flags.compile else torch.device("cpu")
        runs = [run(digits, flags.device, flags.epochs, flags.seed, mode)]
        references = [run(digits, other, flags.epochs, flags.seed)]
        verdict = promises(runs[0], references[0])
    for pair in zip(runs, references, strict=True):
        for name, record in named(*pair):
            report(record, name)
    if flags.plot:
        draw(runs[0], references[0], digits, flags.plot)
        print(f"figure: {flags.plot}")
    if flags.profile:
        write_trace(digits, flags)
    for promise in verdict:
        print(f"{'kept  ' if promise.kept else 'BROKEN'} {promise.text}: {promise.found}")
    return 0 if all(promise.kept for promise in verdict) else 1


if __name__ == "__main__":
    sys.exit(main())
