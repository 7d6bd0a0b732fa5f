# SPDX-License-Identifier: BSD-3-Clause
"""Formats the sources of a new backend, because its names differ from ours in length.

The formatters are those of the linters, with the settings in the new backend.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from tools.new_backend.tree import File, Tree, write

_BIN = f"{sys.prefix}/bin"


def laid_out(tree: Tree) -> Tree:
    """Returns the files after formatting C++ and Python, and sorting imports, as in our sources.

    Raises:
        subprocess.CalledProcessError: if a formatter rejects a file.
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
