# SPDX-License-Identifier: BSD-3-Clause
"""Evaluates this workspace's BUILD files, to find the files that a target needs.

A BUILD file is also valid Python. This module executes the file, and the macros that it loads, with
functions that record each rule, so Bazel is not needed. For a `select` on the driver, only the
branch of the minimal driver is used. For any other `select`, all branches are used. Bazel itself
verifies the result, because a tree without a needed file does not build.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MINIMAL_DRIVER = "//runtime:minimal_driver"

_NATIVE_RULES = [
    "alias",
    "config_setting",
    "constraint_setting",
    "constraint_value",
    "exports_files",
    "filegroup",
    "genrule",
    "package",
    "test_suite",
]

# Attributes that contain names of packages or words, but no dependencies.
_NOT_DEPENDENCIES = frozenset(["name", "tags", "visibility", "default_visibility"])


def absolute(label: str, package: str) -> str:
    """Returns a label with its package and target, such as //a/b:c. Keeps external labels."""
    if label.startswith("@"):
        return label
    if label.startswith("//"):
        return label if ":" in label else f"{label}:{label.rsplit('/', 1)[-1]}"
    return f"//{package}:{label.removeprefix(':')}"


def path_of(label: str) -> str:
    """Returns the path of the file with an absolute label."""
    return label.removeprefix("//").replace(":", "/").lstrip("/")


def driver_branch(branches: dict[str, Any], package: str) -> str | None:
    """Returns the key of the minimal driver's branch, or None if there is no such branch."""
    for key in branches:
        if absolute(key, package) == MINIMAL_DRIVER:
            return key
    return None


@dataclass
class Target:
    """A rule in a BUILD file."""

    label: str
    # The first line of the top-level statement that defines the target.
    line: int
    # Labels of targets and files, and some words that are not labels.
    uses: set[str]
    # The name of the rule, and its arguments.
    kind: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass
class Package:
    """A BUILD file: its targets, and the labels of the .bzl files that it loads."""

    name: str
    text: str
    targets: dict[str, Target] = field(default_factory=dict)
    loads: set[str] = field(default_factory=set)


