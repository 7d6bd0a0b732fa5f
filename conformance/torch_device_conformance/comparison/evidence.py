# SPDX-License-Identifier: BSD-3-Clause
"""The result of comparing an entry. Processes exchange it, so it does not depend on torch."""

from dataclasses import dataclass

AGREES = "agrees"
DIFFERS = "differs"
CPU_FAILS = "CPU fails"

# The kinds of differences, which comparison.Difference describes.
WRONG = "wrong"
RAISES = "raises"
ACCEPTS = "accepts"
LATE = "late"


@dataclass(frozen=True)
class Evidence:
    """The result of comparing an entry.

    Attributes:
        status: AGREES, DIFFERS, or CPU_FAILS if there is no reference.
        compared: what was compared: "values", the "distribution" of random values, or only
            "metadata", as for uninitialized memory.
        message: description of the first difference, or the reason why there is no reference.
        samples: number of samples that agree.
        seconds: duration of the comparison, including the CPU runs.
        kind: the kind of the difference, see `comparison.Difference`.
        error: type of an unexpected exception on the device, or empty for a Difference.
        sample: description of the sample that differs.
        largest: the largest absolute difference between values, if values differ.
    """

    status: str
    compared: str = "values"
    message: str = ""
    samples: int = 0
    seconds: float = 0.0
    kind: str = ""
    error: str = ""
    sample: str = ""
    largest: float | None = None
