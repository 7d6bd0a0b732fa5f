# SPDX-License-Identifier: BSD-3-Clause
"""An SVG badge with two shares: required rows that pass, and operators run by the device.

If a report contains neither, like that of a model, the badge shows the share of cases that pass.
"""

from xml.sax.saxutils import escape

from torch_device_conformance.report.report import Report, percent
from torch_device_conformance.report.waivers import Waivers
from torch_device_conformance.verdict.verdict import COMPOSITE, MISSING, NATIVE, NOT_RUN

# The approximate width of a character in an 11-pixel font, in pixels.
CHARACTER = 6.6

SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" \
aria-label="{label}: {value}">
<title>{label}: {value}</title>
<rect width="{width}" height="20" rx="3" fill="#41464d"/>
<path d="M{split} 0h{rest}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{rest}z" fill="{color}"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">
<text x="{left}" y="14">{label}</text>
<text x="{right}" y="14">{value}</text>
</g>
</svg>
"""


def badge(report: Report, waivers: Waivers) -> str:
    """Returns the badge as SVG.

    It is red if a case is wrong, amber if one is missing or was not run, and green otherwise.
    """
    passed, of = report.required()
    counted = report.counted()
    operators = [v for v in counted if v.case.suite == "op"]
    own = sum(v.verdict in (NATIVE, COMPOSITE) for v in operators)
    shares = [f"contract {percent(passed, of)}"] if of else []
    if operators:
        shares.append(f"operators {percent(own, len(operators))}")
    value = ", ".join(shares) or f"pass {percent(sum(v.passes for v in counted), len(counted))}"
    failed = {verdict.verdict for verdict in waivers.failures(report.verdicts.values())}
    color = "#c0392b" if failed - {MISSING, NOT_RUN} else "#b7791f" if failed else "#2e8b57"
    label = f"torch {report.heading['device']}"
    split = round(len(label) * CHARACTER + 14)
    width = split + round(len(value) * CHARACTER + 14)
    return SVG.format(
        width=width,
        split=split,
        rest=width - split - 3,
        left=split / 2,
        right=(split + width) / 2,
        label=escape(label),
        value=escape(value),
        color=color,
    )