class Workspace:
    """The BUILD files of a source tree. Each is evaluated when it is first requested.

    Args:
        root: the root folder of the tree.
        read: returns the text of a file, given its path below root.
        is_absent: returns whether to ignore dependencies on a label.
    """

    def __init__(
        self,
        root: Path,
        read: Callable[[str], str] | None = None,
        is_absent: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.root = root
        self._read = read or (lambda path: (root / path).read_text())
        self._is_absent = is_absent
        self._packages: dict[str, Package | None] = {}
        self._extensions: dict[str, dict[str, Any]] = {}
        self._loads: dict[str, set[str]] = {}
        # The conditions of each `select` since the last rule. They belong to the next rule.
        self._conditions: set[str] = set()

    def package(self, name: str) -> Package | None:
        """Returns the package in a folder, or None if the folder has no BUILD file."""
        if name not in self._packages:
            path = self.root / name / "BUILD.bazel"
            self._packages[name] = self._evaluate(name, path) if path.exists() else None
        return self._packages[name]

    def closure(self, roots: Iterable[str]) -> tuple[set[str], set[str], set[str]]:
        """Finds the files and other targets that targets need.

        Args:
            roots: labels of targets.

        Returns:
            Labels of the targets, paths of the files, and names of external repositories.

        Raises:
            KeyError: if a target does not exist.
        """
        targets: set[str] = set()
        files: set[str] = set()
        repositories: set[str] = set()
        pending = [absolute(root, "") for root in roots]
        for root in pending:
            if self.target(root) is None:
                raise KeyError(f"no target {root}")
        while pending:
            label = pending.pop()
            if label in targets or self._is_absent(label):
                continue
            if label.startswith("@"):
                repositories.add(re.split("[/:]", label[1:])[0])
                continue
            target = self.target(label)
            if target is not None:
                targets.add(label)
                pending.extend(target.uses)
                continue
            if (self.root / path_of(label)).is_file():
                files.add(path_of(label))
        for name in {label[2:].split(":")[0] for label in targets}:
            package = self.package(name)
            assert package is not None
            files.add(str(Path(name, "BUILD.bazel")))
            for extension in self._all_loads(package.loads):
                if self._is_absent(extension):
                    continue
                if extension.startswith("@"):
                    repositories.add(re.split("[/:]", extension[1:])[0])
                else:
                    files.add(path_of(extension))
        return targets, files, repositories

    def has(self, label: str) -> bool:
        """Returns whether a target or a file has this absolute label."""
        return self.target(label) is not None or (self.root / path_of(label)).is_file()

    def target(self, label: str) -> Target | None:
        """Returns the target with an absolute label, or None if there is no such target."""
        package = self.package(label[2:].split(":")[0])
        return None if package is None else package.targets.get(label)

    def constant(self, extension: str, name: str) -> Any:
        """Returns the value of a constant of a .bzl file, which an absolute label names."""
        return self._extension(extension, lambda *_: None, caller="")[name]

    def _all_loads(self, loads: set[str]) -> set[str]:
        result: set[str] = set()
        pending = list(loads)
        while pending:
            extension = pending.pop()
            if extension not in result:
                result.add(extension)
                pending.extend(self._loads.get(extension, ()))
        return result

    def _evaluate(self, name: str, path: Path) -> Package:
        package = Package(name, self._read(str(path.relative_to(self.root))))
        tree = ast.parse(package.text)
        starts = [(node.lineno, node.end_lineno or node.lineno) for node in tree.body]

        def record(kind: str, implicit: set[str], arguments: dict[str, Any]) -> None:
            if "name" not in arguments:
                return
            frame = sys._getframe(1)
            while frame.f_code.co_filename != str(path) and frame.f_back is not None:
                frame = frame.f_back
            line = next(first for first, last in starts if first <= frame.f_lineno <= last)
            uses = {
                absolute(word, name)
                for key, value in arguments.items()
                if key not in _NOT_DEPENDENCIES
                for word in _words(value)
            }
            uses |= implicit | self._conditions
            self._conditions = set()
            target = Target(absolute(arguments["name"], name), line, uses, kind, arguments)
            package.targets[target.label] = target
            for output in arguments.get("outs", []):
                label = absolute(output, name)
                package.targets[label] = Target(label, line, {target.label})

        scope = self._scope(record, package.loads, name, caller=name)
        exec(compile(tree, str(path), "exec"), scope)
        return package

    def _scope(
        self, record: Callable[..., None], loads: set[str], name: str, caller: str
    ) -> dict[str, Any]:
        """Returns the global names for executing one file: Starlark's built-in names and `load`.

        Args:
            record: a function that is called for each rule.
            loads: a set to which the labels that the file loads are added.
            name: the package of the file.
            caller: the package of the BUILD file that is evaluated.
        """

        def rule(kind: str, implicit: set[str]) -> Callable[..., None]:
            return lambda *_, **arguments: record(kind, implicit, arguments)

        def glob(patterns: list[str], **_: Any) -> list[str]:
            folder = self.root / name
            found = {path for pattern in patterns for path in folder.glob(pattern)}
            return sorted(
                str(path.relative_to(folder))
                for path in found
                if path.is_file() and "__pycache__" not in path.parts
            )

        def select(branches: dict[str, Any]) -> Any:
            key = driver_branch(branches, name)
            if key is not None:
                return branches[key]
            self._conditions |= {absolute(condition, name) for condition in branches}
            values = list(branches.values())
            return sum((list(value) for value in values[1:]), list(values[0]))

        def load(label: str, *symbols: str, **renamed: str) -> None:
            label = absolute(label, name)
            loads.add(label)
            known = {} if label.startswith("@") else self._extension(label, record, caller)
            for local, symbol in {**{symbol: symbol for symbol in symbols}, **renamed}.items():
                if symbol in known:
                    scope[local] = known[symbol]
                else:  # the symbol of an external repository is a constant or a rule
                    scope[local] = "" if symbol.isupper() else rule(symbol, set())

        scope: dict[str, Any] = {
            "glob": glob,
            "select": select,
            "load": load,
            "native": _Anything(
                lambda symbol: (lambda: caller) if symbol == "package_name" else rule(symbol, set())
            ),
            "rule": lambda **made: rule("rule", set(_defaults(made))),
            "attr": _Anything(lambda _: lambda *_, **made: made),
            "config": _Anything(lambda _: lambda **_made: None),
            "provider": lambda **_: None,
            "aspect": lambda **_: None,
            "repository_rule": lambda **_: None,
        }
        for symbol in _NATIVE_RULES:
            scope[symbol] = rule(symbol, set())
        return scope

    def _extension(self, label: str, record: Callable[..., None], caller: str) -> dict[str, Any]:
        """Executes a .bzl file. Its rules record their arguments when a BUILD file calls them."""
        path = self.root / path_of(label)
        loads = self._loads.setdefault(label, set())
        scope = self._scope(record, loads, label[2:].split(":")[0], caller)
        exec(compile(path.read_text(), str(path), "exec"), scope)
        return scope


class _Anything:
    """An object with every attribute."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        return self._make(name)


def _words(value: Any) -> Iterator[str]:
    """Yields all strings in an attribute's value, and the labels in $(location ...)."""
    if isinstance(value, str):
        yield value
        yield from re.findall(r"\$\((?:location|execpath|rootpath) ([^)]+)\)", value)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _words(key)
            yield from _words(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _words(item)


def _defaults(made: dict[str, Any]) -> Iterator[str]:
    """Yields the labels that a rule uses by default, without an attribute in the BUILD file."""
    for attribute in (made.get("attrs") or {}).values():
        default = attribute.get("default")
        if isinstance(default, str) and default.startswith("//"):
            yield absolute(default, "")
