# SPDX-License-Identifier: BSD-3-Clause
"""The outcome of a case of the sweep. It is sent between processes and does not need torch."""

import re
from dataclasses import astuple, dataclass

from torch_device_conformance.comparison.evidence import AGREES as AGREES
from torch_device_conformance.comparison.evidence import CPU_FAILS as CPU_FAILS
from torch_device_conformance.comparison.evidence import DIFFERS as DIFFERS

CRASHED = "crashed"
TIMED_OUT = "timed out"


@dataclass(frozen=True, order=True)
class Case:
    """One check of one entry, with one dtype."""

    database: str
    check: str
    dtype: str
    name: str

    def __str__(self) -> str:
        return "/".join(astuple(self))


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case.

    Attributes:
        case: the case.
        status: AGREES, DIFFERS, CRASHED or TIMED_OUT; or CPU_FAILS, which does not count.
        compared: what was compared: "values", "distribution" (random) or "metadata" (uninitialized
            memory).
        message: the first failure.
        samples: number of sample inputs that were run.
        seconds: time of the case on both devices.
    """

    case: Case
    status: str
    compared: str = "values"
    message: str = ""
    samples: int = 0
    seconds: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether the case belongs to the score."""
        return self.status != CPU_FAILS


def cause(outcome: Outcome) -> str:
    """The message without numbers and samples, to group failures with the same cause."""
    first = outcome.message.splitlines()[0] if outcome.message else ""
    first = re.sub(r" \[sample \d+[^\]]*\]$", "", first)
    first = re.sub(r"\([\d, ]*\)|0x[0-9a-f]+|[-+]?\d+(\.\d+)?(e[-+]?\d+)?%?", "#", first)
    return f"{outcome.status}: {re.sub(r'(#[ ,x]*)+', '# ', first)}".strip()[:160]
