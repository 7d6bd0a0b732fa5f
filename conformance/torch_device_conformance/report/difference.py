# SPDX-License-Identifier: BSD-3-Clause
"""The difference between two reports: what became worse, and what became better."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_device_conformance.report.report import Report
from torch_device_conformance.verdict.verdict import (
    ACCUSATIONS,
    COMPOSITE,
    FALLBACK,
    MISSING,
    NATIVE,
    NO_REFERENCE,
    NOT_RUN,
    Case,
)

# The grade of each verdict. A higher grade is better. A composite operator counts as native,
# because torch composes it from native operators.
_GRADES = {NATIVE: 4, COMPOSITE: 4, FALLBACK: 3, MISSING: 2, **dict.fromkeys(ACCUSATIONS, 1)}


@dataclass(frozen=True)
class Change:
    """A case whose verdicts in two reports differ.

    Attributes:
        case: a case that is in at least one of the reports.
        before: the verdict in the first report, or NOT_RUN.
        after: the verdict in the second report, or NOT_RUN.
        message: the message in the second report.
    """

    case: Case
    before: str
    after: str
    message: str = ""


@dataclass(frozen=True)
class Difference:
    """The differences between two reports.

    Attributes:
        regressions: cases that became worse.
        improvements: cases that became better.
        others: cases that fail in a different way, or that were run for only one report.
        overloads: aten overloads whose route became worse: (name, before, after).
        provenance: versions and hashes that differ: (what, before, after).
    """

    regressions: Sequence[Change]
    improvements: Sequence[Change]
    others: Sequence[Change]
    overloads: Sequence[tuple[str, str, str]]
    provenance: Sequence[tuple[str, str, str]]


def difference(before: Report, after: Report) -> Difference:
    """Compares two reports, case by case."""
    regressions, improvements, others = [], [], []
    for case in {**before.verdicts, **after.verdicts}:
        first, second = before.verdicts.get(case), after.verdicts.get(case)
        old, new = (v.verdict if v else NOT_RUN for v in (first, second))
        if old == new:
            continue
        change = Change(case, old, new, second.message if second else "")
        grades = _GRADES.get(old), _GRADES.get(new)
        if None in grades or NO_REFERENCE in (old, new) or grades[0] == grades[1]:
            if {old, new} != {NATIVE, COMPOSITE}:
                others.append(change)
        elif (grades[1] or 0) < (grades[0] or 0):
            regressions.append(change)
        else:
            improvements.append(change)
    return Difference(
        regressions, improvements, others, _routes(before, after), _provenance(before, after)
    )


def _routes(before: Report, after: Report) -> list[tuple[str, str, str]]:
    """Returns the overloads whose route became worse."""
    old, new = (
        dict(report.heading.get("description", {}).get("dispatch", {}))
        for report in (before, after)
    )
    return [
        (name, way, new[name])
        for name, way in sorted(old.items())
        if name in new and _GRADES.get(new[name], 0) < _GRADES.get(way, 0)
    ]


def _provenance(before: Report, after: Report) -> list[tuple[str, str, str]]:
    """Returns the versions, hashes and settings that differ."""
    found = []
    for part in ("torch", "backend", "kit", "machine"):
        old, new = (
            report.heading.get("description", {}).get("provenance", {}).get(part, {})
            for report in (before, after)
        )
        for key in {**old, **new}:
            if old.get(key) != new.get(key):
                found.append((f"{part} {key}", str(old.get(key)), str(new.get(key))))
    for key in ("device", "tier", "only", "modes", "seed"):
        old, new = (report.heading.get(key) or "" for report in (before, after))
        if old != new:
            found.append((key, str(old), str(new)))
    return found


def text(found: Difference) -> str:
    """Returns the difference as text."""
    lines = [f"{what}: {old[:60]} -> {new[:60]}" for what, old, new in found.provenance]
    for title, changes in (
        ("regressions", found.regressions),
        ("improvements", found.improvements),
        ("other changes", found.others),
    ):
        lines.append(f"{title}: {len(changes)}")
        for change in changes:
            message = change.message.partition("\n")[0][:160]
            lines.append(f"  {change.case}: {change.before} -> {change.after}  {message}".rstrip())
    if found.overloads:
        lines.append(f"operators whose dispatch got worse: {len(found.overloads)}")
        lines += [f"  {name}: {old} -> {new}" for name, old, new in found.overloads]
    return "\n".join(lines)
