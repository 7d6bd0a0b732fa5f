# SPDX-License-Identifier: BSD-3-Clause
"""Executes the code in the pages, each block in an empty folder and in processes of its own.

A mark above the block says how it is executed. In marks, CODE may have several lines.

<!-- run -->, <!-- run: CODE -->
    The block is a Python program. CODE runs first and creates the objects that the block requires
    (for example, a model).
<!-- output: CODE -->
    The Python program CODE prints the block. The program may fail.
<!-- shell -->, <!-- shell: CODE -->
    Bash executes CODE and then the block. If lines begin with "$ ", these are the commands, and the
    other lines are their output. Then a command may fail.

A comparison of output ignores line breaks, and addresses are equal. `...` represents omitted text.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.code_blocks import CodeBlock, code_blocks

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(*marks: str) -> list[object]:
    """Returns the blocks with one of the marks as parameters of a test."""
    return [
        pytest.param(block, id=f"{page.name}:{block.line}")
        for page in PAGES
        for block in code_blocks(page.read_text())
        if block.mark in marks
    ]


def execute(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Executes a command in a folder. `python` is this Python, with the modules of this test."""
    path = [str(Path(sys.executable).parent), os.environ["PATH"]]
    return subprocess.run(
        command,
        cwd=folder,
        env={
            **os.environ,
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,  # on a busy machine
        check=False,
    )


def run_program(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Executes a Python program.

    The code is in a file, because processes that are started with spawn import the program.
    """
    (folder / "program.py").write_text(code)
    return execute([sys.executable, "program.py"], folder)


def normalized(text: str) -> str:
    """Returns output without the differences that a comparison ignores."""
    return " ".join(re.sub(r"\b0x[0-9a-f]+", "0x", text).split())


def assert_printed(expected: str, output: str) -> None:
    """Checks that a program printed the text, in which `...` represents omitted parts."""
    found = normalized(output)
    position = 0
    for part in expected.split("..."):
        start = found.find(normalized(part), position)
        assert start >= 0, f"expected:\n{expected}\nmissing:\n{part}\nfound:\n{output}"
        position = start + len(normalized(part))


@pytest.mark.parametrize("block", blocks("run"))
def test_program(block: CodeBlock, tmp_path: Path) -> None:
    code = f"{block.argument}\n{block.text}"
    done = run_program(code, tmp_path)
    assert done.returncode == 0, f"{code}\n{done.stdout}"


@pytest.mark.parametrize("block", blocks("output"))
def test_output(block: CodeBlock, tmp_path: Path) -> None:
    assert_printed(block.text, run_program(block.argument, tmp_path).stdout)


@pytest.mark.parametrize("block", blocks("shell"))
def test_commands(block: CodeBlock, tmp_path: Path) -> None:
    lines = block.text.splitlines()
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    script = "\n".join([block.argument, *(commands or lines)])
    flags = "-uo" if commands else "-euo"
    done = execute(["bash", flags, "pipefail", "-c", script], tmp_path)
    if commands:
        assert_printed("\n".join(line for line in lines if not line.startswith("$ ")), done.stdout)
    else:
        assert done.returncode == 0, f"{script}\n{done.stdout}"


def test_each_kind_of_block_is_found() -> None:
    for mark in ("run", "output", "shell"):
        assert blocks(mark)


@pytest.mark.parametrize(
    ("expected", "output", "printed"),
    [
        ("a b\n  c", "x a\nb c y", True),
        ("block at 0x7f00", "block at 0x1234", True),
        ("first ... last", "first 2 3 last", True),
        ("last ... first", "first 2 3 last", False),
        ("a b", "a c", False),
    ],
)
def test_comparison(expected: str, output: str, printed: bool) -> None:
    if printed:
        assert_printed(expected, output)
    else:
        with pytest.raises(AssertionError):
            assert_printed(expected, output)
