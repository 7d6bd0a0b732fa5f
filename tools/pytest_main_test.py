# SPDX-License-Identifier: BSD-3-Clause
"""Tests how the main program of tests handles the variables that Bazel sets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("pytest_main.py")
TESTS = """\
def test_cdist(): pass
def test_copy(): assert False
"""


def status(folder: Path, **environment: str) -> int:
    """Runs the tests in the environment and returns the exit status."""
    (folder / "pyproject.toml").touch()
    (folder / "some_test.py").write_text(TESTS)
    bazel = {"TEST_SRCDIR": str(folder), "TEST_WORKSPACE": "."}
    # The variables that Bazel sets for this test do not apply.
    outer = {name: value for name, value in os.environ.items() if not name.startswith("TEST")}
    outer.pop("XML_OUTPUT_FILE", None)
    command = [sys.executable, str(PROGRAM), "some_test.py"]
    return subprocess.run(command, env={**outer, **bazel, **environment}, check=False).returncode


@pytest.mark.parametrize(("chosen", "expected"), [("cdist", 0), ("copy", 1), ("none", 0)])
def test_filter_selects_tests_by_name(tmp_path: Path, chosen: str, expected: int) -> None:
    assert status(tmp_path, TESTBRIDGE_TEST_ONLY=chosen) == expected


def test_all_tests_run_without_a_filter(tmp_path: Path) -> None:
    assert status(tmp_path) == 1


@pytest.mark.parametrize("index", [0, 1])
def test_each_shard_runs_its_tests(tmp_path: Path, index: int) -> None:
    supported = tmp_path / "supported"
    shard = {"TEST_TOTAL_SHARDS": "2", "TEST_SHARD_INDEX": str(index)}
    assert status(tmp_path, TEST_SHARD_STATUS_FILE=str(supported), **shard) == index
    assert supported.exists()
