# SPDX-License-Identifier: BSD-3-Clause
"""torch's base classes of distributed tests work with the device."""

from tests.distributed.torch_bases import (
    Collective,
    Continuous,
    Sharded,
    ShardedByDefault,
    ShardedContinuous,
)

# Tests, which pytest finds here.
__all__ = ["Collective", "Continuous", "Sharded", "ShardedByDefault", "ShardedContinuous"]
