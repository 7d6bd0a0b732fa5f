# SPDX-License-Identifier: BSD-3-Clause
"""The one rule of @bazel_skylib that Bazel 7 loads."""

def bzl_library(name, srcs = [], deps = [], visibility = None, **_kwargs):
    """A group of .bzl files.

    Args:
      name: of the target.
      srcs: .bzl files.
      deps: other bzl_library targets.
      visibility: of the target.
      **_kwargs: what the real rule takes besides; nothing here needs it.
    """
    native.filegroup(
        name = name,
        srcs = srcs + deps,
        visibility = visibility,
    )
