# SPDX-License-Identifier: BSD-3-Clause
"""Versions of the kit and of what it writes."""

# Also in conformance/BUILD.bazel.
VERSION = "0.1.0"

# Of the JSON report. A reader refuses a report of another major version; report/schema.json says
# what each version has.
SCHEMA = "1.0"
