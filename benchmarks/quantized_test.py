# SPDX-License-Identifier: BSD-3-Clause
"""Tests the quantization benchmark. No test depends on times."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks import quantized


def test_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantized, "WIDTH", 128)
    monkeypatch.setattr(quantized, "HEADS", 4)
    monkeypatch.setattr(quantized, "WINDOW", 0.001)
    path = tmp_path / "quantized.json"
    assert quantized.main(["--rounds", "1", "--json", str(path)]) == 0
    rows = {
        (row["model"], row["rows"], row["way"]): row for row in json.loads(path.read_text())["rows"]
    }
    assert len(rows) == len(quantized.MODELS) * 2 * len(quantized.WAYS)
    for (model, count, way), row in rows.items():
        exact = rows[model, count, "float32"]
        assert row["microseconds"] > 0
        # The size is at most about a third of float32's, or a sixth for int4. The exact ratio
        # depends on scales and biases.
        small = {"float32": 1.0, "int4 weights": 0.17}.get(way, 0.3)
        assert row["megabytes"] <= small * exact["megabytes"]
        bound = {"float32": 0.0, "int4 weights": 0.2}.get(way, 0.03)
        assert row["error"] <= bound
    printed = capsys.readouterr().out
    assert printed.startswith("| model | rows | weights | us | ratio | MB | error |")


def test_layers_have_the_weight_that_they_replace() -> None:
    linear = torch.nn.Linear(128, 64, device="openreg")
    x = torch.randn(3, 128, device="openreg")
    for way, make in quantized.WAYS.items():
        error = (make(linear)(x) - linear(x)).norm() / linear(x).norm()
        assert error.item() < 0.2, way
