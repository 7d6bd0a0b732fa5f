# SPDX-License-Identifier: BSD-3-Clause
"""@clang_tidy: the clang-tidy program that requirements.lock installs.

Because it is a file in a repository, the actions that run it depend on its contents and not on its
path, so all clones share their cached results.
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

    # clang-tidy finds its own headers beside the file to which the link points, so they need no
    # link.
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
