# SPDX-License-Identifier: BSD-3-Clause
"""From a device as users write it to its index. torch asks for this module by its name."""

import torch

from torch_openreg import _C
from torch_openreg.name import DEVICE_TYPE

DeviceLike = torch.device | str | int | None


def _get_device_index(device: DeviceLike, optional: bool = False, allow_cpu: bool = False) -> int:
    """Return the index that ``device`` names; whether there is such a device is not looked at.

    Args:
        device: index, ``"openreg"``, ``"openreg:1"`` or a ``torch.device``.
        optional: with True, no device and no index mean the current device; with False they are an
            error.
        allow_cpu: with True, the CPU gives -1.

    Raises:
        ValueError: for a device of another type, or without an index where one is needed.
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
    """Return the index of ``device``, the current one for None.

    Raises:
        ValueError: for a device of another type.
        RuntimeError: for an index that is out of range.
    """
    return _C.resolve_device(_get_device_index(device, optional=True))
