# SPDX-License-Identifier: BSD-3-Clause
"""Tests the profiler benchmark. No test depends on times."""

import json
from pathlib import Path

import pytest

from benchmarks import profiling


def test_ratios_are_those_within_a_round() -> None:
    found = profiling.rows(
        {
            "cpu": {"none": [100, 200], "cpu": [150, 300]},
            "openreg": {"none": [100, 100], "device": [120, 120], "cpu": [200, 200]},
        }
    )
    rows = {(row.device, row.way): row for row in found}
    assert rows["cpu", "cpu"].median == 1.5
    assert rows["cpu", "cpu"].met is None
    assert rows["openreg", "device"].median == 1.2
    assert rows["openreg", "device"].met is True
    assert rows["openreg", "cpu"].bound == 1.5
    assert rows["openreg", "cpu"].met is False
    assert "missed" in profiling.table(found)


def test_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "CALLS", 20)
    path = tmp_path / "profiler.json"
    assert profiling.main(["--rounds", "2", "--json", str(path)]) == 0
    rows = json.loads(path.read_text())["rows"]
    assert [(row["device"], row["way"]) for row in rows] == [
        ("cpu", "none"),
        ("cpu", "cpu"),
        *(("openreg", way) for way in profiling.WAYS),
    ]
    assert all(row["ns"] > 0 for row in rows)
    assert all(row["median"] == 1 for row in rows if row["way"] == "none")
    assert "cpu and device" in capsys.readouterr().out
