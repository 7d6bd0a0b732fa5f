# SPDX-License-Identifier: BSD-3-Clause
"""The parts of a new backend: lists of targets and files, without code.

build_file.py finds the files of a target in the BUILD files. Files that no target names are listed
here.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Feature:
    """A part that a backend may lack.

    rewording.toml lists the changes in other files if the part is absent.
    """

    # The feature's folders and files, and the targets that exist only for it.
    paths: tuple[str, ...]
    labels: tuple[str, ...] = ()
    # The tests that need the feature. `bazel_tests` do not use the installed package.
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

# The builds that a backend can use.
BUILDS = ("bazel", "cmake")

# The features of a backend, unless the user selects others.
DEFAULT_FEATURES = ("compile",)

# The targets that every backend has. The dependencies of each target are included.
TARGETS = [
    "//autoload:wheel",
    "//python:installed",
    "//python:wheel",
]

# Programs and tests. A test is listed if it passes with the minimal driver.
TESTS = [
    "//amp:autocast_test",
    "//aten/fallback:host_fallback_test",
    "//aten/table:missing_functions_test",
    "//aten/table:operators_test",
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

# Programs that only Bazel builds, tests that read files built by Bazel, and tests that do not use
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

# Patterns (for fnmatch) of the files that only a build by Bazel needs.
BAZEL_PATTERNS = ["*BUILD.bazel", "*.bzl", "third_party/*", "tools/pytest_main.py", "tools/wheel/*"]

# External repositories that Bazel itself loads. Others are kept if a target uses them.
REPOSITORIES = [
    "bazel_skylib",
    "python",
    "remote_coverage_tools",
    "rules_cc",
    "rules_java",
    "rules_python",
    "torch",
]

# These files name the author of the sources. No name in them is replaced.
VERBATIM = ["LICENSE"]
