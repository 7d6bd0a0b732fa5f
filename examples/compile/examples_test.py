# SPDX-License-Identifier: BSD-3-Clause
"""Each example prints the documented output."""

from pathlib import Path

import pytest
import torch

from examples.compile import const_fold, gelu, preprocess_then_inductor, silu_opt


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch._dynamo.reset()


def test_silu_opt(capsys: pytest.CaptureFixture[str]) -> None:
    assert silu_opt.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "forward: aten.silu.default, aten.add.Tensor",
        "backward: aten.silu_backward.default",
        "same result and gradient as eager mode",
    ]


def test_const_fold(capsys: pytest.CaptureFixture[str]) -> None:
    assert const_fold.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.endswith("(6)")]) == 2  # forward and backward
    assert not any("0.03" in line for line in lines)


def test_gelu(capsys: pytest.CaptureFixture[str]) -> None:
    assert gelu.main() == 0
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("root 1.4142: exact_gelu: ")
    assert second == "root 1.5000: nothing to rewrite"


def test_preprocess_then_inductor(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    assert preprocess_then_inductor.main(str(tmp_path)) == 0
    captured = capsys.readouterr()
    assert captured.out.endswith("openreg:0: same result as in eager mode\n")
    assert "layer_norm: " in captured.err
    assert "silu: " in captured.err
    names = [Path(line).name for line in captured.out.splitlines() if line.endswith(".dot")]
    assert names == ["graph_0_0_captured_after.dot", "graph_0_0_captured_before.dot"]
