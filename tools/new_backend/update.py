# SPDX-License-Identifier: BSD-3-Clause
"""Merges changes to the sources into a generated repository that the vendor has changed."""

import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tools.new_backend.tree import File, Tree, write


@dataclass
class Changes:
    """The result of an update: paths, grouped by the kind of change."""

    # Only the sources changed, added or removed the file.
    changed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    # The sources and the vendor changed different lines.
    merged: list[str] = field(default_factory=list)
    # The sources and the vendor changed the same lines, or one removed a file that the other
    # changed. The file contains conflict markers, as after a merge in git, or is unchanged.
    conflicts: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Returns one line for each file."""
        return [f"{kind:<9} {path}" for kind, paths in vars(self).items() for path in sorted(paths)]


def update(folder: Path, base: Tree, new: Tree) -> Changes:
    """Applies the difference between two generations to a repository.

    Args:
        folder: the repository, which is changed in place.
        base: the files of the last generation.
        new: the files of the new generation.

    Returns:
        The changes that were made.
    """
    changes = Changes()
    for path in sorted(base.keys() | new.keys()):
        before, after = base.get(path), new.get(path)
        if before == after:
            continue
        found = _read(folder / path)
        if found == after:
            continue
        if found == before:
            if after is None:
                (folder / path).unlink()
                changes.removed.append(path)
            else:
                write({path: after}, folder)
                (changes.added if before is None else changes.changed).append(path)
        elif found is None or after is None:
            changes.conflicts.append(path)
        else:
            merged, conflicts = _merge(found, before or File(b"", False), after)
            write({path: merged}, folder)
            (changes.conflicts if conflicts else changes.merged).append(path)
    return changes


def uncommitted(folder: Path) -> list[str]:
    """Returns the tracked files of a git repository that differ from its last commit.

    Returns none if the folder is not in a git repository.
    """
    done = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no", "-z", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return [] if done.returncode else [entry[3:] for entry in done.stdout.split("\0") if entry]


def _read(path: Path) -> File | None:
    if not path.is_file():
        return None
    return File(path.read_bytes(), bool(path.stat().st_mode & 0o100))


def _merge(ours: File, base: File, theirs: File) -> tuple[File, bool]:
    """Returns a merged file, and whether it has conflicts. Conflicts are marked in the file."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, file in (("yours", ours), ("before", base), ("generated", theirs)):
            path = Path(folder, name)
            path.write_bytes(file.content)
            paths.append(name)
        done = subprocess.run(
            ["git", "merge-file", "-p", "--diff3", *paths],
            cwd=folder,
            capture_output=True,
            check=False,
        )
    if done.returncode > 127:  # a status up to 127 is the number of conflicts
        message = f"git merge-file exited with status {done.returncode}"
        if words := done.stderr.decode().strip():
            message += f"; its stderr is: {words}"
        raise RuntimeError(message)
    return File(done.stdout, theirs.executable), done.returncode != 0
