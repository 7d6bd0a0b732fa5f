# SPDX-License-Identifier: BSD-3-Clause
"""@pythons: headers of further Python releases, for which //python:wheels builds wheels.

For each release, this is the first interpreter that has headers among: $OPENREG_PYTHONS (paths,
separated by colons), python3.X in PATH, and the interpreters that pyenv installed. None of them
needs torch, whose headers and libraries are those of @torch: they are the same for every Python.
"""

load("//third_party/python:python_configure.bzl", "json_of")

_PROBE = """
import json, os, sys, sysconfig
header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
if not os.path.exists(header):
    raise SystemExit("no headers")
print(json.dumps(dict(
    executable = sys.executable,
    include = os.path.dirname(header),
    release = "%d%d" % sys.version_info[:2],
)))
"""

_FOUND = """\
cc_library(
    name = "headers_{release}",
    hdrs = glob(["include_{release}/**/*.h"]),
    includes = ["include_{release}"],
)

"""

# A build of such a wheel fails with this message; other targets are not affected.
_MISSING = """\
cc_library(
    name = "headers_{release}",
    hdrs = [":missing_{release}"],
)

genrule(
    name = "missing_{release}",
    outs = ["missing_{release}.h"],
    cmd = "echo >&2 '{message}'; exit 1",
)

"""

def _candidates(ctx, release):
    paths = [path for path in ctx.os.environ.get("OPENREG_PYTHONS", "").split(":") if path]
    paths.append(ctx.which("python" + release))
    home = ctx.os.environ.get("PYENV_ROOT") or ctx.os.environ.get("HOME", "/") + "/.pyenv"
    versions = ctx.path(home).get_child("versions")
    if versions.exists:
        paths += [
            version.get_child("bin").get_child("python" + release)
            for version in versions.readdir()
            if version.basename.startswith(release + ".")
        ]
    return [path for path in paths if path and ctx.path(str(path)).exists]

def _find(ctx, release):
    """Returns what is known of an interpreter of a release, or None."""
    for path in _candidates(ctx, release):
        info = json_of(ctx, path, _PROBE)
        if info and info["release"] == release.replace(".", ""):
            return info
    return None

def _pythons_configure_impl(ctx):
    build = [
        "load(\"@rules_cc//cc:defs.bzl\", \"cc_library\")",
        "",
        "package(default_visibility = [\"//visibility:public\"])",
        "",
    ]
    found = {}
    for version in ctx.attr.releases:
        info = _find(ctx, version)
        release = version.replace(".", "")
        if info:
            found[release] = info["executable"]
            ctx.symlink(info["include"], "include_" + release)
            build.append(_FOUND.format(release = release))
        else:
            build.append(_MISSING.format(
                release = release,
                message = ("No Python %s with headers: install it, or add its path to " +
                           "OPENREG_PYTHONS (docs/python.md)") % version,
            ))
    ctx.file("BUILD.bazel", "\n".join(build))
    ctx.file("defs.bzl", "RELEASES = %r\nFOUND = %r\nINTERPRETERS = %r\n" % (
        [version.replace(".", "") for version in ctx.attr.releases],
        found.keys(),
        ":".join(["%s=%s" % item for item in found.items()]),
    ))

pythons_configure = repository_rule(
    implementation = _pythons_configure_impl,
    attrs = {
        "releases": attr.string_list(doc = "Releases other than that of @python, as 3.X."),
    },
    configure = True,
    doc = """Targets headers_3X. In defs.bzl: RELEASES, all of them as 3X; FOUND, those with an
interpreter; INTERPRETERS, the paths of these: 310=/usr/bin/python3.10:312=...""",
    environ = [
        "HOME",
        "OPENREG_PYTHONS",
        "PYENV_ROOT",
    ],
    local = True,
)
