# SPDX-License-Identifier: BSD-3-Clause
"""A verdict: what came of one case on the subject, and the evidence for it.

Verdicts travel between processes and into reports; torch is not needed for them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

NATIVE = "native"
COMPOSITE = "composite"
FALLBACK = "fallback"
MISSING = "missing"
WRONG = "wrong"
RAISES_WRONGLY = "raises-wrongly"
ACCEPTS_WRONGLY = "accepts-wrongly"
LATE_ERROR = "late-error"
CRASH = "crash"
HANG = "hang"
NO_REFERENCE = "no-reference"
NOT_RUN = "not-run"

# In the order of reports, with what each means.
MEANING: Mapping[str, str] = {
    NATIVE: "agrees with the CPU; a kernel of the backend ran",
    COMPOSITE: "agrees with the CPU; torch made it of other operators, all native",
    FALLBACK: "agrees with the CPU, because the CPU computed it",
    MISSING: "the backend says that it is not implemented",
    WRONG: "the result differs from the CPU's",
    RAISES_WRONGLY: "an error where the CPU has none",
    ACCEPTS_WRONGLY: "no error where the CPU has one",
    LATE_ERROR: "the error comes after the call, although the arguments tell it",
    CRASH: "the process died",
    HANG: "no answer in time",
    NO_REFERENCE: "the CPU itself cannot do it: nothing to compare with",
    NOT_RUN: "not run, which never counts as a pass",
}

# The subject does what is required of it.
PASSES = frozenset({NATIVE, COMPOSITE, FALLBACK})
# The subject does something that it must not do. What is missing is no accusation.
ACCUSATIONS = frozenset({WRONG, RAISES_WRONGLY, ACCEPTS_WRONGLY, LATE_ERROR, CRASH, HANG})

# From best to worst, for the verdict of several cases together.
_ORDER = list(MEANING)


def worst(verdicts: list[str]) -> str:
    """The worst of several verdicts; those without a reference do not count."""
    counted = [verdict for verdict in verdicts if verdict != NO_REFERENCE]
    return max(counted or [NO_REFERENCE], key=_ORDER.index)


@dataclass(frozen=True, order=True)
class Case:
    """What is tested: a row of the contract, or one mode of one entry of a database.

    Attributes:
        suite: "op", "module", "optim", "contract" or "model".
        mode: the mode of the operator, or the area of the contract.
        dtype: name of the dtype of the samples; empty for the contract.
        name: of the entry or of the row.
    """

    suite: str
    mode: str
    dtype: str
    name: str

    def __str__(self) -> str:
        return "/".join(filter(None, (self.suite, self.mode, self.dtype, self.name)))


def parse_case(text: str) -> Case:
    """The case of an identifier, as reports have it.

    Raises:
        ValueError: it is none.
    """
    suite, *rest = text.split("/")
    if suite == "contract" and len(rest) == 2:
        return Case(suite, rest[0], "", rest[1])
    if suite != "contract" and len(rest) >= 3:
        return Case(suite, rest[0], rest[1], "/".join(rest[2:]))
    raise ValueError(f"{text!r} is no case: op/eager/float32/add or contract/streams/ordering")


@dataclass(frozen=True)
class Verdict:
    """What came of a case.

    Attributes:
        case: what was tested.
        verdict: one of MEANING.
        message: what was seen, one line first.
        stack: of a crash, a hang or an exception.
        sample: the arguments that show it: dtypes, shapes, strides.
        largest: the largest absolute difference of values.
        compared: by "values", "distribution" (random) or "metadata" (uninitialized memory).
        samples: that were run and agree.
        routes: aten overloads that ran on the subject, and how each was dispatched.
        expected_by: "cpu", or "cuda" where only OpInfo's list for CUDA has the dtype.
        required: whether torch itself depends on it; of rows of the contract.
        seconds: of both devices.
        device_us: microseconds of a call on the subject, if times were asked for.
        cpu_us: of the same call on the CPU.
    """

    case: Case
    verdict: str
    message: str = ""
    stack: str = ""
    sample: str = ""
    largest: float | None = None
    compared: str = ""
    samples: int = 0
    routes: Mapping[str, str] = field(default_factory=dict)
    expected_by: str = "cpu"
    required: bool = True
    seconds: float = 0.0
    device_us: float = 0.0
    cpu_us: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether it belongs to the denominator."""
        return self.verdict != NO_REFERENCE

    @property
    def accuses(self) -> bool:
        """Whether the subject does something that it must not do."""
        return self.verdict in ACCUSATIONS

    @property
    def passes(self) -> bool:
        """Whether the subject does what is required."""
        return self.verdict in PASSES

    @property
    def slowdown(self) -> float:
        """How many times slower than the CPU it is; 0 if it was not measured."""
        return self.device_us / self.cpu_us if self.cpu_us else 0.0

    def record(self) -> dict[str, Any]:
        """The verdict as JSON has it; without what is empty."""
        fields = asdict(self)
        fields["case"] = str(self.case)
        kept = {"case", "verdict", "required", "seconds", "expected_by"}
        fields["seconds"] = round(self.seconds, 4)
        if self.largest is not None and self.largest in (float("inf"),):
            fields["largest"] = "inf"
        return {key: value for key, value in fields.items() if key in kept or value}


def from_record(record: Mapping[str, Any]) -> Verdict:
    """The reverse of `Verdict.record`."""
    fields = dict(record)
    largest = fields.get("largest")
    fields["largest"] = None if largest is None else float(largest)
    return Verdict(**{**fields, "case": parse_case(fields["case"])})
