# SPDX-License-Identifier: BSD-3-Clause
"""The module ``torch.backends.openreg``: what this build of the device is made of.

Settings of the libraries that compute are those of the CPU, whose kernels the device runs:
``torch.backends.mkldnn``, ``torch.backends.mkl``, ``torch.set_float32_matmul_precision``. Those of
attention hold for all devices: ``torch.nn.attention.sdpa_kernel``.
"""

from torch_openreg import _C

__all__ = ["is_available", "is_built"]


def is_built() -> bool:
    """Tell whether the device's libraries are installed: they are, or there is no such module."""
    return True


def is_available() -> bool:
    """Tell whether there is at least one device that this process can use. Never raises."""
    return _C.device_count() > 0
