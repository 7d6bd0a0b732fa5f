# SPDX-License-Identifier: BSD-3-Clause
"""Checks the direction of dependencies: ./bazelw run //tools:architecture

Each rule is a query on Bazel's dependency graph. An #include cannot break a rule unnoticed, because
it compiles only if its header is in the target's deps. Files of the same package can include each
other, so within a package the #includes themselves are checked.
"""

import graphlib
import re
import sys
from dataclasses import dataclass

from tools import bazel_workspace

_TORCH = "@torch//"
_KERNELS = "//aten/(launch|structured|kernels)[:/]"
_FEATURES = "amp|autoload|compile|conformance|distributed|profiler|python|tests|benchmarks|examples"
_ABOVE_RUNTIME = f"//(aten|{_FEATURES})[:/]"


@dataclass(frozen=True)
class Arrow:
    """A rule: targets, and the dependencies that these targets must not have."""

    text: str
    # The targets, as a Bazel query expression.
    targets: str
    # A regular expression that matches the labels of forbidden dependencies.
    forbidden: str

    def query(self) -> str:
        """Returns the query whose result must be empty."""
        return f"filter('^({self.forbidden})', deps({self.targets}))"


def libraries(package: str) -> str:
    """Returns a query for the targets of a package, without tests."""
    return f"({package} except kind('_test rule', {package}))"


def included(package: str) -> str:
    """Returns a query for the targets against which a package's C++ code is compiled.

    Targets with which this code is only linked are excluded.
    """
    return f"labels(deps, kind('cc_.* rule', {libraries(package)}))"


# The packages that a vendor keeps after replacing the emulated device with the vendor's driver.
_PORTABLE = [
    "//runtime/allocator/...",
    "//runtime/c10/...",
    "//runtime/diagnostics/...",
    "//aten/tensors/...",
    "//aten/fallback:host",
    "//amp/...",
    "//autoload/...",
    "//compile/...",
    "//distributed:distributed_objects",
    "//profiler/...",
    "//python/...",
]

ARROWS = [
    Arrow(
        "the device depends on no other component",
        "//runtime/device/...",
        f"{_TORCH}|//runtime/(allocator|c10|diagnostics)|{_ABOVE_RUNTIME}",
    ),
    Arrow(
        "the core of the allocator depends only on the device",
        "//runtime/allocator/...",
        f"{_TORCH}|//runtime/(c10|diagnostics)|{_ABOVE_RUNTIME}",
    ),
    Arrow(
        "runtime/c10 needs no diagnostics and no operators",
        "//runtime/c10/...",
        f"//runtime/diagnostics[:/]|{_ABOVE_RUNTIME}",
    ),
    Arrow(
        "diagnostics need no operators",
        "//runtime/diagnostics/...",
        _ABOVE_RUNTIME,
    ),
    *(
        Arrow(
            f"{package} does not depend on the emulation",
            included(package),
            "//runtime/emulation[:/]|//runtime/device:emulation_headers",
        )
        for package in _PORTABLE
    ),
    Arrow(
        "portable packages are compiled against no particular driver",
        " + ".join(f"filter('_(headers|objects)$', {package})" for package in _PORTABLE),
        "//runtime/minimal[:/]|//runtime/device:(device|device_objects)$",
    ),
    Arrow(
        "the minimal driver needs nothing of the emulated device but openreg.h",
        libraries("//runtime/minimal/..."),
        f"{_TORCH}|//runtime/(allocator|c10|diagnostics|emulation)[:/]|{_ABOVE_RUNTIME}"
        "|//runtime/device:(device|device_objects|emulation_headers)$",
    ),
    Arrow(
        "operators on the minimal driver need nothing of the emulation",
        included("//aten/table/..."),
        "//aten/(structured|kernels)[:/]|//aten/launch:launch$"
        "|//runtime/emulation[:/]|//runtime/device:emulation_headers",
    ),
    Arrow(
        "operators depend on no feature above them",
        libraries("//aten/..."),
        f"//({_FEATURES})[:/]",
    ),
    Arrow("tensors need no kernels", "//aten/tensors/...", f"{_KERNELS}|//aten/fallback[:/]"),
    Arrow("the host fallback needs no kernels", "//aten/fallback:host", _KERNELS),
    Arrow(
        "launches depend on no operators",
        "//aten/launch:launch",
        "//aten/(structured|fallback|kernels)[:/]",
    ),
    Arrow("autocast needs none of our operators", libraries("//amp/..."), "//aten[:/]"),
    Arrow("autoload needs none of our operators", libraries("//autoload/..."), "//aten[:/]"),
    Arrow("compile needs none of our operators", libraries("//compile/..."), "//aten[:/]"),
    Arrow("the collective library needs no torch", libraries("//distributed/occl/..."), _TORCH),
    Arrow("collectives need none of our operators", libraries("//distributed/..."), "//aten[:/]"),
    Arrow(
        "the conformance kit depends on nothing in this project",
        "//conformance:torch_device_conformance",
        "//(?!conformance[:/])",
    ),
    Arrow("the profiler needs none of our operators", libraries("//profiler/..."), "//aten[:/]"),
]


# The packages whose files must not include each other in a cycle.
_LAYERED = ["runtime/device"]


def include_circle(package: str) -> list[str]:
    """Returns the files of a package that form an include cycle, or [] if there is no cycle.

    A header and its .cc file count as one file.
    """
    includes: dict[str, set[str]] = {}
    for source in (bazel_workspace.root() / package).glob("*.[ch]*"):
        included = re.findall(rf'#include "{package}/(\w+)\.h"', source.read_text())
        includes.setdefault(source.stem, set()).update(set(included) - {source.stem})
    try:
        graphlib.TopologicalSorter(includes).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def main() -> int:
    """Checks each rule.

    Returns:
        The exit status: the number of broken rules, or 1 if a query fails.
    """
    failed = 0
    for package in _LAYERED:
        circle = include_circle(package)
        print(f"{'BROKEN' if circle else 'holds':<7} {package} has no include cycle")
        if circle:
            failed += 1
            print(f"        {' -> '.join(circle)}")
    for arrow in ARROWS:
        done = bazel_workspace.bazel(
            "query", "--noimplicit_deps", "--nohost_deps", "--noshow_progress", arrow.query()
        )
        if done.returncode:
            print(done.stderr, end="")
            return 1
        labels = done.stdout.split()
        print(f"{'BROKEN' if labels else 'holds':<7} {arrow.text}")
        if labels:
            failed += 1
            print(f"        {arrow.targets} depends on {', '.join(labels[:5])}")
            print(f'        see why: ./bazelw query "somepath({arrow.targets}, {labels[0]})"')
    return failed


if __name__ == "__main__":
    sys.exit(main())
