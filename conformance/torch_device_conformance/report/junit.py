# SPDX-License-Identifier: BSD-3-Clause
"""A report as JUnit XML, for CI systems. A test case fails if its verdict fails the run."""

from xml.etree import ElementTree

from torch_device_conformance.report.report import Report
from torch_device_conformance.report.waivers import Waivers, failure
from torch_device_conformance.verdict.verdict import MISSING, NO_REFERENCE


def junit(report: Report, waivers: Waivers) -> str:
    """Returns the XML. A missing or waived case is marked as skipped, never as passed."""
    root = ElementTree.Element("testsuites", name=f"conformance of {report.heading['device']}")
    suites: dict[str, ElementTree.Element] = {}
    for verdict in report.verdicts.values():
        if verdict.verdict == NO_REFERENCE:
            continue
        name = f"{verdict.case.suite}/{verdict.case.mode}"
        suite = suites.get(name)
        if suite is None:
            suite = suites[name] = ElementTree.SubElement(root, "testsuite", name=name)
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"{name}/{verdict.case.dtype}".rstrip("/").replace("/", "."),
            name=str(verdict.case),
            time=f"{verdict.seconds:.4f}",
        )
        message = clean(f"{verdict.verdict}: {failure(verdict)}")
        reason = waivers.reason(verdict)
        if reason is not None:
            ElementTree.SubElement(case, "skipped", message=f"waived: {reason}")
        elif waivers.fails(verdict):
            element = ElementTree.SubElement(case, "failure", type=verdict.verdict, message=message)
            element.text = clean("\n".join(filter(None, [verdict.sample, verdict.stack])))
        elif verdict.verdict == MISSING:
            ElementTree.SubElement(case, "skipped", message=message)
    for suite in suites.values():
        suite.set("tests", str(len(suite)))
        for kind, key in (("failure", "failures"), ("skipped", "skipped")):
            suite.set(key, str(len(suite.findall(f"testcase/{kind}"))))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def clean(text: str) -> str:
    """Removes the characters that XML does not allow."""
    return "".join(c for c in text if c in "\t\n" or " " <= c <= "\ud7ff" or c >= "\ue000")
