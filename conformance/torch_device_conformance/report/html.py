# SPDX-License-Identifier: BSD-3-Clause
"""A report as one self-contained HTML page: page.html with the verdicts embedded."""

import json
from pathlib import Path

from torch_device_conformance.contract.rows import rows
from torch_device_conformance.report.report import Report, records
from torch_device_conformance.report.waivers import Waivers
from torch_device_conformance.verdict.verdict import MEANING, parse_case

DATA = "/*DATA*/"


def html(report: Report, waivers: Waivers) -> str:
    """Returns the page as HTML."""
    known = rows()
    found = records(report, waivers)
    for record in found["verdicts"]:
        row = known.get(parse_case(record["case"]))
        if row is not None:
            record["row"] = {
                "requires": row.requires,
                "implement": row.implement,
                "without": row.without,
                "shown_by": row.shown_by,
            }
    overloads = [
        [name, entry["route"], entry["modes"]] for name, entry in report.overloads().items()
    ]
    heading = dict(report.heading)
    description = dict(heading.get("description", {}))
    description.pop("dispatch", None)
    heading["description"] = description
    data = {
        "heading": heading,
        "scope": report.scope,
        "meaning": dict(MEANING),
        "required": report.required(),
        **found,
        "overloads": overloads,
    }
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    page = Path(__file__).with_name("page.html").read_text()
    return page.replace(DATA, text)
