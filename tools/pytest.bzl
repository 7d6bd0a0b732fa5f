# SPDX-License-Identifier: BSD-3-Clause
"""openreg_py_test: a py_test that runs its files with pytest."""

load("@rules_python//python:defs.bzl", "py_test")
load("//tools:slow_tests.bzl", "SLOW_TESTS")

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
      **kwargs: as for py_test.
    """
    slow = "//%s:%s" % (native.package_name(), name) in SLOW_TESTS
    py_test(
        name = name,
        srcs = srcs + ["//tools:pytest_main.py"],
        args = ["$(location %s)" % src for src in srcs] + args,
        data = data + srcs + ["//:pyproject.toml", "@python//:packages.txt"],
        legacy_create_init = False,
        main = "//tools:pytest_main.py",
        tags = tags + (["manual", "slow"] if slow else []),
        deps = deps,
        **kwargs
    )
