# SPDX-License-Identifier: BSD-3-Clause
"""Tests the services benchmark. No test depends on times."""

import itertools
import json
from pathlib import Path

import pytest
import torch

from benchmarks import services, timeline
from benchmarks.cases import CASES, Case
from benchmarks.service_cases import SERVICES
from benchmarks.timeline import LANES, Span


@pytest.mark.parametrize("case", SERVICES, ids=lambda case: case.name)
def test_case_gives_the_same_on_both_devices(case: Case) -> None:
    expected = case.make(torch.device("cpu"))()
    actual = case.make(torch.device("openreg"))()
    torch.openreg.synchronize()
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if case.deterministic:
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-3)


def test_names_are_unique() -> None:
    assert len({case.name for case in (*CASES, *SERVICES)}) == len(CASES) + len(SERVICES)


def test_quick_run_writes_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {name: tmp_path / f"services.{name}" for name in ("json", "png", "svg")}
    flags = ["--quick", "--filter", "query|take 4 KiB$", "--json", str(files["json"])]
    flags += ["--plot", str(files["svg"]), "--timeline", str(files["png"])]
    assert services.main(flags) == 0
    (run,) = json.loads(files["json"].read_text())["runs"]
    assert run["threads"] == 1
    assert [r["name"] for r in run["results"]] == ["take 4 KiB", "query"]
    for result in run["results"]:
        assert result["cpu_us"] > 0
        assert result["device_us"] > 0
        assert result["error"] == ""
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in files["svg"].read_text()
    assert "copies overlap computation for" in capsys.readouterr().out


def test_spans_are_in_the_order_of_their_streams() -> None:
    spans = timeline.record(torch.device("openreg"), 3, 64)
    lanes = {lane: [span for span in spans if span.lane == lane] for lane in LANES}
    assert [len(found) for found in lanes.values()] == [3] * 3
    for found in lanes.values():
        for span in found:
            assert 0 <= span.start <= span.end
        for one, following in itertools.pairwise(found):
            assert one.end <= following.start
    # A batch is copied in, then computed, then copied out.
    for came, computed, went in zip(*lanes.values(), strict=True):
        assert came.end <= computed.start
        assert computed.end <= went.start


def test_overlap() -> None:
    spans = [
        Span("copies in", 0.0, 2.0),
        Span("copies in", 2.0, 3.0),
        Span("computation", 1.0, 2.5),
        Span("copies out", 2.25, 4.0),
    ]
    assert timeline.overlap(spans) == pytest.approx(1.5)
    assert timeline.overlap(spans[:2]) == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--filter", "no such case"], f"'no such case' matches none of the {len(SERVICES)} cases"),
        (["--timeline", "lanes.txt"], "'lanes.txt' must end in one of"),
        (["--timeline", "lanes.png", "--device", "cpu"], "which the CPU does not have"),
    ],
)
def test_wrong_flag_is_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        services.main(argv)
    assert exit_.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("services: ")
    assert err.count("\n") == 1
    assert message in err
