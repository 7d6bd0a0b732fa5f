# SPDX-License-Identifier: BSD-3-Clause
"""In a browser, the HTML page of a report renders, filters, and shows evidence."""

import datetime
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from torch_device_conformance.report.html import html
from torch_device_conformance.report.report import Report
from torch_device_conformance.report.waivers import Waiver, Waivers
from torch_device_conformance.verdict.verdict import (
    CRASH,
    FALLBACK,
    MISSING,
    NATIVE,
    WRONG,
    Verdict,
    parse_case,
)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

VERDICTS = [
    Verdict(parse_case("contract/streams/order"), NATIVE),
    Verdict(parse_case("contract/events/wait"), CRASH, "SIGSEGV", stack="Fatal Python error"),
    Verdict(parse_case("op/eager/float32/add"), NATIVE, routes={"aten::add.Tensor": NATIVE}),
    Verdict(parse_case("op/eager/bfloat16/add"), WRONG, "far <apart>", largest=0.5, sample="[2]"),
    Verdict(parse_case("op/out/float32/add"), FALLBACK, routes={"aten::add.out": FALLBACK}),
    Verdict(parse_case("op/eager/float32/erf"), MISSING, "no kernel"),
    Verdict(parse_case("op/eager/float32/sub"), NATIVE),
]

WAIVERS = Waivers(
    (Waiver(("op/eager/float32/sub",), (WRONG,), "planted", datetime.date.max),), strict=True
)

# Operates the page, and adds the displayed text to the document that --dump-dom prints.
ACTIONS = """
<script>
const seen = {};
const rows = () => [...document.querySelectorAll("#body tr")].map(r => r.firstChild.textContent);
const set = (id, value) => { $(id).value = value; $(id).dispatchEvent(new Event("input")); };
seen.title = document.title;
seen.cards = [...document.querySelectorAll(".card b")].map(b => b.textContent);
seen.all = rows();
seen.cells = [...document.querySelectorAll("#body tr:first-child button")].map(b => b.textContent);
set("search", "er"); seen.searched = rows(); set("search", "");
set("verdict", "fails"); seen.fails = rows(); set("verdict", "");
set("mode", "out"); seen.mode = rows(); set("mode", "");
document.querySelector("#body button").click();
seen.open = $("dialog").open; seen.detail = $("detail").textContent; $("close").click();
seen.closed = !$("dialog").open;
const rowsOfContract = [...document.querySelectorAll("#contract button")];
rowsOfContract.find(b => b.textContent.includes("wait")).click();
seen.row = $("detail").textContent; $("close").click();
rowsOfContract.find(b => b.textContent.includes("order")).click();
seen.held = $("detail").textContent; $("close").click();
$("by-overload").click(); seen.overloads = rows();
document.body.append(Object.assign(document.createElement("pre"),
  { id: "seen", textContent: JSON.stringify(seen) }));
</script>
</body>"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Runs ACTIONS in Chromium. Returns what the page displayed after each step."""
    assert CHROMIUM, "chromium is not installed; run apt-get install chromium"
    heading = {
        "device": "npu",
        "tier": "quick",
        "seed": 0,
        "command": "python -m torch_device_conformance --device npu",
        "description": {"dispatch": {"aten::erf": MISSING}},
    }
    page = html(Report(heading, {v.case: v for v in VERDICTS}), WAIVERS)
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page.replace("</body>", ACTIONS))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    profile = f"--user-data-dir={path.parent / 'profile'}"
    done = subprocess.run(
        [*command, profile, path.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    assert 'data-ready="true"' in done.stdout, done.stdout[-2000:]
    (found,) = re.findall(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    text = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    result: dict[str, Any] = json.loads(text)
    return result


def test_page_is_drawn(seen: dict[str, Any]) -> None:
    assert seen["title"] == "Conformance of npu"
    assert seen["cards"] == ["1 / 2", "40.0%", "20.0%", "4", "7"]
    assert seen["all"] == ["add", "erf", "sub"]
    assert seen["cells"] == ["wrong", "fallback"]


def test_filters(seen: dict[str, Any]) -> None:
    assert seen["searched"] == ["erf"]
    assert seen["fails"] == ["add", "erf", "sub"]
    assert seen["mode"] == ["add"]
    assert seen["overloads"] == ["aten::add.Tensor", "aten::add.out", "aten::erf"]


def test_click_shows_the_evidence(seen: dict[str, Any]) -> None:
    assert seen["open"]
    assert seen["closed"]
    assert "far <apart>" in seen["detail"]
    assert "--only op/eager/bfloat16/add" in seen["detail"]
    assert "torch requires" in seen["row"]
    assert "Fatal Python error" in seen["row"]
    assert seen["held"].startswith("contract/streams/orderverdictholdstorch requires")
