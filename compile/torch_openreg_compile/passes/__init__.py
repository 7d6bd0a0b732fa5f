# SPDX-License-Identifier: BSD-3-Clause
"""Small passes over graphs of ATen operators. Each can be used alone.

A pass takes a graph module, changes it in place, and returns a line for each change.
"""
