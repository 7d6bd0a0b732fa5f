# SPDX-License-Identifier: BSD-3-Clause
"""@googletest: GoogleTest and GoogleMock, from sources on the machine.

$OPENREG_GOOGLETEST is their folder. The default is the folder of Debian's package `googletest`.
"""

_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "gtest",
    srcs = ["googletest/src/gtest-all.cc", "googlemock/src/gmock-all.cc"],
    hdrs = glob(["googletest/include/**/*.h", "googlemock/include/**/*.h"]),
    includes = ["googletest/include", "googlemock/include"],
    textual_hdrs = glob(
        ["googletest/src/*.cc", "googletest/src/*.h", "googlemock/src/*.cc"],
        exclude = ["**/*_main.cc"],
    ),
    copts = ["-Iexternal/googletest/googletest", "-Iexternal/googletest/googlemock"],
    linkopts = ["-pthread"],
)

cc_library(
    name = "gtest_main",
    srcs = ["googlemock/src/gmock_main.cc"],
    deps = [":gtest"],
)
"""

def _googletest_configure_impl(ctx):
    root = ctx.os.environ.get("OPENREG_GOOGLETEST", "/usr/src/googletest")
    if not ctx.path(root + "/googletest/src/gtest-all.cc").exists:
        fail("GoogleTest's sources are not in %s: " % root +
             "run ./bazelw, which installs the package googletest, or set OPENREG_GOOGLETEST")
    ctx.symlink(root + "/googletest", "googletest")
    ctx.symlink(root + "/googlemock", "googlemock")
    ctx.file("BUILD.bazel", _BUILD)

googletest_configure = repository_rule(
    implementation = _googletest_configure_impl,
    configure = True,
    doc = "GoogleTest and GoogleMock: targets gtest (both libraries) and gtest_main.",
    environ = ["OPENREG_GOOGLETEST"],
    local = True,
)
