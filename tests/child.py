# SPDX-License-Identifier: BSD-3-Clause
"""Python code in a process of its own: what a test cannot do to, or see in, its own process."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

#: Seconds after which a child is taken to hang. Importing torch is some seconds of it.
PATIENCE = 100.0


def run(code: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` and return what became of it.

    Args:
        code: the program; common indentation is taken off.
        options: of the interpreter (``"-W"``, ``"error"``).
        environment: variables to set besides those of this process.
    """
    return _start([*options, "-c", textwrap.dedent(code)], environment)


def script(path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a Python file, in its own folder, and return what became of it.

    Args:
        path: of the file.
        arguments: of the program.
        environment: variables to set besides those of this process.
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
    """Run ``code``, require that it succeeds and return what it printed, without outer spaces."""
    done = run(code, *options, **environment)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()
