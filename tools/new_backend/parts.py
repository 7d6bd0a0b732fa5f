# SPDX-License-Identifier: BSD-3-Clause
"""The parts of a new backend: lists of targets and files, without code.

The files of a target are found from the BUILD files (build_file.py); a file that no target names
is listed here.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Feature:
    """A part that a backend may lack.

    rewording.toml says what its absence changes in other files.
    """

    # Its folders and files, and targets that exist only for it.
    paths: tuple[str, ...]
    labels: tuple[str, ...] = ()
    # Tests that need it, and those of them that stand apart from the installed package.
    tests: tuple[str, ...] = ()
    bazel_tests: tuple[str, ...] = ()


FEATURES = {
    "compile": Feature(
        paths=(
            "aten/launch/compiled_kernel.h",
            "aten/table/compiled_kernel.cc",
            "compile/",
            "python/csrc/compiled_kernels.cc",
            "python/csrc/compiled_kernels.h",
            "python/torch_openreg/openreg/compiled.py",
        ),
        labels=("//python:compile",),
        tests=("//tests:amp_test",),
        bazel_tests=(
            "//compile:backend_test",
            "//compile:checkpointing_test",
            "//compile:dead_code_test",
            "//compile:debugging_test",
            "//compile:device_interface_test",
            "//compile:device_pass_test",
            "//compile:folding_test",
            "//compile:options_test",
            "//compile:pipeline_test",
            "//compile:registration_test",
            "//compile:rewriting_test",
            "//compile:subexpressions_test",
            "//compile:validation_test",
        ),
    ),
    "distributed": Feature(
        paths=(
            "distributed/",
            "python/csrc/distributed.cc",
            "python/csrc/distributed.h",
            "python/torch_openreg/distributed/",
        ),
    ),
    "profiler": Feature(
        paths=("profiler/", "python/torch_openreg/openreg/profiler.py"),
    ),
}

# How a backend is built.
BUILDS = ("bazel", "cmake")

# What a backend has unless the user says otherwise.
DEFAULT_FEATURES = ("compile",)

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
    "//conformance",
    "//conformance:wheel",
    "//examples/digits",
    "//tests:compatibility_test",
    "//tests:copy_test",
    "//tests:device_test",
    "//tests:event_test",
    "//tests:grad_scaler_test",
    "//tests:legacy_types_test",
    "//tests:name_test",
    "//tests:package_test",
    "//tests:pinned_memory_test",
    "//tests:random_state_test",
    "//tests:serialization_test",
    "//tests:storage_test",
    "//tests:stream_test",
]

# Programs that only Bazel builds, and tests that read what Bazel builds or that stand apart from
# the installed package.
BAZEL_TESTS = [
    "//runtime/allocator:caching_allocator_benchmark",
    "//tests:autoload_alone_test",
    "//tools/wheel:archive_test",
]

# Files that no target names.
FILES = [
    ".clang-format",
    ".gitignore",
    "LICENSE",
    "pyproject.toml",
]
BAZEL_FILES = [
    ".bazelignore",
    ".bazelrc",
    ".bazelversion",
    "BUILD.bazel",
    "WORKSPACE",
    "bazelw",
    "requirements.in",
    "requirements.lock",
    "requirements.torch",
    "third_party/BUILD.bazel",
    "tools/bazel",
    "tools/bazelrc/bazel4.bazelrc",
    "tools/bazelrc/bazel7.bazelrc",
]

# The files of a build by Bazel among those that targets consist of, as patterns of fnmatch.
BAZEL_PATTERNS = ["*BUILD.bazel", "*.bzl", "third_party/*", "tools/pytest_main.py", "tools/wheel/*"]

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
