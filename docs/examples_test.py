# SPDX-License-Identifier: BSD-3-Clause
"""Runs the programs in the pages: code blocks below `<!-- run -->`, each in a separate process.

`<!-- run: CODE -->` runs CODE first, which creates the objects that the block requires (for
example, a model). CODE may have several lines.
"""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MARK = re.compile(r"<!-- run(?::\s([\s\S]*?))?\s-->\n+((?: {4}.*\n|\n)+|```python\n[\s\S]*?```)")


def programs() -> list[tuple[str, str]]:
    """Returns a name and the code of each marked block."""
    found = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text()
        for match in MARK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            block = match[2].removeprefix("```python\n").removesuffix("```")
            found.append((f"{page.name}:{line}", f"{match[1] or ''}\n{textwrap.dedent(block)}"))
    return found


PROGRAMS = programs()


def test_pages_have_programs() -> None:
    assert {"README.md", "streams.md", "graphs.md"} <= {name.split(":")[0] for name, _ in PROGRAMS}


@pytest.mark.parametrize("code", [code for _, code in PROGRAMS], ids=[name for name, _ in PROGRAMS])
def test_program(code: str, tmp_path: Path) -> None:
    # Write a file instead of using -c, because processes that are started with spawn import the
    # program.
    path = tmp_path / "program.py"
    path.write_text(code)
    done = subprocess.run(
        [sys.executable, path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
