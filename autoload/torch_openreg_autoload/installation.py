# SPDX-License-Identifier: BSD-3-Clause
"""Compares the backend's files with the sizes that its installer recorded, without reading them.

A library that is truncated (a full disk, an interrupted copy) or from another build than the
libraries beside it does not raise an error when it is loaded: it crashes the process. Installers
record the size of each file in RECORD (PEP 376); a stat call per file detects a change.
"""

import csv
import importlib.metadata
import os
from pathlib import Path

__all__ = ["find_doubts"]

# The largest number of files that a report names.
_SHOWN = 3


def find_doubts(package: str, origin: str) -> list[str]:
    """Return the reasons why importing a package may crash: none for an intact package.

    Args:
        package: name of the package and of the distribution that contains it.
        origin: path of its ``__init__.py``.

    Returns:
        One sentence per problem. A distribution without RECORD (a build folder) has none.
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
        if not size:  # files created by the installation, and RECORD itself
            continue
        try:
            found = os.stat(os.path.join(root, name)).st_size
        except OSError as error:
            changed.append(f"{name}: {error.strerror}")
        else:
            if found != int(size):
                changed.append(f"{name} has {found} bytes, {size} were installed")
    return changed
