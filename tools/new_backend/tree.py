# SPDX-License-Identifier: BSD-3-Clause
"""Creates the files of a new backend from the files of this workspace."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from tools.new_backend import build_text, parts
from tools.new_backend.build_file import Workspace, path_of
from tools.new_backend.cmake import CMake
from tools.new_backend.names import Names
from tools.new_backend.rewording import Rewording

# Files of a new backend that are not copied from our sources: some for every backend (common/), and
# some for each kind of build. They contain our names, as all sources do.
_TEMPLATES = "tools/new_backend/templates"

_REWORDING = "tools/new_backend/rewording.toml"

# The tests that do not apply to the minimal driver.
_MINIMAL_DRIVER = "//tools:minimal_driver.bzl"


@dataclass(frozen=True)
class File:
    """A file of the new backend."""

    content: bytes
    executable: bool = False


# Files by their path.
Tree = dict[str, File]


@dataclass(frozen=True)
class Choice:
    """The user's choice: the names, the features (from parts.FEATURES) and the build."""

    names: Names
    features: tuple[str, ...]
    build: str


def make(root: Path, choice: Choice) -> Tree:
    """Returns the files of a new backend.

    Args:
        root: the root folder of this workspace.
        choice: the user's choice.

    Raises:
        StaleText: if rewording.toml does not match a file.
    """
    absent = [part for name, part in parts.FEATURES.items() if name not in choice.features]

    def is_absent_path(path: str) -> bool:
        return any(path.startswith(feature.paths) for feature in absent)

    rewording = Rewording(root / _REWORDING, choice.features, is_absent_path)

    def read(path: str) -> str:
        return rewording.apply(path, (root / path).read_text())

    def is_absent(label: str) -> bool:
        return is_absent_path(path_of(label)) or any(label in part.labels for part in absent)

    workspace = Workspace(root, read, is_absent)
    targets, files, repositories = workspace.closure([*parts.TARGETS, *_tests(choice)])
    templates = _templates(root, choice.build)
    files |= set(parts.FILES)
    if choice.build == "bazel":
        files |= _bazel_files(root, files, repositories | set(parts.REPOSITORIES))
    else:
        files = {
            path
            for path in files
            if not any(fnmatch(path, pattern) for pattern in parts.BAZEL_PATTERNS)
        }
    texts = {path: read(path) for path in files - templates.keys()}
    if choice.build == "bazel":
        kept = _Kept(workspace, targets, {*files, *templates})
        for path in texts:
            if path.startswith("third_party/"):
                continue
            if path.endswith(".bzl"):
                texts[path] = build_text.shorten_extension(
                    texts[path], str(Path(path).parent), kept.exactly
                )
            if Path(path).name == "BUILD.bazel":
                package = workspace.package(path.removesuffix("BUILD.bazel").rstrip("/"))
                assert package is not None
                texts[path] = build_text.shorten(package, targets, kept)
        names = {*repositories, *parts.REPOSITORIES}
        texts["WORKSPACE"] = build_text.without(
            texts["WORKSPACE"],
            lambda called, name: called != "workspace" and name not in {None, *names},
        )
    else:
        cmake = CMake(workspace, targets, files)
        texts["cmake/targets.cmake"] = cmake.libraries()
        texts["cmake/tests.cmake"] = cmake.tests()
        texts["tests/left_out.json"] = _left_out(workspace, files)
        texts["pyproject.toml"] = _with_project(texts["pyproject.toml"], cmake.project())
    tree = {
        path: File(text.encode(), path in files and _is_executable(root / path))
        for path, text in texts.items()
    }
    for path, source in templates.items():
        text = read(str(source.relative_to(root)))
        tree[path] = File(text.encode(), _is_executable(source))
    return {
        choice.names.rename(path): _renamed(path, file, choice.names)
        for path, file in sorted(tree.items())
    }


def write(tree: Tree, folder: Path) -> None:
    """Creates a folder and writes files to it."""
    for path, file in tree.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(0o755 if file.executable else 0o644)


class _Kept:
    """Decides whether a word in a list is kept. Labels of parts that are left out are not kept."""

    def __init__(self, workspace: Workspace, targets: set[str], files: set[str]) -> None:
        self._workspace = workspace
        self._targets = targets
        self._files = files
        self._folders = {str(folder) for path in files for folder in Path(path).parents}

    def __call__(self, label: str) -> bool:
        if label.startswith(("@", "//visibility:")) or label in self._targets:
            return True
        if label.endswith((":__pkg__", ":__subpackages__")):
            return label[2:].split(":")[0] in self._folders
        target = self._workspace.target(label)
        if target is None:
            folder, _, name = label[2:].partition(":")
            if Path(folder).name == name and self._workspace.package(folder):
                return folder in self._folders  # a package without a target of the same name
            return path_of(label) in self._files or not self._workspace.has(label)
        # The rules of a list comprehension are kept together, so its list may name any of them.
        package = self._workspace.package(label[2:].split(":")[0])
        assert package is not None
        return any(
            other.line == target.line and other.label in self._targets
            for other in package.targets.values()
        )

    def exactly(self, label: str) -> bool:
        """Returns whether a label outside of BUILD files is kept."""
        return self(label) and (self._workspace.target(label) is None or label in self._targets)


def _tests(choice: Choice) -> list[str]:
    features = [parts.FEATURES[name] for name in choice.features]
    tests = [*parts.TESTS, *(test for feature in features for test in feature.tests)]
    if choice.build == "bazel":
        tests += parts.BAZEL_TESTS
        tests += [test for feature in features for test in feature.bazel_tests]
    return tests


def _left_out(workspace: Workspace, files: set[str]) -> str:
    """Returns the tests that the minimal driver cannot pass, by ids of pytest, with reasons."""
    left_out = {}
    for test, reason in workspace.constant(_MINIMAL_DRIVER, "LEFT_OUT").items():
        label, _, name = test.partition("::")
        if path_of(label) in files:
            left_out[f"{path_of(label)}::{name}"] = reason
    return json.dumps(left_out, indent=2) + "\n"


def _templates(root: Path, build: str) -> dict[str, Path]:
    """Returns the templates, by the path of the generated file."""
    return {
        str(path.relative_to(folder)): path
        for folder in (root / _TEMPLATES / "common", root / _TEMPLATES / build)
        for path in folder.rglob("*")
        if path.is_file()
    }


def _bazel_files(root: Path, files: Iterable[str], repositories: Iterable[str]) -> set[str]:
    """Returns the files of a Bazel build that no target names."""
    result = set(parts.BAZEL_FILES)
    for repository in repositories:
        result |= {
            str(path.relative_to(root))
            for path in (root / "third_party" / repository).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
    for path in (*files, *result):
        if path.endswith(".bzl"):  # a .bzl file must be in a package
            result.add(str(Path(path).parent / "BUILD.bazel"))
    return result


def _with_project(text: str, project: str) -> str:
    """Returns pyproject.toml with the wheel's description above the settings of tools."""
    head, _, settings = text.partition("\n\n")
    return f"{head.splitlines()[0]}\n\n{project}\n{settings}"


def _is_executable(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o100)


def _renamed(path: str, file: File, names: Names) -> File:
    if path in parts.VERBATIM:
        return file
    return File(names.rename(file.content.decode()).encode(), file.executable)
