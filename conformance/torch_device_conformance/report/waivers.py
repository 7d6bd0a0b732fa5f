# SPDX-License-Identifier: BSD-3-Clause
"""Waivers: known verdicts that are accepted until a date, with a reason.

The format is TOML::

    [[waiver]]
    cases = "op/*/bfloat16/linalg.*"
    verdicts = ["wrong"]
    reason = "the solver of driver 3.1 rounds to float16: ticket 1234"
    expires = 2027-03-31

A waiver that has expired or that no case needs is reported.
"""

import datetime
import fnmatch
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_device_conformance.verdict.verdict import MEANING, Verdict


class BadWaivers(ValueError):
    """A waiver file cannot be read; the message says why."""


@dataclass(frozen=True)
class Waiver:
    """Cases whose verdicts are accepted.

    Attributes:
        cases: shell pattern for whole case identifiers.
        verdicts: the accepted verdicts.
        reason: why they are accepted.
        expires: the last valid day.
    """

    cases: str
    verdicts: tuple[str, ...]
    reason: str
    expires: datetime.date

    def covers(self, verdict: Verdict, today: datetime.date) -> bool:
        """Whether the waiver applies to a verdict on a day."""
        return (
            today <= self.expires
            and verdict.verdict in self.verdicts
            and fnmatch.fnmatchcase(str(verdict.case), self.cases)
        )


@dataclass(frozen=True)
class Waivers:
    """The waivers of a file."""

    waivers: Sequence[Waiver] = ()
    today: datetime.date = datetime.date.max

    def reason(self, verdict: Verdict) -> str | None:
        """The reason why a verdict is waived, or None."""
        return next((w.reason for w in self.waivers if w.covers(verdict, self.today)), None)

    def complaints(self, verdicts: Iterable[Verdict]) -> list[str]:
        """Lists the waivers that have expired, and those that no verdict needs."""
        found = list(verdicts)
        lines = []
        for waiver in self.waivers:
            if waiver.expires < self.today:
                lines.append(f"expired on {waiver.expires}: {waiver.cases} ({waiver.reason})")
            elif not any(waiver.covers(verdict, self.today) for verdict in found):
                lines.append(f"not needed: {waiver.cases} ({waiver.reason})")
        return lines


def load(path: Path, today: datetime.date | None = None) -> Waivers:
    """Reads waivers.

    Raises:
        BadWaivers: the file is not valid, or a waiver lacks its reason or date.
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
            raise BadWaivers(f"{where}: unknown verdict {', '.join(sorted(unknown))}")
        if not isinstance(fields["expires"], datetime.date):
            raise BadWaivers(f"{where}: expires must be a date such as 2027-03-31")
        if not str(fields["reason"]).strip():
            raise BadWaivers(f"{where} has an empty reason")
        found.append(
            Waiver(fields["cases"], tuple(fields["verdicts"]), fields["reason"], fields["expires"])
        )
    return Waivers(tuple(found), today or datetime.date.today())
