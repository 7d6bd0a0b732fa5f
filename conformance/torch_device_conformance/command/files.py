# SPDX-License-Identifier: BSD-3-Clause
"""The files of a report: one file per format, all with the same verdicts."""

from pathlib import Path

from torch_device_conformance.report.badge import badge
from torch_device_conformance.report.html import html
from torch_device_conformance.report.junit import junit
from torch_device_conformance.report.markdown import markdown
from torch_device_conformance.report.relay import relay
from torch_device_conformance.report.report import Report, save
from torch_device_conformance.report.waivers import Waivers

JSON = "report.json"


def write(folder: Path, report: Report, waivers: Waivers) -> None:
    """Writes a report to a folder in every format."""
    save(folder / JSON, report, waivers)
    for name, text in (
        ("report.html", html(report, waivers)),
        ("report.md", markdown(report, waivers)),
        ("junit.xml", junit(report, waivers)),
        ("badge.svg", badge(report, waivers)),
        ("relay.json", relay(report, waivers)),
    ):
        (folder / name).write_text(text)
