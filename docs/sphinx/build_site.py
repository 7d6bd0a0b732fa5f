# SPDX-License-Identifier: BSD-3-Clause
"""Builds the pages as a site: ./bazelw run //docs:site [-- FOLDER]

On its first run, the program installs Sphinx into a separate environment in ~/.cache/torch_openreg.
The build fails if a link is broken or a page is missing in the table of contents. The program
prints the path of the front page.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from docs.sphinx import c_header, pages
from tools import bazel_workspace

# The pages of the site that are not in docs/.
_OTHERS = [
    "CONTRIBUTING.md",
    "README.md",
    "aten/structured/README.md",
    "examples/cpp_backend/README.md",
    "examples/python_backend/README.md",
]
_HEADER = "runtime/device/openreg.h"
_REFERENCE = """
```{toctree}
:hidden:
:caption: Reference

reference/torch/openreg/index
reference/openreg_h
docs/index
aten/structured/README
```
"""


def environment(lock: Path) -> Path:
    """Returns Python in an environment with the packages of a lock file. Creates it if needed."""
    name = f"site-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    folder = Path.home() / ".cache" / "torch_openreg" / name
    python = folder / "bin" / "python"
    done = folder / "complete"
    if not done.exists():
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "--require-hashes", "-r", lock], check=True
        )
        done.touch()
    return python


def stage(root: Path, folder: Path) -> None:
    """Writes the files that Sphinx reads.

    Args:
        root: the root folder of the source tree.
        folder: an empty folder.
    """
    names = sorted(f"docs/{page.name}" for page in (root / "docs").glob("*.md")) + _OTHERS
    for name in names:
        text = pages.stage(name, (root / name).read_text(), names)
        if name == pages.FRONT:
            text += "\n" + pages.contents((root / pages.INDEX).read_text(), names) + _REFERENCE
        path = folder / pages.NAMES.get(name, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "reference").mkdir()
    header = (root / _HEADER).read_text()
    (folder / "reference" / "openreg_h.md").write_text(c_header.markdown("openreg.h", header))
    shutil.copyfile(root / "docs" / "sphinx" / "conf.py", folder / "conf.py")
    # The module is documented under the name that programs use.
    module = folder / "api" / "torch" / "openreg"
    module.mkdir(parents=True)
    for source in (root / "python" / "torch_openreg" / "openreg").glob("*.py"):
        text = source.read_text().replace("torch_openreg.openreg", "torch.openreg")
        (module / source.name).write_text(text)


def main() -> int:
    """Parses the command line and builds the site."""
    root = bazel_workspace.root()
    parser = argparse.ArgumentParser(prog="./bazelw run //docs:site --", allow_abbrev=False)
    parser.add_argument(
        "folder", nargs="?", type=Path, default=root / ".bazel" / "site", metavar="FOLDER"
    )
    # A relative path is resolved from the folder in which the user typed the command.
    folder = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), parser.parse_args().folder)
    python = environment(root / "docs" / "sphinx" / "requirements.lock")
    with tempfile.TemporaryDirectory() as staged:
        stage(root, Path(staged))
        command = [str(python), "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
        status = subprocess.run([*command, staged, folder], check=False).returncode
    if status == 0:
        print(folder / "index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())
