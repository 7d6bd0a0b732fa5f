# SPDX-License-Identifier: BSD-3-Clause
"""The version of the kit, and the schema version of the reports that it writes."""

# Keep this in sync with conformance/BUILD.bazel.
VERSION = "0.1.0"

# The schema version of JSON reports, described in report/schema.json. A reader rejects reports of
# another major version.
SCHEMA = "1.1"
