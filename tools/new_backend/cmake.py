# SPDX-License-Identifier: BSD-3-Clause
"""Writes a CMake build of the targets that Bazel builds, and the pip settings to run this build.

CMakeLists.txt is a template with the rules. This module writes the lists for these rules,
targets.cmake and tests.cmake, and the wheel's fields in pyproject.toml. A library in Bazel becomes
an object library if it is alwayslink, otherwise an archive. A shared library or a test consists of
several such libraries.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tools.new_backend.build_file import Target, Workspace, absolute, path_of

_CODE = {".cc", ".cpp"}

# The names of the external libraries in CMakeLists.txt.
_EXTERNAL = {
    "@python//:headers": "python_headers",
    "@googletest//:gtest": "googletest",
    "@googletest//:gtest_main": "googletest",
    "@nlohmann_json//:json": "nlohmann_json",
    "@torch": "torch_libraries",
    "@torch//:headers": "torch_headers",
    "@torch//:kineto_headers": "torch_kineto_headers",
    "@torch//:link": "torch_libraries",
    "@torch//:python_link": "torch_python_libraries",
    "@torch//:torch": "torch_libraries",
}


class CMake:
    """The CMake build of some targets.

    Args:
        workspace: the workspace with the BUILD files.
        targets: the labels of the targets in the tree.
        files: the paths of the files in the tree.
    """

    def __init__(self, workspace: Workspace, targets: set[str], files: set[str]) -> None:
        self._workspace = workspace
        self._labels = targets
        self._files = files
        found = [workspace.target(label) for label in sorted(targets)]
        self._targets = [target for target in found if target is not None]

    def libraries(self) -> str:
        """Returns targets.cmake: object libraries, shared libraries, and the files to install."""
        lines = [_HEADER.format("The libraries, the extension module and their installation.")]
        shared = [target for target in self._targets if target.arguments.get("linkshared")]
        for target in self._objects(shared):
            lines.append(self._object_library(target))
        for target in shared:
            lines.append(self._shared_library(target))
        for target in self._targets:
            if target.kind == "rule" and isinstance(target.arguments.get("srcs"), dict):
                lines.extend(self._installed(target))
        return "\n".join(lines)

    def tests(self) -> str:
        """Returns tests.cmake: the C++ tests, and the objects that only these tests need."""
        lines = [_HEADER.format("The tests in C++.")]
        shared = [target for target in self._targets if target.arguments.get("linkshared")]
        tests = [target for target in self._targets if target.kind == "cc_test"]
        known = {target.label for target in self._objects(shared)}
        for target in self._objects(tests):
            if target.label not in known:
                lines.append(self._object_library(target))
        seen: dict[tuple[str, ...], str] = {}
        for target in tests:
            sources = tuple(self._sources(target))
            objects, archives = self._parts(target)
            # Tests with the same sources in several environments share a program.
            options = target.arguments.get("linkopts", [])
            key = (*sources, *objects, *archives, *options)
            if key not in seen:
                seen[key] = _cmake_name(target.label)
                lines.append(
                    _call(
                        "backend_test_program",
                        seen[key],
                        SOURCES=sources,
                        OBJECTS=objects,
                        LIBRARIES=[*archives, *self._external([target])],
                        OPTIONS=options,
                    )
                )
            environment = [
                f"{key}={value}" for key, value in target.arguments.get("env", {}).items()
            ]
            lines.append(
                _call("backend_test", _cmake_name(target.label), seen[key], ENVIRONMENT=environment)
            )
        return "\n".join(lines)

    def project(self) -> str:
        """Returns the part of pyproject.toml that describes the wheel."""
        target = self._workspace.target("//python:dist_info")
        assert target is not None
        fields = target.arguments
        lines = [
            "[project]",
            f"name = {json.dumps(fields['distribution'])}",
            f"version = {json.dumps(fields['version'])}",
            f"description = {json.dumps(fields['summary'])}",
            'readme = "README.md"',
            f"license = {json.dumps(fields['license'])}",
            f'license-files = ["{Path(path_of(fields["license_file"])).name}"]',
            f"requires-python = {json.dumps(fields['requires_python'])}",
            f"dependencies = {json.dumps(fields['requires'])}",
        ]
        for group, entries in fields["entry_points"].items():
            lines += ["", f"[project.entry-points.{json.dumps(group)}]"]
            for entry in entries:
                name, value = entry.split(" = ")
                lines.append(f"{name} = {json.dumps(value)}")
        lines += [
            "",
            "[build-system]",
            f"requires = {json.dumps([*_BACKEND, *fields['requires']])}",
            'build-backend = "scikit_build_core.build"',
            "",
            "[tool.scikit-build]",
            'minimum-version = "0.10"',
            'build-dir = "build/{wheel_tag}"',
            "wheel.packages = []  # CMake installs all files",
        ]
        return "".join(line + "\n" for line in lines)

    def _closure(self, targets: Iterable[Target]) -> Iterator[str]:
        """Yields the labels of everything that targets compile or link, once each, in order."""
        seen: set[str] = set()
        pending = [target.label for target in targets]
        while pending:
            label = pending.pop()
            if label in seen or (not label.startswith("@") and label not in self._labels):
                continue
            seen.add(label)
            yield label
            target = self._workspace.target(label) if not label.startswith("@") else None
            if target is not None:
                package = label[2:].split(":")[0]
                dependencies = [*target.arguments.get("deps", []), target.arguments.get("actual")]
                pending.extend(absolute(word, package) for word in dependencies if word)

    def _objects(self, targets: Iterable[Target]) -> list[Target]:
        """Returns the libraries with code that targets link, except the targets themselves."""
        targets = list(targets)
        roots = {target.label for target in targets}
        result = []
        for label in sorted(self._closure(targets)):
            target = None if label.startswith("@") else self._workspace.target(label)
            if target is None or label in roots or target.kind != "cc_library":
                continue
            if self._sources(target):
                result.append(target)
        return result

    def _sources(self, target: Target) -> list[str]:
        """Returns the paths of a target's own C++ files, including those in filegroups."""
        package = target.label[2:].split(":")[0]
        paths = []
        for source in target.arguments.get("srcs", []):
            label = absolute(source, package)
            group = self._workspace.target(label)
            if group is None:
                paths.append(path_of(label))
            elif label in self._labels:
                paths.extend(self._sources(group))
        return [path for path in paths if Path(path).suffix in _CODE and path in self._files]

    def _parts(self, target: Target) -> tuple[list[str], list[str]]:
        """Returns the names of the object libraries and of the archives that a target links."""
        objects: list[str] = []
        archives: list[str] = []
        for needed in self._objects([target]):
            is_whole = needed.arguments.get("alwayslink", False)
            (objects if is_whole else archives).append(_cmake_name(needed.label))
        return objects, archives

    def _external(self, targets: Iterable[Target]) -> list[str]:
        labels = {label for label in self._closure(targets) if label.startswith("@")}
        return sorted({_EXTERNAL[label] for label in labels})

    def _object_library(self, target: Target) -> str:
        is_whole = target.arguments.get("alwayslink", False)
        return _call(
            "backend_objects" if is_whole else "backend_archive",
            _cmake_name(target.label),
            SOURCES=self._sources(target),
            LIBRARIES=[name for name in self._external([target]) if not name.endswith("libraries")],
            OPTIONS=[option for option in target.arguments.get("copts", []) if option == "-O3"],
        )

    def _shared_library(self, target: Target) -> str:
        package = target.label[2:].split(":")[0]
        arguments = target.arguments
        linkopts = arguments["linkopts"]
        objects, archives = self._parts(target)
        return _call(
            "backend_library",
            _cmake_name(target.label),
            OUTPUT=[Path(arguments["name"]).name],
            FOLDER=[self._folder(target)],
            SOURCES=self._sources(target),
            OBJECTS=objects,
            LIBRARIES=[
                *archives,
                *(
                    _cmake_name(self._actual(absolute(word, package)))
                    for word in arguments["additional_linker_inputs"]
                    if self._is_library(word) and absolute(word, package) in self._labels
                ),
                *self._external([target]),
            ],
            RPATHS=[
                option.removeprefix("-Wl,-rpath,").replace("$$", "$")
                for option in linkopts
                if option.startswith("-Wl,-rpath,")
            ],
            OPTIONS=[option for option in linkopts if option == "-Wl,-z,defs"],
        )

    def _actual(self, label: str) -> str:
        """Returns the label to which an alias refers, or the label itself."""
        target = self._workspace.target(label)
        assert target is not None, label
        if "actual" not in target.arguments:
            return label
        return self._actual(absolute(target.arguments["actual"], label[2:].split(":")[0]))

    def _folder(self, library: Target) -> str:
        """Returns the folder of a library in the wheel."""
        for target in self._targets:
            sources = target.arguments.get("srcs")
            if target.kind == "rule" and isinstance(sources, dict):
                for label, path in sources.items():
                    if self._is_library(label) and self._actual(label) == library.label:
                        return str(Path(path).parent)
        return str(Path(library.arguments["name"]).parent)

    def _is_library(self, label: str) -> bool:
        return label.endswith("_shared")

    def _installed(self, copies: Target) -> Iterator[str]:
        """Yields the commands that install the files that one rule copies into the wheel."""
        folders: dict[str, list[str]] = {}
        for label, path in copies.arguments["srcs"].items():
            if path_of(label) in self._files:
                folders.setdefault(str(Path(path).parent), []).append(path_of(label))
        for folder, paths in sorted(folders.items()):
            yield _call("install", FILES=sorted(paths), DESTINATION=[folder])


_HEADER = """\
# SPDX-License-Identifier: BSD-3-Clause
#
# {}
"""

# The packages that pip installs before it builds.
_BACKEND = ["scikit-build-core>=0.10"]


def _cmake_name(label: str) -> str:
    """Returns the name of a target in CMake, such as runtime_c10_libopenreg_c10."""
    return re.sub(r"\W+", "_", re.sub(r"\.so$", "", label[2:])).strip("_")


def _call(function: str, *names: str, **lists: Iterable[Any]) -> str:
    """Returns a call to a CMake function, with one line for each item of its lists."""
    lines = [" ".join([f"{function}({' '.join(names)}"])]
    for keyword, items in lists.items():
        items = list(items)
        if items:
            lines.append(f"  {keyword}")
            lines.extend(f"    {json.dumps(item) if '$' in item else item}" for item in items)
    return "\n".join(lines) + ")"
