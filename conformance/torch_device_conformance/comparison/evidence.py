# SPDX-License-Identifier: BSD-3-Clause
"""What came of the comparison of an entry. It travels between processes; torch is not needed."""

from dataclasses import dataclass

AGREES = "agrees"
DIFFERS = "differs"
CPU_FAILS = "CPU fails"

# Kinds of differences.
WRONG = "wrong"
RAISES = "raises"
ACCEPTS = "accepts"
LATE = "late"


@dataclass(frozen=True)
class Evidence:
    """What came of the comparison of an entry.

    Attributes:
        status: AGREES or DIFFERS; CPU_FAILS where there is nothing to compare with.
        compared: by "values", "distribution" (random) or "metadata" (uninitialized memory).
        message: the first thing that went wrong.
        samples: that were run and agree.
        seconds: both devices.
        kind: of the difference, see `Difference`.
        error: name of the exception that the device raised, if that is the difference.
        sample: what the sample that differs is.
        largest: the largest absolute difference of values.
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
