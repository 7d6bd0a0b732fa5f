# SPDX-License-Identifier: BSD-3-Clause
"""Follows porting.md: executes its commands, applies its changes, and builds the backend.

./bazelw run //docs:walk_through

A block of the page is executed if it is below one of these marks:

<!-- porting: here -->  in this repository
<!-- porting -->        in the new repository
<!-- porting: diff -->  the changes are applied to the new repository

The new repository is in a temporary folder.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tools import bazel_workspace
from tools.code_blocks import CodeBlock, code_blocks


def execute(block: CodeBlock, here: Path, there: Path, environment: Mapping[str, str]) -> None:
    """Executes a block.

    Raises:
        subprocess.CalledProcessError: if a command of the block fails.
    """
    command = ["git", "apply", "-"] if block.argument == "diff" else ["bash", "-euxo", "pipefail"]
    subprocess.run(
        command,
        cwd=here if block.argument == "here" else there,
        env=environment,
        input=block.text,
        text=True,
        check=True,
    )


def prepare(here: Path, there: Path) -> None:
    """Links the Python environment to the new repository and sets an output folder beside it."""
    same = ("requirements.lock", "requirements.torch")
    if all((here / name).read_bytes() == (there / name).read_bytes() for name in same):
        (there / ".venv").symlink_to((here / ".venv").resolve())
    output = there.with_name(f"{there.name}_output")
    (there / ".bazelrc.user").write_text(f"startup --output_base={output}\n")


def follow(here: Path, there: Path, environment: Mapping[str, str]) -> bool:
    """Executes all blocks until one fails. Returns whether all succeeded."""
    for block in code_blocks((here / "docs/porting.md").read_text()):
        if block.mark != "porting":
            continue
        start = time.monotonic()
        try:
            execute(block, here, there, environment)
        except subprocess.CalledProcessError as error:
            print(f"FAIL porting.md:{block.line}: status {error.returncode}", flush=True)
            return False
        print(f"ok   porting.md:{block.line}: {time.monotonic() - start:.0f} s", flush=True)
        if not (there / ".bazelrc.user").exists():
            prepare(here, there)
    return True


def main() -> int:
    """Runs the program and returns its exit status."""
    here = bazel_workspace.root()
    # Bazel sets these variables for this program. A user who follows the page does not have them.
    ours = ("PYTHONPATH", "PYTHONSAFEPATH", "RUNFILES_DIR", "RUNFILES_MANIFEST_FILE")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        there = Path(folder, "acme")
        succeeded = follow(here, there, {**environment, "OUT": str(there)})
        subprocess.run(["./bazelw", "shutdown"], cwd=there, env=environment, check=False)
        # Bazel removes the write permission from the files that it builds.
        subprocess.run(["chmod", "-R", "u+w", folder], check=False)
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
