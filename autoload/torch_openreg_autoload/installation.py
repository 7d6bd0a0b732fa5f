# SPDX-License-Identifier: BSD-3-Clause
"""Compares the sizes of the backend's files with the sizes that its installer recorded.

If a library is truncated (a full disk, an interrupted copy), or does not belong to the same build
as the other libraries, loading it raises no error but crashes the process. Installers record the
size of each file in RECORD (PEP 376). One stat call per file detects a change, without reading the
file.
"""

import csv
import importlib.metadata
import os
from pathlib import Path

__all__ = ["find_doubts"]

# The maximum number of files that a report names.
_SHOWN = 3


def find_doubts(package: str, origin: str) -> list[str]:
    """Return reasons why importing a package may crash. For an intact package there are none.

    Args:
        package: the name of the package and of the distribution that contains it.
        origin: the path of the package's ``__init__.py``.

    Returns:
        One sentence per problem. A distribution without RECORD (a build folder) has no problems.
    """
    root = Path(origin).parent.parent
    installed = list(importlib.metadata.distributions(name=package, path=[str(root)]))
    if not installed:
        return [f"{root} has the package {package}, but pip did not install it there"]
    doubts = [doubt for found in installed for doubt in _changed(root, found)]
    if len(doubts) > _SHOWN:
        doubts[_SHOWN:] = [f"and {len(doubts) - _SHOWN} more files"]
    return doubts


def _changed(root: Path, distribution: importlib.metadata.Distribution) -> list[str]:
    changed = []
    for name, _, size in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        if not size:  # created during the installation, or RECORD itself
            continue
        try:
            found = os.stat(os.path.join(root, name)).st_size
        except OSError as error:
            changed.append(f"{name}: {error.strerror}")
        else:
            if found != int(size):
                changed.append(f"{name} has {found} bytes, {size} were installed")
    return changed
