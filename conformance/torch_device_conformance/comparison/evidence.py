# SPDX-License-Identifier: BSD-3-Clause
"""The result of comparing an entry. It is sent between processes, hence it does not need torch."""

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
    """The result of comparing an entry.

    Attributes:
        status: AGREES or DIFFERS; CPU_FAILS if there is no reference.
        compared: what was compared: "values", "distribution" (random) or "metadata" (uninitialized
            memory).
        message: description of the first difference.
        samples: number of samples that agree.
        seconds: duration of the comparison, on both devices.
        kind: the kind of the difference, see `Difference`.
        error: name of the exception that the device raised, if that is the difference.
        sample: description of the sample that differs.
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
