# SPDX-License-Identifier: BSD-3-Clause
"""Checks whether two runs keep the promises of the example."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from examples.digits.training import Mode, Record

ACCURACY = 0.97
COMPARED_STEPS = 100
# The maximum difference between the losses in the first COMPARED_STEPS steps: between two devices,
# and between compiled and eager mode. There is no bound for mixed precision, because its losses
# differ.
LOSS_DIFFERENCE = {Mode.PLAIN: 1e-3, Mode.COMPILED: 1e-4}
# The maximum loss of accuracy: on average with mixed precision, and with int8 linear layers.
ACCURACY_LOSS = 0.01
# The number of compiled graphs in a step: forward, backward and the optimizer.
COMPILED_GRAPHS = 3


@dataclass(frozen=True)
class Promise:
    """A promise about results, the actual result, and whether the promise was kept."""

    text: str
    found: str
    kept: bool


def loss_differences(a: Record, b: Record) -> list[float]:
    """Returns the absolute difference between the two losses in each step."""
    return [abs(x - y) for x, y in zip(a.losses, b.losses, strict=True)]


def promises(run: Record, reference: Record) -> list[Promise]:
    """Compares a run on a device with the run on the CPU, or a compiled run with an eager one.

    A NaN loss breaks the promise, because all comparisons with NaN are false.
    """
    result = [
        Promise(
            f"test accuracy on {name} >= {ACCURACY:.0%}",
            f"{record.accuracy:.1%}",
            record.accuracy >= ACCURACY,
        )
        for name, record in named(run, reference)
    ]
    differences = loss_differences(run, reference)[:COMPARED_STEPS]
    bound = LOSS_DIFFERENCE[run.mode]
    result.append(
        Promise(
            f"loss of the first {len(differences)} steps agrees to {bound:g}",
            f"at most {max(differences):.1e}",
            all(difference <= bound for difference in differences),
        )
    )
    if run.mode is Mode.COMPILED:
        result.append(
            Promise(
                f"a step runs {COMPILED_GRAPHS} compiled graphs: forward, backward, optimizer",
                f"{run.graphs}",
                run.graphs == COMPILED_GRAPHS,
            )
        )
    return result


def promises_of_amp(runs: Sequence[Record], references: Sequence[Record]) -> list[Promise]:
    """Compares mixed-precision runs with float32 runs that use the same seeds."""
    accuracy, wanted = (mean(record.accuracy for record in side) for side in (runs, references))
    return [
        Promise(
            f"mean test accuracy of {len(runs)} seeds with autocast >= float32's - "
            f"{ACCURACY_LOSS:.0%}",
            f"{accuracy:.1%}, float32 {wanted:.1%}",
            accuracy >= wanted - ACCURACY_LOSS,
        )
    ]


def promises_of_quantization(run: Record, reference: Record) -> list[Promise]:
    """Compares a network with int8 linear layers with the same network in float32."""
    return [
        Promise(
            f"test accuracy with int8 >= float32's - {ACCURACY_LOSS:.0%}",
            f"{run.accuracy:.1%}, float32 {reference.accuracy:.1%}",
            run.accuracy >= reference.accuracy - ACCURACY_LOSS,
        )
    ]


def named(run: Record, reference: Record) -> list[tuple[str, Record]]:
    """Returns both runs with their names, which differ even if both ran in the same way."""
    first, second = run.name, reference.name
    return [(first, run), (second if first != second else f"{second} again", reference)]
