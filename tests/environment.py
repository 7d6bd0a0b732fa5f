# SPDX-License-Identifier: BSD-3-Clause
"""A fresh virtual environment, in which torch is that of this test."""

import os
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

from tests import child


def runfile(*parts: str) -> Path:
    """The path of a file in this test's data."""
    return Path(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], *parts)


def wheel(folder: str) -> Path:
    """The wheel that the build has made in a folder; its tag is that of the machine."""
    (path,) = runfile(folder).glob("*.whl")
    return path


class Environment:
    """A virtual environment; nothing of this workspace is in it until it is installed there."""

    def __init__(self, root: Path) -> None:
        venv.create(root, with_pip=False, symlinks=True)
        self.root = root
        self.python = root / "bin" / "python"
        self.site = root / "lib" / "python3.11" / "site-packages"
        outer = [path for path in sys.path if path.endswith("site-packages")]
        (self.site / "outer.pth").write_text("".join(f"{path}\n" for path in outer))

    def pip(self, *arguments: str) -> None:
        """Run the pip of this test on the environment."""
        command = [sys.executable, "-m", "pip", "--python", str(self.python), *arguments, "--quiet"]
        subprocess.run(command, env=_clean(), check=True)

    def install(self, wheel: Path) -> None:
        """Install a wheel without what it requires."""
        self.pip("install", "--no-deps", "--no-index", str(wheel))

    def run(self, code: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run ``code`` there and return what became of it.

        Args:
            code: the program; common indentation is taken off.
            options: of the interpreter.
            environment: variables to set.
        """
        return subprocess.run(
            [str(self.python), *options, "-c", textwrap.dedent(code)],
            env={**_clean(), **environment},
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=child.PATIENCE,
            check=False,
        )


def _clean() -> dict[str, str]:
    """Variables without those by which this test finds the packages of the source tree."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
