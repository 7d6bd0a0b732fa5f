# SPDX-License-Identifier: BSD-3-Clause
"""Tests times modes of torch in which the process launches first."""

load("//tools:pytest.bzl", "openreg_py_test")

# Values of --first-launches (first_launches.py).
MODES = [
    "autocast",
    "forward_ad",
    "inference_mode",
    "vmap",
]

def first_launches_test(name, deps, **kwargs):
    """Runs a test file once more for each mode, as NAME_after_MODE.

    Args:
      name: of the file, without its suffix.
      deps: of the file.
      **kwargs: as for openreg_py_test.
    """
    for mode in MODES:
        openreg_py_test(
            name = "%s_after_%s" % (name, mode),
            srcs = [name + ".py"],
            args = ["-p", "tests.first_launches", "--first-launches", mode],
            deps = deps + [":first_launches"],
            **kwargs
        )
