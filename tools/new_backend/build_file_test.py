# SPDX-License-Identifier: BSD-3-Clause
"""Evaluates BUILD files: which files a target needs, and which part of a BUILD file remains."""

import textwrap
from pathlib import Path

import pytest

from tools.new_backend.build_file import Workspace
from tools.new_backend.build_text import shorten, shorten_extension, without

BUILD = """
# The package.
load("//rules:cc.bzl", "library", "unused")
load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")

NAMES = ["x"]

# Two targets by one call.
library(
    name = "seen",
    srcs = select({
        "//runtime:minimal_driver": [
            "minimal.cc",
        ],
        "//conditions:default": ["emulation.cc"],
    }),
    tags = select({
        "//runtime:minimal_driver": [],
        "//conditions:default": ["slow"],
    }),
    visibility = [
        "//other:__pkg__",
    ],
    deps = [
        ":headers",
    ] + select({
        "//runtime:minimal_driver": [],
        "//conditions:default": ["//emulation"],
    }),
)

cc_library(
    name = "headers",
    hdrs = glob(["*.h"]),
    copts = select({
        ":debug": ["-O0"],
        "//conditions:default": [],
    }),
    deps = ["@torch//:headers"],
)

config_setting(
    name = "debug",
    values = {"compilation_mode": "dbg"},
)

# Not needed.
cc_library(
    name = "emulation",
    srcs = ["emulation.cc"],
)

[cc_test(
    name = name,
    srcs = [name + ".cc"],
) for name in [
    "first_test",
    "second_test",
]]
"""

EXPECTED = """
# The package.
load("//rules:cc.bzl", "library")
load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")

NAMES = ["x"]

# Two targets by one call.
library(
    name = "seen",
    srcs = [
        "minimal.cc",
    ],
    visibility = [
        "//other:__pkg__",
    ],
    deps = [
        ":headers",
    ],
)

cc_library(
    name = "headers",
    hdrs = glob(["*.h"]),
    copts = select({
        ":debug": ["-O0"],
        "//conditions:default": [],
    }),
    deps = ["@torch//:headers"],
)

config_setting(
    name = "debug",
    values = {"compilation_mode": "dbg"},
)

[cc_test(
    name = name,
    srcs = [name + ".cc"],
) for name in [
    "second_test",
]]
"""

RULES = """
load("//rules:more.bzl", "EXTRA")

def library(name, srcs, deps, tags, visibility):
    native.cc_library(name = name + "_objects", srcs = srcs, deps = deps)
    native.cc_library(name = name, deps = [":%s_objects" % name] + EXTRA, visibility = visibility)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the folder of a small workspace."""
    for path, text in {
        "a/BUILD.bazel": BUILD,
        "a/minimal.cc": "",
        "a/emulation.cc": "",
        "a/first.h": "",
        "a/first_test.cc": "",
        "a/second_test.cc": "",
        "rules/BUILD.bazel": "",
        "rules/cc.bzl": RULES,
        "rules/more.bzl": 'EXTRA = ["//rules:exports.lds"]\n',
        "rules/exports.lds": "",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_closure(root: Path) -> None:
    targets, files, repositories = Workspace(root).closure(["//a:seen", "//a:second_test"])
    assert targets == {
        "//a:seen",
        "//a:seen_objects",
        "//a:headers",
        "//a:debug",
        "//a:second_test",
    }
    assert files == {
        "a/BUILD.bazel",
        "a/first.h",
        "a/minimal.cc",
        "a/second_test.cc",
        "rules/cc.bzl",
        "rules/exports.lds",
        "rules/more.bzl",
    }
    assert repositories == {"torch", "rules_cc"}


def test_what_is_absent_is_not_followed(root: Path) -> None:
    workspace = Workspace(root, is_absent=lambda label: label == "//a:headers")
    targets, files, _ = workspace.closure(["//a:seen"])
    assert targets == {"//a:seen", "//a:seen_objects"}
    assert "a/first.h" not in files


def test_a_target_that_does_not_exist(root: Path) -> None:
    with pytest.raises(KeyError, match="no target //a:none"):
        Workspace(root).closure(["//a:none"])


def test_shorten(root: Path) -> None:
    workspace = Workspace(root)
    targets, _, _ = workspace.closure(["//a:seen", "//a:second_test"])
    package = workspace.package("a")
    assert package is not None

    def is_kept(label: str) -> bool:
        return label in targets or not workspace.has(label)

    assert shorten(package, targets, is_kept) == EXPECTED


def test_files_that_are_left_out_leave_lists_and_dictionaries(root: Path) -> None:
    (root / "b").mkdir()
    (root / "b" / "BUILD.bazel").write_text(
        textwrap.dedent(
            """\
            load("@x//:y.bzl", "copy")

            copy(
                name = "copied",
                srcs = {
                    "//a:first.h": "include/first.h",
                    "//a:minimal.cc": "minimal.cc",
                },
                data = ["//a:first.h", "//a:minimal.cc"],
            )
            """
        )
    )
    package = Workspace(root).package("b")
    assert package is not None
    text = shorten(package, {"//b:copied"}, lambda label: label != "//a:first.h")
    assert "first.h" not in text
    assert '        "//a:minimal.cc": "minimal.cc",\n' in text
    assert 'data = ["//a:minimal.cc"]' in text


def test_without() -> None:
    text = textwrap.dedent(
        """
        # The workspace.
        workspace(name = "w")

        load("//x:x.bzl", "x_configure")

        x_configure(name = "x")

        # For linters.
        load("//y:y.bzl", "y_configure")

        y_configure(name = "y")
        """
    )
    shorter = without(text, lambda called, name: called != "workspace" and name != "x")
    assert shorter == text[: text.index("\n# For linters.")]


def test_shorten_extension() -> None:
    text = textwrap.dedent(
        """
        _A = "used by what is dropped"
        _B = "used by what stays"

        REASONS = {
            "//a:gone_test.py::test_x": _A,
            "//b:kept_test.py::test_y": _B,
        }

        def on_driver(value):
            return select({
                "//runtime:minimal_driver": value,
                "//conditions:default": [],
            })
        """
    )
    assert shorten_extension(text, "rules", lambda label: label != "//a:gone_test.py") == (
        textwrap.dedent(
            """
            _B = "used by what stays"

            REASONS = {
                "//b:kept_test.py::test_y": _B,
            }

            def on_driver(value):
                return value
            """
        )
    )
