# SPDX-License-Identifier: BSD-3-Clause
"""Small passes over graphs of ATen operators, each of which can be used alone.

A pass is called with a graph module, changes it in place, and returns a line for each change.
"""
