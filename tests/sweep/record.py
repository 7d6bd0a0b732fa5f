# SPDX-License-Identifier: BSD-3-Clause
"""Files of outcomes in JSON, one for each run of the sweep."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.sweep.outcome import Case, Outcome


def save(path: Path, outcomes: Sequence[Outcome], heading: dict[str, str]) -> None:
    """Writes outcomes atomically.

    Args:
        path: path of the file.
        outcomes: the outcomes to write.
        heading: the properties that they have in common.
    """
    part = path.with_name(f"{path.name}.part")
    found = [flat(outcome) for outcome in sorted(outcomes, key=lambda o: o.case)]
    part.write_text(json.dumps({**heading, "outcomes": found}, indent=1) + "\n")
    os.replace(part, path)


def load(path: Path, heading: dict[str, str] | None = None) -> list[Outcome]:
    """Reads outcomes.

    Args:
        path: path of the file.
        heading: the properties that they must have in common.

    Raises:
        ValueError: the file is not a file of a sweep, or has another heading.
    """
    try:
        content = dict(json.loads(path.read_text()))
        for key, value in (heading or {}).items():
            if content.get(key) != value:
                raise ValueError(f"it has {key} {content.get(key)!r}, not {value!r}")
        return [deep(fields) for fields in content["outcomes"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a file of this sweep: {error}") from None


def flat(outcome: Outcome) -> dict[str, Any]:
    """The fields of the case and of the outcome in one dict."""
    fields = asdict(outcome)
    return {**fields.pop("case"), **fields}


def deep(fields: dict[str, Any]) -> Outcome:
    """The inverse of flat."""
    rest = dict(fields)
    case = Case(*(rest.pop(key) for key in ("database", "check", "dtype", "name")))
    return Outcome(case, **rest)
