# SPDX-License-Identifier: BSD-3-Clause
"""A verdict: the result of one case on the subject, with evidence.

Verdicts are sent between processes and stored in reports, so they do not depend on torch.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
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

# The verdicts and their meanings, in the order in which reports list them.
MEANING: Mapping[str, str] = {
    NATIVE: "agrees with the CPU; a kernel of the backend ran",
    COMPOSITE: "agrees with the CPU; torch composed it of other operators, which are all native",
    FALLBACK: "agrees with the CPU, because the CPU computed it",
    MISSING: "the backend reports that it does not implement the operator or feature",
    WRONG: "the result differs from the CPU's",
    RAISES_WRONGLY: "raises an error although the CPU does not",
    ACCEPTS_WRONGLY: "raises no error although the CPU does",
    LATE_ERROR: "the error is raised after the call, although it follows from the arguments",
    CRASH: "the process died",
    HANG: "the process did not answer in time",
    NO_REFERENCE: "the CPU cannot run the case, so there is no reference",
    NOT_RUN: "the case was not run; never counts as a pass",
}

# With these verdicts, the subject does what is required.
PASSES = frozenset({NATIVE, COMPOSITE, FALLBACK})
# With these verdicts, the subject does something forbidden. Lacking a feature is not forbidden.
ACCUSATIONS = frozenset({WRONG, RAISES_WRONGLY, ACCEPTS_WRONGLY, LATE_ERROR, CRASH, HANG})

# The verdicts from best to worst, as used by `worst`.
_ORDER = list(MEANING)


def worst(verdicts: list[str]) -> str:
    """Returns the worst of several verdicts. NO_REFERENCE counts only if there is no other."""
    counted = [verdict for verdict in verdicts if verdict != NO_REFERENCE]
    return max(counted or [NO_REFERENCE], key=_ORDER.index)


@dataclass(frozen=True, order=True)
class Case:
    """What is tested: a row of the contract, or an entry of a database in one mode.

    Attributes:
        suite: "op", "module", "optim", "contract", "model", or a suite added by --modes.
        mode: mode of the operator, or area of the contract.
        dtype: dtype name of the samples. Empty for the contract.
        name: name of the entry or the row.
    """

    suite: str
    mode: str
    dtype: str
    name: str

    def __str__(self) -> str:
        return "/".join(filter(None, (self.suite, self.mode, self.dtype, self.name)))


def parse_case(text: str) -> Case:
    """Parses the identifier of a case, in the form that reports use.

    Raises:
        ValueError: the text is not an identifier.
    """
    suite, *rest = text.split("/")
    if suite == "contract" and len(rest) == 2:
        return Case(suite, rest[0], "", rest[1])
    if suite != "contract" and len(rest) >= 3:
        return Case(suite, rest[0], rest[1], "/".join(rest[2:]))
    raise ValueError(
        f"{text!r} is not a case such as op/eager/float32/add or contract/streams/order"
    )


@dataclass(frozen=True)
class Verdict:
    """The result of a case.

    Attributes:
        case: the case that was tested.
        verdict: a key of MEANING.
        message: the evidence as text. Its first line is a summary.
        stack: stack of a crash, a hang or an exception.
        sample: dtypes, shapes and strides of the arguments that reproduce a difference.
        largest: the largest absolute difference between values.
        compared: what was compared: "values", the "distribution" of random values, or only
            "metadata", as for uninitialized memory.
        samples: number of samples that agree.
        routes: the aten overloads that ran on the subject, and the route of each.
        expected_by: "cpu", or "cuda" if only OpInfo's list for CUDA contains the dtype.
        required: whether torch itself depends on the row. Only contract rows have this field.
        seconds: duration, including the CPU runs.
        device_us: duration of a call on the subject in microseconds, if it was measured.
        cpu_us: duration of the same call on the CPU in microseconds.
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
        """Whether the case counts in the denominator, because the CPU provides a reference."""
        return self.verdict != NO_REFERENCE

    @property
    def accuses(self) -> bool:
        """Whether the subject does something forbidden."""
        return self.verdict in ACCUSATIONS

    @property
    def passes(self) -> bool:
        """Whether the subject does what is required."""
        return self.verdict in PASSES

    @property
    def slowdown(self) -> float:
        """The time of a call on the subject, divided by that on the CPU, or 0 if not measured."""
        return self.device_us / self.cpu_us if self.cpu_us else 0.0

    def record(self) -> dict[str, Any]:
        """Returns the verdict as a JSON object. Optional fields that are empty are omitted."""
        found = asdict(self)
        found["case"] = str(self.case)
        kept = {"case", "verdict", "required", "seconds", "expected_by"}
        found["seconds"] = round(self.seconds, 4)
        if self.largest is not None and self.largest in (float("inf"),):
            found["largest"] = "inf"
        return {key: value for key, value in found.items() if key in kept or value}


# The fields of a record. Later minor versions of the schema may add fields.
_FIELDS = frozenset(field.name for field in fields(Verdict))


def from_record(record: Mapping[str, Any]) -> Verdict:
    """Restores a verdict from the result of `Verdict.record`. Unknown fields are ignored."""
    found = {key: value for key, value in record.items() if key in _FIELDS}
    largest = found.get("largest")
    found["largest"] = None if largest is None else float(largest)
    return Verdict(**{**found, "case": parse_case(found["case"])})
