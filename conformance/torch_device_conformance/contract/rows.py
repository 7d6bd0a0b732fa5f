# SPDX-License-Identifier: BSD-3-Clause
"""All rows of the runtime contract."""

import importlib
from collections.abc import Mapping

from torch_device_conformance.contract.row import Row, registered
from torch_device_conformance.verdict.verdict import Case

# The areas of the contract in the order in which reports list them. Each area is a module in this
# folder.
AREAS = (
    "device",
    "hooks",
    "tensors",
    "errors",
    "streams",
    "events",
    "allocator",
    "pinned_memory",
    "generator",
    "serialization",
    "sharing",
    "autocast",
    "threads",
    "processes",
    "graphs",
    "profiler",
    "collectives",
    "compiler",
)


def rows() -> Mapping[Case, Row]:
    """Imports the modules of all areas. Returns their rows by case, area by area."""
    for area in AREAS:
        importlib.import_module(f"torch_device_conformance.contract.{area}")
    return registered()
