# SPDX-License-Identifier: BSD-3-Clause
"""The code generated for one operator of each kind matches the formatted files in testdata/."""

import os
import pathlib
import subprocess
import sys

import pytest

from aten.structured.operator_list import read_entries
from aten.structured.source_file import write_shards
from aten.structured.torch_operators import Torch

FOLDER = pathlib.Path(__file__).parent
STYLE = FOLDER.parents[1] / ".clang-format"
REWRITE = "REWRITE_GOLDEN=1 ./bazelw run //aten/structured:golden_test"


@pytest.fixture(scope="module")
def torch_operators() -> Torch:
    """The operators of PyTorch. Parsing them takes half a second."""
    return Torch()


def clang_format(code: str) -> str:
    """Return the code formatted in the project's style."""
    program = str(pathlib.Path(sys.prefix, "bin", "clang-format"))
    command = [program, f"--style=file:{STYLE}", "--assume-filename=kernels.cc"]
    return subprocess.check_output(command, input=code, text=True)


@pytest.mark.parametrize(
    "operator",
    [
        "add.Tensor",  # Structured: iterates, converts operands, has a fast path.
        "mm",  # Structured, without a TensorIterator.
        "max.dim",  # Structured: several outputs; meta() passes values to impl().
        "index.Tensor",  # Structured: prepares an argument, never converts operands.
        "baddbmm",  # Structured: meta() always runs on the device tensors.
        "fill_.Scalar",  # Mutating: checks its arguments.
        "_foreach_add_.Scalar",  # Mutating: one launch under a condition.
    ],
)
def test_written_code_is_the_golden_file(torch_operators: Torch, operator: str) -> None:
    entries = read_entries((FOLDER / "operators.yaml").read_text(), torch_operators)
    (entry,) = (entry for entry in entries if entry.name == operator)
    (written,) = write_shards([entry], torch_operators, 1)
    code = clang_format(written)
    name = f"{entry.namespace}.cc"
    if os.environ.get("REWRITE_GOLDEN"):
        root = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
        folder = pathlib.Path(root, "aten", "structured") if root else FOLDER
        (folder / "testdata" / name).write_text(code)
        return
    golden = FOLDER / "testdata" / name
    assert golden.exists(), f"write it with: {REWRITE}"
    assert code == golden.read_text(), f"if the change is intended, rewrite it with: {REWRITE}"


def test_file_is_rewritten_in_the_source_tree(
    torch_operators: Torch, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    testdata = tmp_path / "aten" / "structured" / "testdata"
    testdata.mkdir(parents=True)
    monkeypatch.setenv("REWRITE_GOLDEN", "1")
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    test_written_code_is_the_golden_file(torch_operators, "mm")
    (written,) = testdata.iterdir()
    assert written.read_text() == (FOLDER / "testdata" / written.name).read_text()
