# SPDX-License-Identifier: BSD-3-Clause
"""Runs a list of tests in every configuration of the device."""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")
load("//tools:cc.bzl", "COPTS")

# The configurations. The keys are their names, and the values are environment variables.
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
    """Defines tests that are compiled once and run in every configuration.

    Creates a cc_test NAME_<configuration> for each configuration, and a test_suite NAME of them.

    Args:
      name: name of the suite.
      srcs: sources with gtests.
      deps: dependencies of the sources.
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
