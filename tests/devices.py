# SPDX-License-Identifier: BSD-3-Clause
"""The devices of this machine, for tests that must also pass where there is only one."""

import pytest
import torch

_COUNT = torch.openreg.device_count()

#: The device with the highest index. On a machine with several devices it is not the default.
LAST_INDEX = _COUNT - 1
LAST = f"openreg:{LAST_INDEX}"

#: Skips a test that compares two devices, or moves data between them.
needs_two_devices = pytest.mark.skipif(
    _COUNT < 2, reason="needs two devices, and this machine has one"
)
