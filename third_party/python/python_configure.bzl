# SPDX-License-Identifier: BSD-3-Clause
"""@python: the interpreter that builds, tests and packages use.

$OPENREG_PYTHON, or else .venv/bin/python of the workspace. $OPENREG_PYTHON_STAMP (tools/bazel
sets it) changes with the packages of that environment, so that the rule runs again.
"""

PYTHON_ENVIRON = [
    "OPENREG_PYTHON",
    "OPENREG_PYTHON_STAMP",
]

# What the build has to know of the interpreter, as JSON.
_PROBE = """
import importlib.metadata, json, os, platform, sys, sysconfig
libc, libc_version = os.confstr("CS_GNU_LIBC_VERSION").split()
major, minor = libc_version.split(".")[:2]
version = sys.version_info
print(json.dumps(dict(
    executable = sys.executable,
    version = "%d.%d.%d" % version[:3],
    include = sysconfig.get_paths()["include"],
    ext_suffix = sysconfig.get_config_var("EXT_SUFFIX"),
    tag = "cp%d%d" % version[:2],
    # Libraries that were linked here run wherever this glibc is, or a later one.
    platform_tag = "manylinux_%s_%s_%s" % (major, minor, platform.machine()),
    packages = sorted(
        {"%s==%s" % (d.metadata["Name"], d.version) for d in importlib.metadata.distributions()}
    ),
)))
"""

def find_python(ctx, root):
    """The path of the interpreter.

    Args:
      ctx: the repository context.
      root: Label of a file at the top of the workspace.

    Returns:
      The absolute path, a string; links are not followed, for a venv is known by its path.
    """
    path = ctx.os.environ.get("OPENREG_PYTHON")
    if path:
        if not ctx.path(path).exists:
            fail("OPENREG_PYTHON=%s: there is no such file" % path)
        return path
    venv = ctx.path(str(ctx.path(root).dirname) + "/.venv")
    if not venv.get_child("bin").get_child("python").exists:
        fail("%s is not there: run ./bazelw, which makes it, or set OPENREG_PYTHON" % venv)

    # The folder that all clones share. The link of the interpreter in it is not followed.
    return str(venv.realpath) + "/bin/python"

def probe(ctx, python, code, help):
    """What a program says.

    Args:
      ctx: the repository context.
      python: path of the interpreter.
      code: the program; it prints one JSON object.
      help: what to do when it fails.

    Returns:
      The object.
    """
    result = ctx.execute([python, "-I", "-c", code], timeout = 120)
    if result.return_code != 0:
        fail("\n\n%s\n(interpreter: %s)\n%s\n" % (help, python, result.stderr))
    return json.decode(result.stdout)

_BUILD = """\
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

exports_files(["packages.txt"])

cc_library(
    name = "headers",
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],
)

py_runtime(
    name = "runtime",
    interpreter_path = "{executable}",
    python_version = "PY3",
    # Bazel's own default is "#!/usr/bin/env python", which Debian lacks.
    stub_shebang = "#!{executable}",
)

py_runtime_pair(
    name = "runtime_pair",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":runtime_pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

_DEFS = """\
PYTHON = "{executable}"
EXT_SUFFIX = "{ext_suffix}"
WHEEL_TAG = "{tag}-{tag}-{platform_tag}"
"""

def _python_configure_impl(ctx):
    python = find_python(ctx, ctx.attr._root)
    info = probe(ctx, python, _PROBE, "The Python interpreter does not run: remove .venv and run ./bazelw.")
    if not info["version"].startswith("3.11."):
        fail("%s is Python %s, and 3.11 is needed" % (python, info["version"]))
    if not ctx.path(info["include"] + "/Python.h").exists:
        fail("Python.h is not in %s: install the headers of that interpreter (python3-dev)" % info["include"])
    ctx.symlink(info["include"], "include")
    ctx.file("BUILD.bazel", _BUILD.format(**info))
    ctx.file("defs.bzl", _DEFS.format(**info))

    # An input of each Python test: a result in the cache is of this environment only.
    lines = [info["executable"], info["version"]] + info["packages"]
    ctx.file("packages.txt", "".join([line + "\n" for line in lines]))

python_configure = repository_rule(
    implementation = _python_configure_impl,
    attrs = {"_root": attr.label(default = "//:WORKSPACE")},
    configure = True,
    doc = "The interpreter: its toolchain, headers, packages.txt (what is installed) and defs.bzl.",
    environ = PYTHON_ENVIRON,
    local = True,
)
