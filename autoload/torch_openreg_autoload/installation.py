# SPDX-License-Identifier: BSD-3-Clause
"""Compares the backend's files with what its installer wrote down, without reading them.

A library that was cut off (a full disk, a copy that was stopped) or that is of another build than
its neighbours does not raise when it is loaded: it ends the process. Installers write the size of
each file into RECORD (PEP 376); some system calls tell whether it is still the same.
"""

import csv
import importlib.metadata
import os
from pathlib import Path

__all__ = ["find_doubts"]

# As many are named.
_SHOWN = 3


def find_doubts(package: str, origin: str) -> list[str]:
    """Return what speaks against importing a package as it is; nothing for one that is intact.

    Args:
        package: name of the package, and of the distribution that it came with.
        origin: path of its ``__init__.py``.

    Returns:
        A sentence each. A distribution without RECORD (a folder of a build) is taken as it is.
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
        if not size:  # what was made when it was installed, and RECORD itself
            continue
        try:
            found = os.stat(os.path.join(root, name)).st_size
        except OSError as error:
            changed.append(f"{name}: {error.strerror}")
        else:
            if found != int(size):
                changed.append(f"{name} has {found} bytes, {size} were installed")
    return changed
