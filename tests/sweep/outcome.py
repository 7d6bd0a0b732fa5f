# SPDX-License-Identifier: BSD-3-Clause
"""What came of one entry of the sweep. It travels between processes; torch is not needed for it."""

import re
from dataclasses import dataclass

AGREES = "agrees"
DIFFERS = "differs"
CRASHED = "crashed"
TIMED_OUT = "timed out"
CPU_FAILS = "CPU fails"
UNSUPPORTED = "no such dtype"


@dataclass(frozen=True)
class Outcome:
    """What came of one entry.

    Attributes:
        name: of the entry.
        status: AGREES, DIFFERS, CRASHED or TIMED_OUT; or why the entry does not count: the CPU
            itself fails (CPU_FAILS) or has no kernel for the dtype (UNSUPPORTED).
        compared: by "values", "distribution" (random) or "metadata" (uninitialized memory).
        message: the first thing that went wrong.
        samples: sample inputs that were run.
        seconds: time of the entry, both devices.
    """

    name: str
    status: str
    compared: str = "values"
    message: str = ""
    samples: int = 0
    seconds: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether the entry belongs to the score."""
        return self.status not in (CPU_FAILS, UNSUPPORTED)


def cause(outcome: Outcome) -> str:
    """What failures of one cause have in common: the message without numbers and samples."""
    first = outcome.message.splitlines()[0] if outcome.message else ""
    first = re.sub(r" \[sample \d+\]$", "", first)
    first = re.sub(r"\([\d, ]*\)|0x[0-9a-f]+|[-+]?\d+(\.\d+)?(e[-+]?\d+)?%?", "#", first)
    return f"{outcome.status}: {re.sub(r'(#[ ,x]*)+', '# ', first)}".strip()[:160]
