# SPDX-License-Identifier: BSD-3-Clause
"""Packages that only some tests need; they are installed when such a test is built."""

load("//third_party/python:python_configure.bzl", "PYTHON_ENVIRON", "find_python")

_BUILD = """\
exports_files(["folder.txt"], visibility = ["//visibility:public"])
"""

def _python_packages_impl(ctx):
    python = find_python(ctx, ctx.attr._root)
    script = ctx.path(ctx.attr._script)
    lock = ctx.path(ctx.attr.lock)
    ctx.report_progress("pip installs %s" % ctx.attr.lock)
    result = ctx.execute([python, "-I", script, lock], timeout = 1800)
    if result.return_code != 0:
        fail("pip could not install %s: check that pip can reach a package index\n%s" % (lock, result.stderr))
    ctx.file("BUILD.bazel", _BUILD)

    # Every test that imports the packages depends on this file, whose content changes with the
    # lock.
    ctx.file("folder.txt", result.stdout)

python_packages = repository_rule(
    implementation = _python_packages_impl,
    attrs = {
        "lock": attr.label(
            doc = "Exact versions with hashes, without the packages in //:requirements.lock.",
            mandatory = True,
        ),
        "_root": attr.label(default = "//:WORKSPACE"),
        "_script": attr.label(default = "//third_party/python:install_packages.py"),
    },
    configure = True,
    doc = "folder.txt: the path of a folder, shared by all clones, that belongs on sys.path.",
    environ = PYTHON_ENVIRON,
    local = True,
)
