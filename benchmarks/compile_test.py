# SPDX-License-Identifier: BSD-3-Clause
"""The compile benchmark measures what it says. No test here depends on how long anything takes."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks import compile as program
from benchmarks.compile import Row, table
from benchmarks.compile_cases import COMPILE_CASES, CompileCase


@pytest.mark.parametrize("case", COMPILE_CASES, ids=lambda case: case.name)
def test_case_computes_the_same_on_both_devices(case: CompileCase) -> None:
    expected, actual = (
        case.make(torch.device(device), lambda function: function)()
        for device in ("cpu", "openreg")
    )
    assert actual.device.type == "openreg"
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-3, atol=1e-3)


def test_quick_run_writes_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    figures, picture = tmp_path / "compile.json", tmp_path / "compile.png"
    flags = ["--quick", "--filter", "pointwise", "--json", str(figures), "--plot", str(picture)]
    assert program.main(flags) == 0
    (row,) = json.loads(figures.read_text())["results"]
    assert row["name"] == "pointwise chain 1M"
    assert set(row["us"]) == {"cpu eager", "cpu compiled", "openreg eager", "openreg compiled"}
    assert min(row["us"].values()) > 0
    assert 0 < row["low"] <= row["ratio"] <= row["high"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "pointwise chain 1M" in capsys.readouterr().out


def test_table_says_what_was_met_and_what_failed() -> None:
    us = {"cpu compiled": 2.0, "openreg compiled": 2.2}
    rows = [
        Row("good", 1.1, us, 1.1, 1.0, 1.2),
        Row("slow", 1.1, us, 1.2, 1.0, 1.3),
        Row("none", 1.1, error="it died"),
    ]
    lines = table(rows).splitlines()
    assert [line.split()[-1] for line in lines[1:3]] == ["met", "missed"]
    assert lines[3].endswith("<= 1.10  failed: it died")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--filter", "nothing like it"], "no case has 'nothing like it' in its name"),
        (["--threads", "0"], "'0' is not a whole number of at least 1"),
    ],
)
def test_wrong_flag_is_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        program.main(argv)
    assert message in capsys.readouterr().err
