# SPDX-License-Identifier: BSD-3-Clause
"""Finds the workspace and runs Bazel, for programs that are started by `./bazelw run`."""

import os
import subprocess
from pathlib import Path


def root() -> Path:
    """Returns the root folder of the source tree.

    Raises:
        SystemExit: if the program was not started by `./bazelw run`.
    """
    folder = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if folder is None:
        raise SystemExit("start this program with ./bazelw run, which passes it the tree's path")
    return Path(folder)


def bazel(*args: str) -> subprocess.CompletedProcess[str]:
    """Runs ./bazelw in the output base in which this program was built.

    `bazel run` releases the Bazel server before it starts a program. The program's working
    directory is its runfiles folder, below OUTPUT_BASE/execroot.

    Args:
        *args: Bazel's command and its arguments.

    Returns:
        The finished process, with stdout and stderr.
    """
    parts = Path.cwd().parts
    startup = []
    if "execroot" in parts:
        output_base = Path(*parts[: parts.index("execroot")])
        startup.append(f"--output_base={output_base}")
    return subprocess.run(
        ["./bazelw", *startup, *args], cwd=root(), capture_output=True, text=True, check=False
    )
