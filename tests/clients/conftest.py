# SPDX-License-Identifier: BSD-3-Clause
"""Setup of all client tests: packages, no network, and a check that the device was used."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.clients import torchvision_operators as torchvision_operators

# Packages that .venv has, such as torch, are used from there. Child processes see the client
# packages too.
PACKAGES = Path(os.environ["TEST_SRCDIR"], "client_packages", "folder.txt").read_text().strip()
sys.path.append(PACKAGES)
os.environ["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), PACKAGES])

os.environ["HF_HUB_OFFLINE"] = "1"
# Trainer and Accelerator have a list of devices, and silently use the CPU if none is available.
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
    """Fails a test that did not allocate on a device and therefore ran on the CPU."""
    before = _allocations()
    yield
    torch.openreg.set_device(0)
    if "refused" not in request.keywords:
        assert _allocations() > before


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
