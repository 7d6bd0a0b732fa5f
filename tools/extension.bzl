# SPDX-License-Identifier: BSD-3-Clause
"""Extension modules and wheels for several Python releases: that of @python, and those of @pythons.

All code of an extension module depends on the Python release. The libraries that it links do not,
so they are built once.
"""

load("@python//:defs.bzl", "EXT_SUFFIX", "RELEASE", "WHEEL_TAG")
load("@pythons//:defs.bzl", "RELEASES")
load("//tools:cc.bzl", "TORCH_COPTS", "openreg_shared_object")
load("//tools/wheel:wheel.bzl", "wheel")

def _for_release(text, release):
    """Returns a file name or tag of @python's release as it is for another one."""
    return text.replace("cp" + RELEASE, "cp" + release).replace("cpython-" + RELEASE, "cpython-" + release)

def openreg_extension(name, deps, **kwargs):
    """A Python module in C++, which one release at a time can load.

    Args:
      name: the path of the module, without the suffix that names the release.
      deps: targets that have headers only.
      **kwargs: as for openreg_shared_object.
    """
    headers = {RELEASE: "@python//:headers"}
    for release in RELEASES:
        headers[release] = "@pythons//:headers_" + release
    for release, label in headers.items():
        openreg_shared_object(
            name = name + _for_release(EXT_SUFFIX, release),
            copts = TORCH_COPTS,
            extension = True,
            tags = [] if release == RELEASE else ["manual"],
            deps = deps + [label, "@torch//:headers", "@torch//:python_link"],
            **kwargs
        )

def openreg_wheels(name, base, extension, srcs, visibility = None, **kwargs):
    """Wheels that differ in the extension module, for instance NAME_312 for Python 3.12.

    Args:
      name: a filegroup of all wheels, including that of @python.
      base: the wheel for @python's release, which is defined apart.
      extension: the name of the openreg_extension.
      srcs: everything else, as for wheel.
      visibility: the visibility of all these targets.
      **kwargs: as for wheel.
    """
    for release in RELEASES:
        wheel(
            name = "%s_%s" % (name, release),
            srcs = srcs + [extension + _for_release(EXT_SUFFIX, release)],
            tag = _for_release(WHEEL_TAG, release),
            tags = ["manual"],
            visibility = visibility,
            **kwargs
        )
    native.filegroup(
        name = name,
        srcs = [base] + ["%s_%s" % (name, release) for release in RELEASES],
        tags = ["manual"],
        visibility = visibility,
    )
