# SPDX-License-Identifier: BSD-3-Clause
"""openreg_py_test: a py_test that runs its files with pytest."""

load("@rules_python//python:defs.bzl", "py_test")
load("//tools:minimal_driver.bzl", "LEFT_OUT", "NEEDS")
load("//tools:slow_tests.bzl", "SLOW_TESTS")

def _on_minimal_driver(value):
    return select({
        "//runtime:minimal_driver": value,
        "//conditions:default": [],
    })

def openreg_py_test(name, srcs, args = [], data = [], deps = [], tags = [], **kwargs):
    """py_test with pytest as its main program.

    `--test_filter=EXPRESSION` becomes pytest's -k; shard_count splits the tests in the files.

    Args:
      name: the test's name.
      srcs: the test files (list a conftest.py in data).
      args: more arguments for pytest.
      data: as for py_test.
      deps: as for py_test.
      tags: as for py_test; a test in slow_tests.bzl also gets the tags "slow" and "manual".
        minimal_driver.bzl leaves out tests, or whole targets, on the minimal driver.
      **kwargs: as for py_test.
    """
    package = "//" + native.package_name()
    label = "%s:%s" % (package, name)
    slow = label in SLOW_TESTS
    feature = NEEDS.get(label, NEEDS.get(package))
    left_out = [
        "'--deselect=%s'" % test[2:].replace(":", "/", 1)
        for test in LEFT_OUT
        if test.split("::")[0] in ["%s:%s" % (package, src) for src in srcs]
    ]
    py_test(
        name = name,
        srcs = srcs + ["//tools:pytest_main.py"],
        args = ["$(location %s)" % src for src in srcs] + args + _on_minimal_driver(left_out),
        data = data + srcs + ["//:pyproject.toml", "@python//:packages.txt"],
        legacy_create_init = False,
        main = "//tools:pytest_main.py",
        tags = tags + (["manual", "slow"] if slow else []),
        target_compatible_with = _on_minimal_driver(["//runtime:driver_with_" + feature]) if feature else [],
        deps = deps,
        **kwargs
    )
