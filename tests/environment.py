# SPDX-License-Identifier: BSD-3-Clause
"""Creates virtual environments that use the test's installation of torch."""

import os
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

from tests import child


def runfile(*parts: str) -> Path:
    """Returns the path of a file among the test's data dependencies."""
    return Path(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], *parts)


def wheel(folder: str) -> Path:
    """Returns the path of the only wheel in a build folder. Its tag depends on the machine."""
    (path,) = runfile(folder).glob("*.whl")
    return path


class Environment:
    """A virtual environment with the test's installed packages, but nothing from this workspace."""

    def __init__(self, root: Path) -> None:
        venv.create(root, with_pip=False, symlinks=True)
        self.root = root
        self.python = root / "bin" / "python"
        self.site = root / "lib" / "python3.11" / "site-packages"
        outer = [path for path in sys.path if path.endswith("site-packages")]
        (self.site / "outer.pth").write_text("".join(f"{path}\n" for path in outer))

    def pip(self, *arguments: str) -> None:
        """Runs the test's installation of pip on the environment."""
        command = [sys.executable, "-m", "pip", "--python", str(self.python), *arguments, "--quiet"]
        subprocess.run(command, env=_clean(), check=True)

    def install(self, wheel: Path) -> None:
        """Installs a wheel without its dependencies."""
        self.pip("install", "--no-deps", "--no-index", str(wheel))

    def run(self, code: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs ``code`` in the environment and returns the finished process.

        Args:
            code: the program; common indentation is removed.
            options: options of the interpreter.
            environment: environment variables to set.
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
    """Returns the environment variables, except those that lead to packages in the source tree."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
