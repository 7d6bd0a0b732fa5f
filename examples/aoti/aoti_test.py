# SPDX-License-Identifier: BSD-3-Clause
"""Tests the example: a model compiled in Python runs in a C++ program, on every device."""

import os
import subprocess
from pathlib import Path

import pytest
import torch

from examples.aoti.export import main

RUN = Path(os.environ["TEST_SRCDIR"]) / "torch_openreg" / "examples" / "aoti" / "run"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "cache"))
        assert main([str(folder)]) == 0
    return folder


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RUN, *map(str, arguments)], capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.parametrize("index", [0, 1])
def test_the_program_computes_the_result_of_the_cpu(folder: Path, index: int) -> None:
    done = run(folder / "model.pt2", folder / "tensors.pt", index)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"on openreg:{index}: as expected\n"


def test_the_program_detects_a_wrong_result(folder: Path, tmp_path: Path) -> None:
    tensors = torch.load(folder / "tensors.pt")
    tensors["expected"] += 1e-3
    torch.save(tensors, tmp_path / "tensors.pt")
    done = run(folder / "model.pt2", tmp_path / "tensors.pt")
    assert done.returncode == 1, done.stderr
    assert done.stdout == "on openreg:0: NOT as expected\n"


def test_errors_are_reported(folder: Path, tmp_path: Path) -> None:
    assert run().returncode == 2
    done = run(folder / "model.pt2", folder / "tensors.pt", 7)
    assert done.returncode == 2
    assert "The device index is out of range" in done.stderr
