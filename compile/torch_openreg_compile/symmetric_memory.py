# SPDX-License-Identifier: BSD-3-Clause
"""Allocates symmetric memory in compiled modules, for operands of ``torch.ops.symm_mem``.

torch 2.13 always generates the allocation for ``torch.device("cuda:0")``, even for other devices.
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
    """Allocate a tensor in symmetric memory of the openreg device with the index of ``device``.

    The arguments are those of torch's function with this name. The type of ``device`` is ignored,
    because torch always passes a CUDA device.
    """
    from torch._C._distributed_c10d import _SymmetricMemory

    own = torch.device(DEVICE_TYPE, device.index)
    return _SymmetricMemory.empty_strided_p2p(size, stride, dtype, own, group_name, alloc_id)
