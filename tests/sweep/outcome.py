# SPDX-License-Identifier: BSD-3-Clause
"""What came of one case of the sweep. It travels between processes; torch is not needed for it."""

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
    """What came of one case.

    Attributes:
        case: what was compared.
        status: AGREES, DIFFERS, CRASHED or TIMED_OUT; or CPU_FAILS: it does not count.
        compared: by "values", "distribution" (random) or "metadata" (uninitialized memory).
        message: the first thing that went wrong.
        samples: sample inputs that were run.
        seconds: time of the case, both devices.
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
    """What failures of one cause have in common: the message without numbers and samples."""
    first = outcome.message.splitlines()[0] if outcome.message else ""
    first = re.sub(r" \[sample \d+[^\]]*\]$", "", first)
    first = re.sub(r"\([\d, ]*\)|0x[0-9a-f]+|[-+]?\d+(\.\d+)?(e[-+]?\d+)?%?", "#", first)
    return f"{outcome.status}: {re.sub(r'(#[ ,x]*)+', '# ', first)}".strip()[:160]
