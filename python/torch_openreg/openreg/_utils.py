# SPDX-License-Identifier: BSD-3-Clause
"""Converts a device argument to an index. torch imports this module by name."""

import torch

from torch_openreg import _C
from torch_openreg.name import DEVICE_TYPE

DeviceLike = torch.device | str | int | None


def _get_device_index(device: DeviceLike, optional: bool = False, allow_cpu: bool = False) -> int:
    """Return the index of the specified device, without a check that the device exists.

    Args:
        device: index, ``"openreg"``, ``"openreg:1"`` or a ``torch.device``.
        optional: if True, a missing device or index means the current device; if False it is an
            error.
        allow_cpu: if True, the index of the CPU is -1; if False, the CPU is an error.

    Raises:
        ValueError: for a device that is not openreg, or a missing index if ``optional`` is False.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != DEVICE_TYPE:
            raise ValueError(f"expected a device of type openreg, but got {device}")
        if device.index is not None:
            return device.index
    if not optional:
        raise ValueError(f"expected a device with an index, or an index, but got {device!r}")
    return _C.get_device()


def resolve(device: DeviceLike) -> int:
    """Return the index of ``device``; None means the current device.

    Raises:
        ValueError: for a device that is not openreg.
        RuntimeError: for an index that is out of range.
    """
    return _C.resolve_device(_get_device_index(device, optional=True))
