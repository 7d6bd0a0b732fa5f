# SPDX-License-Identifier: BSD-3-Clause
"""What each test of a library needs: its packages, no network, and proof that the device worked."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.clients import torchvision_operators as torchvision_operators

# What .venv has, torch above all, is taken from there. Child processes see the packages too.
PACKAGES = Path(os.environ["TEST_SRCDIR"], "client_packages", "folder.txt").read_text().strip()
sys.path.append(PACKAGES)
os.environ["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), PACKAGES])

os.environ["HF_HUB_OFFLINE"] = "1"
# Trainer and Accelerator know a list of devices, and take the CPU without a word if none is there.
os.environ["ACCELERATE_TORCH_DEVICE"] = "openreg"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "refused: what the test asks for ends before the device works"
    )


def _allocations() -> int:
    devices = range(torch.openreg.device_count())
    stats = (torch.openreg.memory_stats(device) for device in devices)
    return sum(stat.get("allocation.all.allocated", 0) for stat in stats)


@pytest.fixture(autouse=True)
def device_is_used(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test during which nothing was allocated on a device: it ran on the CPU."""
    before = _allocations()
    yield
    torch.openreg.set_device(0)
    if "refused" not in request.keywords:
        assert _allocations() > before


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
