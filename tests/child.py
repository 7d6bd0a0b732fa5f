# SPDX-License-Identifier: BSD-3-Clause
"""Runs Python code in a separate process."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

#: A child process that runs for more than this many seconds counts as hung. Importing torch is
#: included.
PATIENCE = 100.0


def run(code: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs ``code`` and returns the finished process.

    Args:
        code: the program; common indentation is removed.
        options: options of the interpreter (``"-W"``, ``"error"``).
        environment: additional environment variables.
    """
    return _start([*options, "-c", textwrap.dedent(code)], environment)


def script(path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a Python file in its own folder and returns the finished process.

    Args:
        path: path of the file.
        arguments: arguments of the program.
        environment: additional environment variables.
    """
    return _start([str(path), *arguments], environment, path.parent)


def _start(
    arguments: list[str], environment: dict[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def output(code: str, *options: str, **environment: str) -> str:
    """Runs ``code``, which must succeed. Returns its output without surrounding whitespace."""
    done = run(code, *options, **environment)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()
