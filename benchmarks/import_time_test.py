# SPDX-License-Identifier: BSD-3-Clause
"""Tests the import benchmark. No test depends on times."""

import json
from pathlib import Path

import pytest

from benchmarks import import_time


def test_steps_of_importtime() -> None:
    text = """\
import time: self [us] | cumulative | imported package
import time:      1500 |       1500 |   torch_openreg_autoload.installation
import time:       500 |       2000 | torch_openreg_autoload
import time:     20000 |      20000 |       torch_openreg._C
import time:      4000 |      24000 |     torch_openreg.openreg.memory
import time:      1000 |       1000 |     csv
import time:       250 |        250 |     torch_openreg_compile.registration
import time:       125 |      25125 |   torch_openreg.registration
import time:       125 |      25250 | torch_openreg
"""
    assert import_time.steps(text) == {
        "libraries": 20.0,
        "modules of torch.openreg": 4.0,
        "entry point": 2.0,
        "torch.compile": 0.25,
        "register": 0.25,
        "modules of Python": 1.0,
    }


def test_figures_of_a_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "import.json"
    assert import_time.main(["--processes", "2", "--json", str(path)]) == 0
    figures = json.loads(path.read_text())
    assert figures["processes"] == 2
    printed = capsys.readouterr().out
    rows = {row["step"]: row for row in figures["steps"]}
    for row in rows.values():
        rounding = 1e-9  # quartiles are interpolated
        assert row["low"] - rounding <= row["median"] <= row["high"] + rounding
    for step in ("find", "libraries", "modules of torch.openreg", "register", "all"):
        assert rows[step]["median"] > 0
        assert f"\n{step} " in printed
    assert rows["libraries"]["low"] < rows["all"]["high"]


def test_failed_process_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(import_time, "_PROGRAM", "raise RuntimeError('no torch')")
    assert import_time.main(["--processes", "1"]) == 1
    assert "no torch" in capsys.readouterr().err


def test_wrong_flag_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        import_time.main(["--processes", "0"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
