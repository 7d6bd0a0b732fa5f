# SPDX-License-Identifier: BSD-3-Clause
"""A report, which consists of a heading and of a run's verdicts, and its JSON file.

report/schema.json describes the JSON. A reader accepts all minor versions of the major version that
it supports.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_device_conformance.report.waivers import Waivers
from torch_device_conformance.verdict.verdict import (
    COMPOSITE,
    FALLBACK,
    NOT_RUN,
    Case,
    Verdict,
    from_record,
    worst,
)
from torch_device_conformance.version import SCHEMA


class BadReport(ValueError):
    """Raised if a file is not a report that this version of the kit can read."""


@dataclass(frozen=True)
class Report:
    """The results of a run.

    Attributes:
        heading: what was run, and how; for example the device, the command, the tier and the seed.
        verdicts: the verdict of each case in the run's selection, or NOT_RUN.
    """

    heading: Mapping[str, Any]
    verdicts: Mapping[Case, Verdict] = field(default_factory=dict)

    @property
    def scope(self) -> str:
        """The tier as text. A note is added if only some of its cases were selected."""
        return f"{self.heading['tier']}{', some cases' if self.heading.get('only') else ''}"

    def counted(self) -> list[Verdict]:
        """Returns the verdicts that count in the denominator."""
        return [verdict for verdict in self.verdicts.values() if verdict.counts]

    def counts(self, suite: str | None = None) -> Counter[str]:
        """Returns the number of cases for each verdict, in one suite or in all suites."""
        return Counter(
            v.verdict for v in self.verdicts.values() if suite is None or v.case.suite == suite
        )

    def required(self) -> tuple[int, int]:
        """Returns how many required contract rows pass, and how many there are."""
        rows = [v for v in self.counted() if v.case.suite == "contract" and v.required]
        return sum(v.passes for v in rows), len(rows)

    def routes(self) -> dict[str, str]:
        """Returns how each aten overload reaches the device.

        A composite operator calls other operators, which the dispatch table does not show. It
        counts as a fallback if each passing case that called it also ran a fallback.
        """
        passing = [verdict for verdict in self.verdicts.values() if verdict.passes]
        ran = {name for verdict in passing for name in verdict.routes}
        free = {name for v in passing if v.verdict != FALLBACK for name in v.routes}
        routes = {name: entry["route"] for name, entry in self.overloads().items()}
        return {
            name: FALLBACK if way == COMPOSITE and name in ran - free else way
            for name, way in routes.items()
        }

    def overloads(self) -> dict[str, dict[str, Any]]:
        """Returns the route of each aten overload, and its worst verdict by mode and dtype.

        If a case passes, it counts for every overload that ran in it. If it fails, it counts only
        against the overloads that it called directly.
        """
        routes = dict(self.heading.get("description", {}).get("dispatch", {}))
        seen: dict[str, dict[str, dict[str, list[str]]]] = {}
        for verdict in self.verdicts.values():
            for name, way in verdict.routes.items():
                routes[name] = FALLBACK if FALLBACK in (way, routes.get(name)) else way
                judged = way if verdict.passes else verdict.verdict
                modes = seen.setdefault(name, {}).setdefault(verdict.case.mode, {})
                modes.setdefault(verdict.case.dtype, []).append(judged)
        return {
            name: {
                "route": way,
                "modes": {
                    mode: {dtype: worst(found) for dtype, found in dtypes.items()}
                    for mode, dtypes in seen.get(name, {}).items()
                },
            }
            for name, way in sorted(routes.items())
        }


def complete(cases: Iterable[Case], verdicts: Iterable[Verdict]) -> dict[Case, Verdict]:
    """Returns a verdict for each of `cases`, in order. The verdict is NOT_RUN if there is none."""
    have = {verdict.case: verdict for verdict in verdicts}
    return {case: have.get(case) or Verdict(case, NOT_RUN) for case in cases}


def records(report: Report, waivers: Waivers) -> dict[str, Any]:
    """Returns verdicts as JSON objects. Marks those that fail the run and those that are waived.

    Returns:
        The schema's fields `verdicts` and `routes`. A verdict refers to its routes by position.
    """
    pairs: dict[tuple[str, str], int] = {}
    found = []
    for verdict in report.verdicts.values():
        record = verdict.record()
        if "routes" in record:
            record["routes"] = [
                pairs.setdefault(pair, len(pairs)) for pair in sorted(record["routes"].items())
            ]
        reason = waivers.reason(verdict)
        if reason is not None:
            record["waived"] = reason
        if waivers.fails(verdict):
            record["fails"] = True
        found.append(record)
    return {"routes": [list(pair) for pair in pairs], "verdicts": found}


def save(path: Path, report: Report, waivers: Waivers) -> None:
    """Writes a report as JSON, atomically."""
    content = {
        "schema": SCHEMA,
        **report.heading,
        "counts": dict(report.counts()),
        "strict": waivers.strict,
        "failures": len(waivers.failures(report.verdicts.values())),
        **records(report, waivers),
    }
    part = path.with_name(f"{path.name}.part")
    with part.open("w") as file:
        json.dump(content, file, separators=(",", ":"))
        file.write("\n")
    os.replace(part, path)


def load(path: Path) -> Report:
    """Reads a report.

    Raises:
        BadReport: the file is not a report, or it has a different major version.
    """
    try:
        content = dict(json.loads(path.read_text()))
        version = str(content.pop("schema"))
        if version.partition(".")[0] != SCHEMA.partition(".")[0]:
            raise BadReport(
                f"{path} has schema {version}, but this kit reads {SCHEMA}; "
                "use the version of the kit that wrote the report"
            )
        pairs = content.pop("routes")
        found: Sequence[dict[str, Any]] = content.pop("verdicts")
        for key in ("counts", "strict", "failures"):
            content.pop(key, None)
        verdicts = {}
        for record in found:
            routes = dict(pairs[number] for number in record.get("routes", ()))
            verdict = from_record({**record, "routes": routes})
            verdicts[verdict.case] = verdict
    except BadReport:
        raise
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise BadReport(f"{path} is not a report of this kit: {error}") from None
    return Report(content, verdicts)


class Journal:
    """A file that contains a run's verdicts, so that a stopped run can be resumed.

    Each verdict is written as one line when it arrives.

    Args:
        path: path of the file.
        heading: description of the run. Only a run with the same heading can be resumed.
    """

    def __init__(self, path: Path, heading: Mapping[str, Any]) -> None:
        self._path = path
        self._heading = json.dumps(heading, sort_keys=True)

    def read(self) -> list[Verdict]:
        """Returns the verdicts of an earlier run. An incomplete last line is ignored.

        Raises:
            BadReport: the earlier run had a different heading.
        """
        if not self._path.exists():
            return []
        heading, *lines = self._path.read_text().splitlines() or [""]
        if heading != self._heading:
            raise BadReport(
                f"{self._path} was written for a different subject, kit, tier or seed; "
                "use the same flags, or a different folder"
            )
        found = []
        for line in lines:
            try:
                found.append(from_record(json.loads(line)))
            except ValueError:
                continue
        return found

    def start(self, verdicts: Iterable[Verdict]) -> None:
        """Starts a new file with the heading and `verdicts`."""
        with self._path.open("w") as file:
            file.write(self._heading + "\n")
        for verdict in verdicts:
            self.add(verdict)

    def add(self, verdict: Verdict) -> None:
        """Appends a verdict to the file."""
        with self._path.open("a") as file:
            file.write(json.dumps(verdict.record()) + "\n")


def percent(part: int, whole: int) -> str:
    """Returns a share as text. Shares below 100% are never rounded up to 100%."""
    if not whole:
        return "nothing"
    share = 100 * part / whole
    return f"{min(share, 99.9) if part < whole else share:.1f}%".replace("100.0", "100")
