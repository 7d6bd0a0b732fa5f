# SPDX-License-Identifier: BSD-3-Clause
"""Repositories that @bazel_tools loads, from this tree instead of the network."""

_NAMES = [
    "bazel_skylib",  # Bazel 7
    "remote_coverage_tools",  # every test
    "rules_cc",
    "rules_java",
    "rules_python",  # Bazel 7
]  # buildifier: disable=unnamed-macro

def bazel_deps():
    """Declares them; the same definitions serve Bazel 4 and Bazel 7."""
    for name in _NAMES:
        native.local_repository(
            name = name,
            path = "third_party/" + name,
        )
