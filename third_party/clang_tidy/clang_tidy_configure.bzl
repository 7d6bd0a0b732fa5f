# SPDX-License-Identifier: BSD-3-Clause
"""@clang_tidy: the program that requirements.lock installs.

As a file of a repository, it is an input of the actions that run it by its contents and not by
its path: what one clone has checked, another takes from the cache.
"""

load("//third_party/python:python_configure.bzl", "PYTHON_ENVIRON", "find_python", "probe")

_PROBE = """
import importlib.util, json, pathlib
spec = importlib.util.find_spec("clang_tidy")
if spec is None or spec.origin is None:
    raise SystemExit("No module named 'clang_tidy'")
print(json.dumps(dict(data = str(pathlib.Path(spec.origin).parent / "data"))))
"""

_BUILD = """\
exports_files(["bin/clang-tidy"], visibility = ["//visibility:public"])
"""

def _clang_tidy_configure_impl(ctx):
    python = find_python(ctx, ctx.attr._root)
    info = probe(ctx, python, _PROBE, "clang-tidy is not in the Python environment: run ./bazelw")

    # Its own headers stay where they are: it looks for them beside the file that the link names.
    ctx.symlink(info["data"] + "/bin/clang-tidy", "bin/clang-tidy")
    ctx.file("BUILD.bazel", _BUILD)

clang_tidy_configure = repository_rule(
    implementation = _clang_tidy_configure_impl,
    attrs = {"_root": attr.label(default = "//:WORKSPACE")},
    configure = True,
    doc = "clang-tidy: the file bin/clang-tidy.",
    environ = PYTHON_ENVIRON,
    local = True,
)
