# SPDX-License-Identifier: BSD-3-Clause
"""The version of the kit, and the schema version of the reports that it writes."""

# Keep in sync with conformance/BUILD.bazel.
VERSION = "0.1.0"

# The version of the JSON report's schema. A reader rejects reports of another major version;
# report/schema.json describes each version.
SCHEMA = "1.1"
