# SPDX-License-Identifier: BSD-3-Clause
"""The autoload package without the backend: torch works, and one warning says what is missing."""

from tests import child


def test_absent_backend() -> None:
    done = child.run("import torch; print(torch.ones(2).sum().item())")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "2.0"
    assert done.stderr.count("device openreg is not available") == 1
    assert "the package torch_openreg is not installed" in done.stderr


def test_switched_off_is_silent() -> None:
    done = child.run("import torch", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode == 0, done.stderr
    assert "openreg" not in done.stderr
