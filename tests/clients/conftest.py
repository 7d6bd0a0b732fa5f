# SPDX-License-Identifier: BSD-3-Clause
"""Sets up all client tests.

Makes the client packages importable, disables network access, and checks that each test uses the
device.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.clients import torchvision_operators as torchvision_operators

# The client packages are last on the path. A package that .venv also contains, such as torch, is
# therefore imported from .venv. PYTHONPATH passes the path to child processes.
PACKAGES = Path(os.environ["TEST_SRCDIR"], "client_packages", "folder.txt").read_text().strip()
sys.path.append(PACKAGES)
os.environ["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), PACKAGES])

os.environ["HF_HUB_OFFLINE"] = "1"
# Without this variable, Trainer and Accelerator search a fixed list of devices, and otherwise
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
    """Fails a test that allocates no device memory, because it must have run on the CPU."""
    before = _allocations()
    yield
    torch.openreg.set_device(0)
    if "refused" not in request.keywords:
        assert _allocations() > before


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
