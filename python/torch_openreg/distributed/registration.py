# SPDX-License-Identifier: BSD-3-Clause
"""Registers the collective backend ``occl`` with torch.distributed, for tensors of the device."""

from typing import Any

import torch.distributed as dist

from torch_openreg import _C
from torch_openreg.distributed import default_backend, symmetric_memory
from torch_openreg.name import COLLECTIVE_BACKEND, DEVICE_TYPE


def register() -> None:
    """Make ``init_process_group`` know the backend; it is the device's default one from then on."""
    if hasattr(dist.Backend, COLLECTIVE_BACKEND.upper()):
        return
    dist.Backend.register_backend(
        COLLECTIVE_BACKEND, _create, extended_api=True, devices=[DEVICE_TYPE]
    )
    default_backend.install()
    symmetric_memory.register()


def _create(group: Any, options: Any) -> _C.ProcessGroupOCCL:
    """Make the backend of a process group.

    Args:
        group: torch's ``_DistributedBackendOptions``: store, rank, size, timeout, members.
        options: of the caller (``ProcessGroupOCCL.Options``), or None.
    """
    own = options
    if not isinstance(own, _C.ProcessGroupOCCL.Options):
        own = _C.ProcessGroupOCCL.Options()
    own._timeout = group.timeout
    own.group_name = group.group_id
    own.global_ranks_in_group = group.global_ranks_in_group
    return _C.ProcessGroupOCCL(group.store, group.group_rank, group.group_size, own)
