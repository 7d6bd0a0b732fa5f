# SPDX-License-Identifier: BSD-3-Clause
"""The report of lint, and the selection of files for each tool."""

from pathlib import Path

import pytest

from tools.linters import lint
from tools.linters.lint import Linter, command_output, is_prose, is_shell, is_starlark, report


def test_nothing_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        report([Linter("one", ["a"], lambda fix: ""), Linter("two", ["a"], lambda fix: "")], False)
        == 0
    )
    assert "2 linters, nothing found" in capsys.readouterr().out


def test_a_finding_fails_and_says_how_to_fix_it(capsys: pytest.CaptureFixture[str]) -> None:
    tools = [Linter("one", ["a"], lambda fix: "a:1: bad\n"), Linter("two", ["a"], lambda fix: "")]
    assert report(tools, False) == 1
    out = capsys.readouterr().out
    assert "a:1: bad" in out
    assert "1 of 2 linters found something: one" in out
    assert "--fix" in out


def test_fix_reaches_the_tool() -> None:
    assert report([Linter("one", ["a"], lambda fix: "" if fix else "bad")], True) == 0


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], [("words", False), ("docs", False)]),
        (["--fix", "docs"], [("words", True), ("docs", True)]),
        (["--only", "words"], [("words", False)]),
        (["--only", "docs"], [("docs", False)]),
    ],
)
def test_flags(
    flags: list[str],
    expected: list[tuple[str, bool]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "docs").mkdir()
    ran: list[tuple[str, bool]] = []

    def tool(name: str) -> Linter:
        def run(fix: bool) -> str:
            ran.append((name, fix))
            return ""

        return Linter(name, ["a"], run)

    def linters(root: Path, folders: list[str], _buildifier: Path) -> list[Linter]:
        assert (root, folders) == (tmp_path, flags[1:] if "--fix" in flags else [])
        return [tool("words"), tool("docs")]

    monkeypatch.setattr(lint, "linters", linters)
    monkeypatch.setattr("tools.bazel_workspace.root", lambda: tmp_path)
    monkeypatch.setattr("sys.argv", ["lint", "--buildifier=buildifier", *flags])
    assert lint.main() == 0
    assert ran == expected


def test_a_tool_without_files_is_not_run() -> None:
    assert report([Linter("one", [], lambda fix: "usage: one FILE")], False) == 0


def test_a_silent_failure_is_a_finding(tmp_path: Path) -> None:
    assert command_output(tmp_path, ["true"]) == ""
    assert "exit status 1" in command_output(tmp_path, ["false"])


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("bazelw", "#!/bin/bash\n", True),
        ("run", "#!/usr/bin/env bash\n", True),
        ("merge.sh", "true\n", True),
        ("LICENSE", "BSD\n", False),
        ("tool", "#!/usr/bin/env python3\n", False),
        ("tool.py", "#!/bin/sh\n", False),
    ],
)
def test_shell_scripts(tmp_path: Path, name: str, text: str, expected: bool) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert is_shell(path) is expected


def test_starlark_files() -> None:
    assert is_starlark(Path("a/BUILD.bazel"))
    assert is_starlark(Path("tools/cc.bzl"))
    assert not is_starlark(Path("tools/bazel"))


def test_prose() -> None:
    assert is_prose("docs/bazel.md")
    assert is_prose("bazelw")
    assert is_prose("tools/linters/words.py")
    assert not is_prose("requirements.lock")
    assert not is_prose("aten/structured/testdata/out.cc")
    assert not is_prose("tools/linters/phrases.txt")
