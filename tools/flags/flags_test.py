# SPDX-License-Identifier: BSD-3-Clause
"""Flags accept valid values and report each invalid value in one line."""

import argparse
from pathlib import Path

import pytest
import torch

from tools.flags import flags


@pytest.fixture
def typed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sets the variable in which `bazel run` passes the user's working directory."""
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    return tmp_path


def test_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    parser = flags.Flags("program", "Does something.")
    parser.add_argument("--size", type=flags.whole_number(2), default=2, help="of it")
    assert parser.parse_args(["--size", "3"]).size == 3
    for argv in (["--size", "1"], ["--size", "two"], ["--size"], ["--siz", "3"], ["more"]):
        with pytest.raises(SystemExit) as exit_:
            parser.parse_args(argv)
        assert exit_.value.code == 2
        err = capsys.readouterr().err
        assert err.startswith("program: ")
        assert err.count("\n") == 1


def test_cpu_is_always_here() -> None:
    assert flags.device("cpu") == torch.device("cpu")
    assert flags.device("cpu:0") == torch.device("cpu", 0)


@pytest.mark.parametrize("name", ["nonsense", "cpu:1", "cuda", "meta", "", "cpu:x"])
def test_missing_device_lists_those_that_are_here(name: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as error:
        flags.device(name)
    assert str(error.value).startswith(f"there is no device {name!r}, only cpu (1)")


def test_missing_backend_is_hinted_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    with pytest.raises(argparse.ArgumentTypeError, match="check that torch_openreg is installed"):
        flags.device("openreg")


def test_output_is_relative_to_where_the_command_was_typed(typed_in: Path) -> None:
    assert flags.output("figures.json") == typed_in / "figures.json"
    assert flags.picture("figures.png") == typed_in / "figures.png"
    assert flags.picture("none") is None
    assert flags.output("/dev/null") == Path("/dev/null")


@pytest.mark.parametrize("name", ["missing/figures.png", ".", "figures.docx"])
def test_output_that_cannot_be_written(name: str, typed_in: Path) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"cannot be written|must end in one of"):
        flags.picture(name)
