# SPDX-License-Identifier: BSD-3-Clause
"""Follows porting.md: executes its commands, applies its changes, and builds the backend.

./bazelw run //docs:walk_through

A block of the page is executed if it is below one of these marks:

<!-- porting: here -->        in this repository
<!-- porting -->              in the new repository, $OUT
<!-- porting: diff -->        the changes are applied to the new repository
<!-- porting: cmake -->       in the new repository that CMake builds, $OUT_CMAKE
<!-- porting: cmake diff -->  the changes are applied to that repository

The new repositories are in a temporary folder, together with an SDK that replaces the one in
/opt/acme.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools import bazel_workspace
from tools.code_blocks import CodeBlock, code_blocks

# The folder of the vendor's SDK in the page.
SDK = "/opt/acme"


@dataclass(frozen=True)
class Folders:
    """This repository, the two new ones, and the SDK."""

    here: Path
    there: Path
    cmake: Path
    sdk: Path


def execute(block: CodeBlock, folders: Folders, environment: Mapping[str, str]) -> None:
    """Executes a block.

    Raises:
        subprocess.CalledProcessError: if a command of the block fails.
    """
    kinds = block.argument.split()
    if "here" in kinds:
        folder = folders.here
    else:
        folder = folders.cmake if "cmake" in kinds else folders.there
    subprocess.run(
        ["git", "apply", "-"] if "diff" in kinds else ["bash", "-euxo", "pipefail"],
        cwd=folder,
        env=environment,
        input=block.text.replace(SDK, str(folders.sdk)),
        text=True,
        check=True,
    )


def make_sdk(folder: Path) -> None:
    """Creates an SDK with a header and a library."""
    for name in ("include", "lib"):
        (folder / name).mkdir(parents=True)
    (folder / "include" / "acmert.h").write_text("int acmertVersion();\n")
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-x", "c++", "-o", folder / "lib" / "libacmert.so", "-"],
        input="int acmertVersion() { return 1; }\n",
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


def follow(folders: Folders, environment: Mapping[str, str]) -> bool:
    """Executes all blocks until one fails. Returns whether all succeeded."""
    for block in code_blocks((folders.here / "docs/porting.md").read_text()):
        if block.mark != "porting":
            continue
        start = time.monotonic()
        try:
            execute(block, folders, environment)
        except subprocess.CalledProcessError as error:
            print(f"FAIL porting.md:{block.line}: status {error.returncode}", flush=True)
            return False
        print(f"ok   porting.md:{block.line}: {time.monotonic() - start:.0f} s", flush=True)
        if not (folders.there / ".bazelrc.user").exists():
            prepare(folders.here, folders.there)
    return True


def main() -> int:
    """Runs the program and returns its exit status."""
    here = bazel_workspace.root()
    # Bazel sets these variables for this program. A user who follows the page does not have them.
    ours = ("PYTHONPATH", "PYTHONSAFEPATH", "RUNFILES_DIR", "RUNFILES_MANIFEST_FILE")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        folders = Folders(here, *(Path(folder, name) for name in ("acme", "acme_cmake", "sdk")))
        make_sdk(folders.sdk)
        outputs = {"OUT": str(folders.there), "OUT_CMAKE": str(folders.cmake)}
        succeeded = follow(folders, {**environment, **outputs})
        subprocess.run(["./bazelw", "shutdown"], cwd=folders.there, env=environment, check=False)
        # Bazel removes the write permission from the files that it builds.
        subprocess.run(["chmod", "-R", "u+w", folder], check=False)
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
