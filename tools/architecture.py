# SPDX-License-Identifier: BSD-3-Clause
"""Proves which way dependencies point: ./bazelw run //tools:architecture

Each rule is a query of Bazel's graph, so that a #include alone cannot break it unseen: what is not
in deps is not there to be included. Inside a package, where all files see each other, the #includes
themselves are read.
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
    """Targets, and what none of them may depend on."""

    text: str
    # A query expression.
    targets: str
    # A regular expression over labels.
    forbidden: str

    def query(self) -> str:
        """The query whose answer has to be empty."""
        return f"filter('^({self.forbidden})', deps({self.targets}))"


def libraries(package: str) -> str:
    """The targets of a package that are not tests."""
    return f"({package} except kind('_test rule', {package}))"


def included(package: str) -> str:
    """What the C++ of a package is compiled against: not the code that it is linked with."""
    return f"labels(deps, kind('cc_.* rule', {libraries(package)}))"


# What a vendor keeps.
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
        "the device stands alone",
        "//runtime/device/...",
        f"{_TORCH}|//runtime/(allocator|c10|diagnostics)|{_ABOVE_RUNTIME}",
    ),
    Arrow(
        "the core of the allocator needs the device alone",
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
            f"{package} needs nothing of the emulation",
            included(package),
            "//runtime/emulation[:/]|//runtime/device:emulation_headers",
        )
        for package in _PORTABLE
    ),
    Arrow(
        "operators need no feature above them",
        libraries("//aten/..."),
        f"//({_FEATURES})[:/]",
    ),
    Arrow("tensors need no kernels", "//aten/tensors/...", f"{_KERNELS}|//aten/fallback[:/]"),
    Arrow("the host fallback needs no kernels", "//aten/fallback:host", _KERNELS),
    Arrow(
        "a launch knows no operators",
        "//aten/launch:launch",
        "//aten/(structured|fallback|kernels)[:/]",
    ),
    Arrow("autocast needs no operators of ours", libraries("//amp/..."), "//aten[:/]"),
    Arrow("autoload needs no operators of ours", libraries("//autoload/..."), "//aten[:/]"),
    Arrow("compile needs no operators of ours", libraries("//compile/..."), "//aten[:/]"),
    Arrow("the collective library needs no torch", libraries("//distributed/occl/..."), _TORCH),
    Arrow("collectives need no operators of ours", libraries("//distributed/..."), "//aten[:/]"),
    Arrow(
        "the conformance kit needs nothing of ours",
        "//conformance:torch_device_conformance",
        "//(?!conformance[:/])",
    ),
    Arrow("the profiler needs no operators of ours", libraries("//profiler/..."), "//aten[:/]"),
]


# Packages whose files must not depend on each other in a circle.
_LAYERED = ["runtime/device"]


def include_circle(package: str) -> list[str]:
    """Files of a package that include each other in a circle, if any.

    A header and its .cc count as one file.
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
    """Checks each rule; the exit status is the number of those that do not hold."""
    failed = 0
    for package in _LAYERED:
        circle = include_circle(package)
        print(f"{'BROKEN' if circle else 'holds':<7} {package} has no circle of includes")
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
