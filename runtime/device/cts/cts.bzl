# SPDX-License-Identifier: BSD-3-Clause
"""Runs the conformance suite against a driver."""

load("@rules_cc//cc:defs.bzl", "cc_test")
load("//runtime/device:variants.bzl", "CONFIGURATIONS")
load("//tools:cc.bzl", "COPTS")

def driver_conformance_test(name, srcs, deps):
    """Defines a test NAME_<configuration> for each configuration, and a test_suite NAME of them.

    Args:
      name: name of the suite.
      srcs: define openreg::cts::TestedDriver() (driver.h).
      deps: the driver, and what srcs need.
    """
    for configuration, env in CONFIGURATIONS.items():
        cc_test(
            name = name + "_" + configuration,
            size = "medium",
            srcs = srcs,
            copts = COPTS,
            env = env,
            linkstatic = True,
            deps = deps + ["//runtime/device/cts"],
        )
    native.test_suite(
        name = name,
        tests = [":" + name + "_" + configuration for configuration in CONFIGURATIONS],
    )
