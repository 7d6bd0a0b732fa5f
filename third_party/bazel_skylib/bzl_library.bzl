# SPDX-License-Identifier: BSD-3-Clause
"""The one rule of @bazel_skylib that Bazel 7 loads."""

def bzl_library(name, srcs = [], deps = [], visibility = None, **_kwargs):
    """A group of .bzl files.

    Args:
      name: the target's name.
      srcs: the .bzl files.
      deps: other bzl_library targets.
      visibility: the target's visibility.
      **_kwargs: other arguments of the real rule, which have no effect here.
    """
    native.filegroup(
        name = name,
        srcs = srcs + deps,
        visibility = visibility,
    )
