# SPDX-License-Identifier: BSD-3-Clause
"""Lays out the sources of a new backend again, because its names differ from ours in length.

The formatters are those of the linters, and their settings are part of the backend.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from tools.new_backend.tree import File, Tree, write

_BIN = f"{sys.prefix}/bin"


def laid_out(tree: Tree) -> Tree:
    """Returns the files with the lines of C++ and Python broken, and the imports sorted, as ours.

    Raises:
        subprocess.CalledProcessError: a formatter does not accept a file.
    """
    cpp = [path for path in tree if path.endswith((".cc", ".h"))]
    python = [path for path in tree if path.endswith((".py", ".pyi"))]
    with tempfile.TemporaryDirectory() as folder:
        write(tree, Path(folder))
        for command in (
            [f"{_BIN}/clang-format", "-i", *cpp],
            [f"{_BIN}/ruff", "check", "--quiet", "--no-cache", "--select=I", "--fix-only", *python],
            [f"{_BIN}/ruff", "format", "--quiet", "--no-cache", *python],
        ):
            subprocess.run(command, cwd=folder, check=True)
        return tree | {
            path: File(Path(folder, path).read_bytes(), tree[path].executable)
            for path in [*cpp, *python]
        }
