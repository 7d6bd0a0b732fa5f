# SPDX-License-Identifier: BSD-3-Clause
"""One list of tests times a list of configurations of the device."""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")
load("//tools:cc.bzl", "COPTS")

# Name of a configuration, and the environment that makes it.
CONFIGURATIONS = {
    "%d_device%s_%s" % (count, "" if count == 1 else "s", "blocking" if blocking else "async"): {
        "OPENREG_DEVICE_COUNT": str(count),
        "OPENREG_DEVICE_MEMORY": "256M",
        "OPENREG_LAUNCH_BLOCKING": str(blocking),
    }
    for count in [1, 2, 8]
    for blocking in [0, 1]
}

def device_test(name, srcs, deps, **kwargs):
    """Tests that hold in every configuration: compiled once, run in each.

    Makes a cc_test NAME_<configuration> for each configuration, and a test_suite NAME of all.

    Args:
      name: of the suite.
      srcs: sources with gtests.
      deps: of the sources.
      **kwargs: as for cc_test.
    """
    cc_library(
        name = name + "_objects",
        testonly = True,
        srcs = srcs,
        alwayslink = True,
        copts = COPTS,
        linkstatic = True,
        deps = deps + ["@googletest//:gtest"],
    )
    for configuration, env in CONFIGURATIONS.items():
        cc_test(
            name = name + "_" + configuration,
            env = env,
            linkstatic = True,
            deps = [":" + name + "_objects", "@googletest//:gtest_main"],
            **kwargs
        )
    native.test_suite(
        name = name,
        tests = [":" + name + "_" + configuration for configuration in CONFIGURATIONS],
    )
