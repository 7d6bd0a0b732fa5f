# SPDX-License-Identifier: BSD-3-Clause
"""Sets up all client tests.

It makes the client packages importable, disables network access, and checks that each test uses the
device.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.clients import torchvision_operators as torchvision_operators

# The client packages come last, so that packages that are also in .venv, such as torch, come from
# there. PYTHONPATH makes them available to child processes.
PACKAGES = Path(os.environ["TEST_SRCDIR"], "client_packages", "folder.txt").read_text().strip()
sys.path.append(PACKAGES)
os.environ["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), PACKAGES])

os.environ["HF_HUB_OFFLINE"] = "1"
# Without this variable, Trainer and Accelerator use the first available device in a fixed list, or
# silently use the CPU.
os.environ["ACCELERATE_TORCH_DEVICE"] = "openreg"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "refused: the request of the test is rejected before the device is used"
    )


def _allocations() -> int:
    devices = range(torch.openreg.device_count())
    stats = (torch.openreg.memory_stats(device) for device in devices)
    return sum(stat.get("allocation.all.allocated", 0) for stat in stats)


@pytest.fixture(autouse=True)
def device_is_used(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that allocated nothing on a device, which means that it ran on the CPU."""
    before = _allocations()
    yield
    torch.openreg.set_device(0)
    if "refused" not in request.keywords:
        assert _allocations() > before


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
