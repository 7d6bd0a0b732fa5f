# SPDX-License-Identifier: BSD-3-Clause
"""Waivers, and the rules that decide whether a run fails.

A waiver accepts known verdicts until a date, and states the reason.

The format is TOML::

    [[waiver]]
    cases = "op/*/bfloat16/linalg.*"
    verdicts = ["wrong"]
    reason = "the solver of driver 3.1 rounds to float16: ticket 1234"
    expires = 2027-03-31

`cases` may be a list of patterns, and `expires` may be "never". If a waiver accepts the verdict
"not-run" for a case, the case is not run. A run reports waivers that have expired, and waivers that
no case needs.
"""

import datetime
import fnmatch
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch_device_conformance.verdict.verdict import (
    MEANING,
    MISSING,
    NOT_RUN,
    PASSES,
    Case,
    Verdict,
)


class BadWaivers(ValueError):
    """Raised if a waiver file is not valid. The message contains the reason."""


@dataclass(frozen=True)
class Waiver:
    """An entry of a waiver file, which accepts some verdicts for some cases until a date.

    Attributes:
        cases: shell patterns for whole case identifiers.
        verdicts: the accepted verdicts.
        reason: why the verdicts are accepted.
        expires: the last day on which the waiver is valid.
    """

    cases: tuple[str, ...]
    verdicts: tuple[str, ...]
    reason: str
    expires: datetime.date

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return _any_of(self.cases)

    def names(self, case: Case) -> bool:
        """Returns whether one of the patterns matches a case."""
        return self._pattern.match(str(case)) is not None

    def covers(self, verdict: Verdict, today: datetime.date) -> bool:
        """Returns whether the waiver applies to a verdict if today's date is `today`."""
        return (
            today <= self.expires and verdict.verdict in self.verdicts and self.names(verdict.case)
        )


@dataclass(frozen=True)
class Waivers:
    """The waivers of a file.

    Attributes:
        waivers: the waivers, in the order of the file.
        strict: whether missing features, and waived cases that pass, also fail the run.
        today: the date that decides which waivers have expired.
    """

    waivers: Sequence[Waiver] = ()
    strict: bool = False
    today: datetime.date = datetime.date.max

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return _any_of([pattern for waiver in self.waivers for pattern in waiver.cases])

    def names(self, case: Case) -> bool:
        """Returns whether any waiver names a case. All patterns are matched together, for speed."""
        return bool(self.waivers) and self._pattern.match(str(case)) is not None

    def reason(self, verdict: Verdict) -> str | None:
        """Returns the reason why a verdict is waived, or None."""
        if not self.names(verdict.case):
            return None
        return next((w.reason for w in self.waivers if w.covers(verdict, self.today)), None)

    def leaves_out(self, case: Case) -> bool:
        """Returns whether a waiver excludes the case from runs."""
        return self.reason(Verdict(case, NOT_RUN)) is not None

    def fails(self, verdict: Verdict) -> bool:
        """Returns whether a verdict fails the run. All report formats use this."""
        if verdict.passes:
            return self.strict and self.names(verdict.case)
        if self.reason(verdict) is not None:
            return False
        if verdict.verdict == MISSING:
            return self.strict or (verdict.case.suite == "contract" and verdict.required)
        return verdict.accuses or verdict.verdict == NOT_RUN

    def failures(self, verdicts: Iterable[Verdict]) -> list[Verdict]:
        """Returns the verdicts that fail the run. Those of cases that were not run come last."""
        found = [verdict for verdict in verdicts if self.fails(verdict)]
        return sorted(found, key=lambda verdict: verdict.verdict == NOT_RUN)

    def complaints(self, verdicts: Iterable[Verdict]) -> list[str]:
        """Describes the waivers that have expired, and those that apply to none of their cases."""
        found = list(verdicts)
        lines = []
        for waiver in self.waivers:
            what = f"{', '.join(waiver.cases)} ({waiver.reason})"
            named = [verdict for verdict in found if waiver.names(verdict.case)]
            if waiver.expires < self.today:
                lines.append(f"expired on {waiver.expires}: {what}")
            elif named and not any(waiver.covers(verdict, self.today) for verdict in named):
                lines.append(f"not needed: {what}")
        return lines


def load(path: Path, strict: bool = False, today: datetime.date | None = None) -> Waivers:
    """Reads waivers.

    Args:
        path: the file.
        strict: as in `Waivers`.
        today: as in `Waivers`. The default is the current date.

    Raises:
        BadWaivers: the file is not valid, or a waiver lacks a field.
    """
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise BadWaivers(f"{path}: {error}") from None
    found = []
    for number, fields in enumerate(content.get("waiver", []), start=1):
        where = f"{path}: waiver {number}"
        missing = {"cases", "verdicts", "reason", "expires"} - fields.keys()
        if missing:
            raise BadWaivers(f"{where} lacks {', '.join(sorted(missing))}")
        unknown = set(fields["verdicts"]) - MEANING.keys()
        if unknown:
            raise BadWaivers(
                f"{where}: unknown verdict {', '.join(sorted(unknown))}; use one of "
                f"{', '.join(MEANING)}"
            )
        passing = PASSES.intersection(fields["verdicts"])
        if passing:
            raise BadWaivers(f"{where}: {', '.join(sorted(passing))} needs no waiver; remove it")
        cases = [fields["cases"]] if isinstance(fields["cases"], str) else fields["cases"]
        expires = datetime.date.max if fields["expires"] == "never" else fields["expires"]
        if not isinstance(expires, datetime.date):
            raise BadWaivers(f'{where}: expires must be a date such as 2027-03-31, or "never"')
        if not str(fields["reason"]).strip():
            raise BadWaivers(f"{where} has an empty reason")
        found.append(Waiver(tuple(cases), tuple(fields["verdicts"]), fields["reason"], expires))
    return Waivers(tuple(found), strict, today or datetime.date.today())


def failure(verdict: Verdict) -> str:
    """Returns a line that explains why a verdict fails a run."""
    if verdict.passes:
        return "the case passes although a waiver names it"
    return verdict.message.partition("\n")[0]


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """Returns a regular expression that matches if any of the shell patterns matches."""
    return re.compile("|".join(map(fnmatch.translate, patterns)))
