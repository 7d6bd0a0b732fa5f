# SPDX-License-Identifier: BSD-3-Clause
"""Functions with which a test's ranks allocate and check symmetric memory of the world group."""

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from torch import Tensor
from torch._C._distributed_c10d import _SymmetricMemory

DEVICE = "openreg"


def world() -> Any:
    group = dist.group.WORLD
    assert group is not None
    return group.group_name


def here() -> torch.device:
    return torch.device(DEVICE, torch.openreg.current_device())


def symmetric(
    *size: int, dtype: torch.dtype = torch.float32, group: Any = None
) -> tuple[Tensor, _SymmetricMemory]:
    tensor = symm_mem.empty(*size, dtype=dtype, device=here())
    return tensor, symm_mem.rendezvous(tensor, group or world())


def pads_are_zero(handle: _SymmetricMemory) -> None:
    torch.openreg.synchronize()
    dist.barrier()
    assert not handle.get_signal_pad(handle.rank).cpu().any()
    dist.barrier()
