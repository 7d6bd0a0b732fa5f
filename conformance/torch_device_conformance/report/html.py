# SPDX-License-Identifier: BSD-3-Clause
"""A report as one self-contained HTML page: page.html with the verdicts embedded."""

import json
from pathlib import Path
from typing import Any

from torch_device_conformance.contract.rows import rows
from torch_device_conformance.report.report import Report
from torch_device_conformance.report.waivers import Waivers
from torch_device_conformance.verdict.verdict import ACCUSATIONS, MEANING

DATA = "/*DATA*/"


def html(report: Report, waivers: Waivers) -> str:
    """The page."""
    known = rows()
    pairs: dict[tuple[str, str], int] = {}
    found = []
    for verdict in report.verdicts.values():
        fields: dict[str, Any] = verdict.record()
        if "routes" in fields:
            fields["routes"] = [
                pairs.setdefault(pair, len(pairs)) for pair in sorted(fields["routes"].items())
            ]
        reason = waivers.reason(verdict)
        if reason is not None:
            fields["waived"] = reason
        row = known.get(verdict.case)
        if row is not None:
            fields["row"] = {
                "requires": row.requires,
                "implement": row.implement,
                "without": row.without,
                "shown_by": row.shown_by,
            }
        found.append(fields)
    overloads = [
        [name, entry["route"], entry["modes"]] for name, entry in report.overloads().items()
    ]
    heading = dict(report.heading)
    description = dict(heading.get("description", {}))
    description.pop("dispatch", None)
    heading["description"] = description
    data = {
        "heading": heading,
        "meaning": dict(MEANING),
        "accusations": sorted(ACCUSATIONS),
        "required": report.required(),
        "routes": list(pairs),
        "verdicts": found,
        "overloads": overloads,
    }
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    page = Path(__file__).with_name("page.html").read_text()
    return page.replace(DATA, text)
