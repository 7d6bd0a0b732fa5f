# SPDX-License-Identifier: BSD-3-Clause
"""Buffers of compiled modules that are symmetric memory: operands of ``torch.ops.symm_mem``.

torch 2.13 writes their allocation for ``torch.device("cuda:0")``, whatever the graph's device is.
"""

import torch
from torch import Tensor

from torch_openreg_compile.name import DEVICE_TYPE


def empty_strided_p2p(
    size: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    group_name: str | None = None,
    alloc_id: int | None = None,
) -> Tensor:
    """Allocate as the function of torch does, on this device with the index of ``device``."""
    from torch._C._distributed_c10d import _SymmetricMemory

    own = torch.device(DEVICE_TYPE, device.index)
    return _SymmetricMemory.empty_strided_p2p(size, stride, dtype, own, group_name, alloc_id)
