# SPDX-License-Identifier: BSD-3-Clause
"""The main program of each openreg_py_test: runs pytest on the given files under Bazel."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


class Shard:
    """A pytest plugin that selects every `total`-th test, starting with the test at `index`."""

    def __init__(self, index: int, total: int) -> None:
        self.index = index
        self.total = total

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Deselects the tests of the other shards. pytest calls this hook."""
        kept = items[self.index :: self.total]
        dropped = [item for n, item in enumerate(items) if n % self.total != self.index]
        items[:] = kept
        if dropped:
            config.hook.pytest_deselected(items=dropped)


class LeftOut:
    """A pytest plugin that raises an error if a --deselect matches no test."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Checks the options before pytest applies them. pytest calls this hook."""
        for prefix in config.getoption("deselect") or ():
            if not any(item.nodeid.startswith(prefix) for item in items):
                raise pytest.UsageError(
                    f"no test matches {prefix}: correct tools/minimal_driver.bzl"
                )


def main(argv: list[str], env: Mapping[str, str]) -> int:
    """Runs pytest.

    Args:
        argv: the test files, relative to the workspace, and arguments for pytest.
        env: the environment that Bazel sets for a test (see its "test encyclopedia").

    Returns:
        The exit status.
    """
    root = Path(env["TEST_SRCDIR"], env["TEST_WORKSPACE"])
    args = ["-p", "no:cacheprovider", "--rootdir", str(root), "-c", str(root / "pyproject.toml")]
    # hypothesis must use the same examples in each run, because Bazel caches test results.
    args.append("--hypothesis-profile=ci")
    if "XML_OUTPUT_FILE" in env:
        args += ["--junitxml", env["XML_OUTPUT_FILE"]]
    chosen = env.get("TESTBRIDGE_TEST_ONLY")
    if chosen:
        args += ["-k", chosen]
    plugins: list[object] = [LeftOut()]
    total = int(env.get("TEST_TOTAL_SHARDS", "1"))
    if total > 1:
        # This file tells Bazel that the test supports sharding.
        Path(env["TEST_SHARD_STATUS_FILE"]).touch()
        plugins.append(Shard(int(env["TEST_SHARD_INDEX"]), total))
    files = [str(root / arg) if arg.endswith(".py") else arg for arg in argv]
    status = pytest.main(args + files, plugins)
    # A shard or a filter may select no tests. In all other cases, a file without tests is an error.
    if status == pytest.ExitCode.NO_TESTS_COLLECTED and (total > 1 or chosen):
        return 0
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
