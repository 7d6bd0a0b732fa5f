# SPDX-License-Identifier: BSD-3-Clause
"""@python: the interpreter that builds, tests and packages use.

This is $OPENREG_PYTHON, or .venv/bin/python in the workspace if the variable is not set.
$OPENREG_PYTHON_STAMP, which tools/bazel sets, changes with the packages of that environment, so
that the rule runs again.
"""

PYTHON_ENVIRON = [
    "OPENREG_PYTHON",
    "OPENREG_PYTHON_STAMP",
]

# Prints what the build must know about the interpreter, as JSON.
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
    release = "%d%d" % version[:2],
    # Libraries that are linked here run with this glibc or a later one.
    platform_tag = "manylinux_%s_%s_%s" % (major, minor, platform.machine()),
    packages = sorted(
        {"%s==%s" % (d.metadata["Name"], d.version) for d in importlib.metadata.distributions()}
    ),
)))
"""

def find_python(ctx, root):
    """Returns the path of the interpreter.

    Args:
      ctx: the repository context.
      root: the label of a file at the top of the workspace.

    Returns:
      The absolute path, a string. Links are not followed, because the path identifies a venv.
    """
    path = ctx.os.environ.get("OPENREG_PYTHON")
    if path:
        if not ctx.path(path).exists:
            fail("OPENREG_PYTHON=%s: there is no such file" % path)
        return path
    venv = ctx.path(str(ctx.path(root).dirname) + "/.venv")
    if not venv.get_child("bin").get_child("python").exists:
        fail("%s does not exist: run ./bazelw, which creates it, or set OPENREG_PYTHON" % venv)

    # The path of the folder that all clones share, without following the interpreter's link in it.
    return str(venv.realpath) + "/bin/python"

def json_of(ctx, python, code):
    """Runs a Python program and returns what it prints, or None if it fails.

    Args:
      ctx: the repository context.
      python: the path of the interpreter.
      code: the program; it prints one JSON object.

    Returns:
      The parsed object.
    """
    result = ctx.execute([python, "-I", "-c", code], timeout = 120)
    return json.decode(result.stdout) if result.return_code == 0 else None

def probe(ctx, python, code, help):
    """Runs a Python program and returns what it prints.

    Args:
      ctx: the repository context.
      python: the path of the interpreter.
      code: the program; it prints one JSON object.
      help: what the user must do if it fails.

    Returns:
      The parsed object.
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
RELEASE = "{release}"
WHEEL_TAG = "cp{release}-cp{release}-{platform_tag}"
"""

def _python_configure_impl(ctx):
    python = find_python(ctx, ctx.attr._root)
    info = probe(ctx, python, _PROBE, "The Python interpreter does not run: remove .venv and run ./bazelw.")
    if not info["version"].startswith("3.11."):
        fail("%s is Python %s, but 3.11 is required" % (python, info["version"]))
    if not ctx.path(info["include"] + "/Python.h").exists:
        fail("Python.h is not in %s: install the headers of that interpreter (python3-dev)" % info["include"])
    ctx.symlink(info["include"], "include")
    ctx.file("BUILD.bazel", _BUILD.format(**info))
    ctx.file("defs.bzl", _DEFS.format(**info))

    # Every Python test depends on this file, so cached results are valid only for this environment.
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
