# SPDX-License-Identifier: BSD-3-Clause
"""The rules that Bazel has built in, under the names of @rules_python."""

py_binary = native.py_binary
py_library = native.py_library
py_runtime = native.py_runtime
py_test = native.py_test
