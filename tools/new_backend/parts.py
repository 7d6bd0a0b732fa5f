# SPDX-License-Identifier: BSD-3-Clause
"""What a new backend consists of: lists of targets and files, and no code.

The files of a target are found from the BUILD files (build_file.py); a file that no target names
is listed here.
"""

# Everything that a backend has in any case. Each entry brings what it depends on.
TARGETS = [
    "//autoload:wheel",
    "//python:installed",
    "//python:wheel",
]

# Programs and tests. A test is listed if it holds on a device that has the minimal driver.
TESTS = [
    "//amp:autocast_test",
    "//aten/fallback:host_fallback_test",
    "//runtime/allocator:caching_allocator_benchmark",
    "//runtime/allocator:caching_allocator_fuzz",
    "//runtime/allocator:caching_allocator_test",
    "//runtime/allocator:heap_test",
    "//runtime/allocator:history_test",
    "//runtime/allocator:limited_source_test",
    "//runtime/allocator:observer_test",
    "//runtime/allocator:pool_test",
    "//runtime/allocator:private_pool_test",
    "//runtime/allocator:reclaim_test",
    "//runtime/allocator:settings_test",
    "//runtime/allocator:size_class_test",
    "//runtime/allocator:stats_test",
    "//runtime/allocator:usage_test",
    "//runtime/diagnostics:race_detector_test",
    "//runtime/minimal:conformance_test",
    "//examples/digits",
    "//tests:amp_test",
    "//tests:autoload_alone_test",
    "//tests:compatibility_test",
    "//tests:copy_test",
    "//tests:device_test",
    "//tests:event_test",
    "//tests:grad_scaler_test",
    "//tests:import_hook_test",
    "//tests:legacy_types_test",
    "//tests:name_test",
    "//tests:package_test",
    "//tests:pinned_memory_test",
    "//tests:random_state_test",
    "//tests:serialization_test",
    "//tests:storage_test",
    "//tests:stream_test",
    "//tests:wheel_test",
    "//tools/wheel:archive_test",
]

# Files that no target names.
FILES = [
    ".bazelignore",
    ".bazelrc",
    ".bazelversion",
    ".clang-format",
    ".gitignore",
    "BUILD.bazel",
    "LICENSE",
    "WORKSPACE",
    "bazelw",
    "pyproject.toml",
    "requirements.in",
    "requirements.lock",
    "requirements.torch",
    "third_party/BUILD.bazel",
    "tools/bazel",
    "tools/bazelrc/bazel4.bazelrc",
    "tools/bazelrc/bazel7.bazelrc",
]

# External repositories that Bazel itself loads; others are kept if a target uses them.
REPOSITORIES = [
    "bazel_skylib",
    "python",
    "remote_coverage_tools",
    "rules_cc",
    "rules_java",
    "rules_python",
    "torch",
]

# These files say whose work the sources are. Nothing in them is renamed.
VERBATIM = ["LICENSE"]
