# SPDX-License-Identifier: BSD-3-Clause
"""Makes the files of a new backend out of the files of this workspace."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.new_backend import build_text, parts
from tools.new_backend.build_file import Workspace, path_of
from tools.new_backend.names import Names
from tools.new_backend.rewording import Rewording

# Files that are written for a new backend instead of copied, with our names as in all sources.
_TEMPLATES = "tools/new_backend/templates"

_REWORDING = "tools/new_backend/rewording.toml"


@dataclass(frozen=True)
class File:
    """A file of the new backend."""

    content: bytes
    executable: bool


# Files by path.
Tree = dict[str, File]


def make(root: Path, names: Names, features: Collection[str]) -> Tree:
    """Returns the files of a new backend.

    Args:
        root: the top of this workspace.
        names: the new names.
        features: those of parts.FEATURES that the backend has.

    Raises:
        StaleText: rewording.toml does not fit a file.
    """
    rewording = Rewording(root / _REWORDING, features)
    absent = [feature for name, feature in parts.FEATURES.items() if name not in features]

    def read(path: str) -> str:
        return rewording.apply(path, (root / path).read_text())

    def is_absent(label: str) -> bool:
        return any(
            label in feature.labels or path_of(label).startswith(feature.paths)
            for feature in absent
        )

    workspace = Workspace(root, read, is_absent)
    tests = [*parts.TESTS, *(test for name in features for test in parts.FEATURES[name].tests)]
    targets, files, repositories = workspace.closure([*parts.TARGETS, *tests])
    repositories |= set(parts.REPOSITORIES)
    files |= set(parts.FILES)
    for repository in repositories:
        files |= {
            str(path.relative_to(root))
            for path in (root / "third_party" / repository).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
    for path in sorted(files):
        if Path(path).suffix == ".bzl":  # a .bzl file needs a package around it
            files.add(str(Path(path).parent / "BUILD.bazel"))
    folder = root / _TEMPLATES
    templates = {
        str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()
    }

    folders = {str(folder) for path in files for folder in Path(path).parents}

    def is_kept(label: str) -> bool:
        """Whether a word in a list stays: unless it names a part of this tree that is left out."""
        if label.startswith(("@", "//visibility:")) or label in targets:
            return True
        if label.endswith((":__pkg__", ":__subpackages__")):
            return label[2:].split(":")[0] in folders
        return path_of(label) in {*files, *templates} or not workspace.has(label)

    tree: Tree = {}
    for path in sorted(files - templates.keys()):
        source = root / path
        content = read(path)
        if path == "WORKSPACE":
            content = _workspace(content, repositories)
        elif source.name == "BUILD.bazel" and path in files and not path.startswith("third_party/"):
            package = workspace.package(str(Path(path).parent) if "/" in path else "")
            assert package is not None
            content = build_text.shorten(package, targets, is_kept)
        tree[path] = File(content.encode(), _is_executable(source))
    for path, source in templates.items():
        tree[path] = File(source.read_bytes(), _is_executable(source))
    return {names.rename(path): _renamed(path, file, names) for path, file in sorted(tree.items())}


def write(tree: Tree, folder: Path) -> None:
    """Writes files into a folder, which is made."""
    for path, file in tree.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(0o755 if file.executable else 0o644)


def _is_executable(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o100)


def _renamed(path: str, file: File, names: Names) -> File:
    if path in parts.VERBATIM:
        return file
    return File(names.rename(file.content.decode()).encode(), file.executable)


def _workspace(text: str, repositories: Iterable[str]) -> str:
    """Returns the text of WORKSPACE with the given repositories only."""
    return build_text.without(
        text, lambda called, name: called != "workspace" and name not in {None, *repositories}
    )
