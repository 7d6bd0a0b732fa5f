# SPDX-License-Identifier: BSD-3-Clause
"""torch's base classes for distributed tests work on the device."""

from tests.distributed.torch_bases import (
    Collective,
    Continuous,
    Sharded,
    ShardedByDefault,
    ShardedContinuous,
)

# Exported so that pytest collects these tests from this file.
__all__ = ["Collective", "Continuous", "Sharded", "ShardedByDefault", "ShardedContinuous"]
