# SPDX-License-Identifier: BSD-3-Clause
"""The module ``torch.backends.openreg``: what this build supports.

The device runs CPU kernels, so the settings of the CPU's compute libraries also apply to it:
``torch.backends.mkldnn``, ``torch.backends.mkl``, ``torch.set_float32_matmul_precision``. The
attention setting, ``torch.nn.attention.sdpa_kernel``, applies to all devices.
"""

from torch_openreg import _C

__all__ = ["is_available", "is_built"]


def is_built() -> bool:
    """Return whether the device's libraries are installed: always True if this module exists."""
    return True


def is_available() -> bool:
    """Return whether there is at least one device that this process can use. Never raises."""
    return _C.device_count() > 0
