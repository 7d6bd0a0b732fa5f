# SPDX-License-Identifier: BSD-3-Clause
"""Small passes over graphs of ATen operators. Each can be used alone.

A pass changes a graph module in place and returns one line of text for each change.
"""
