# SPDX-License-Identifier: BSD-3-Clause
"""The workspace, as a program sees it that `./bazelw run` started."""

import os
import subprocess
from pathlib import Path


def root() -> Path:
    """The top of the source tree.

    Raises:
        SystemExit: the program was not started by `./bazelw run`.
    """
    folder = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if folder is None:
        raise SystemExit("start this with ./bazelw run, which tells it where the source tree is")
    return Path(folder)


def bazel(*args: str) -> subprocess.CompletedProcess[str]:
    """Runs ./bazelw in the output base that this program was built in.

    `bazel run` starts a program in its runfiles, below OUTPUT_BASE/execroot, and has let go of the
    server by then.

    Args:
        *args: command and arguments of Bazel.

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
