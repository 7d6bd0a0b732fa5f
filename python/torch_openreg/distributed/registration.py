# SPDX-License-Identifier: BSD-3-Clause
"""Registers the collective backend ``occl`` with torch.distributed, for device tensors."""

import warnings
from types import ModuleType
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from torch_openreg import _C
from torch_openreg.distributed import default_backend, symmetric_memory
from torch_openreg.distributed.import_hook import call_after_import
from torch_openreg.name import COLLECTIVE_BACKEND, DEVICE_TYPE, PACKAGE


def register() -> None:
    """Register the backend and make it the device's default in ``init_process_group``.

    If the driver cannot share memory, only the name is registered. The use of the backend then
    raises an error that explains this.
    """
    if hasattr(dist.Backend, COLLECTIVE_BACKEND.upper()):
        return
    supported = _C.supports_collectives()
    dist.Backend.register_backend(
        COLLECTIVE_BACKEND,
        _create if supported else _refuse,
        extended_api=True,
        devices=[DEVICE_TYPE] if supported else [],
    )
    if not supported:
        return
    default_backend.install()
    symmetric_memory.register()
    # Do not import torch.distributed.tensor here: the import takes half a second, and only programs
    # with DTensors need it.
    call_after_import("torch.distributed.tensor", _extend_tensor)
    call_after_import(
        "torch.distributed.tensor.experimental._context_parallel._attention", _extend_tensor
    )


def _extend_tensor(module: ModuleType) -> None:
    """Register the device's attention with a newly imported module of torch.distributed.tensor."""
    try:
        from torch_openreg.distributed import attention

        if module.__name__ == "torch.distributed.tensor":
            attention.register_sharding()
        else:
            attention.register_ring(module)
    except (ImportError, AttributeError) as error:
        warnings.warn(
            "openreg: the device's attention could not be registered with "
            f"{module.__name__} of torch {torch.__version__} ({error}): "
            f"{PACKAGE}/distributed/attention.py supports torch 2.13",
            stacklevel=2,
        )


def _refuse(group: Any, options: Any) -> NoReturn:
    """Raise the error for a driver without collectives."""
    raise NotImplementedError(
        f"{COLLECTIVE_BACKEND}: the driver of this build cannot share memory between processes, so "
        "it has no collectives: use backend 'gloo' with CPU tensors"
    )


def _create(group: Any, options: Any) -> _C.ProcessGroupOCCL:
    """Create the backend for a process group.

    Args:
        group: torch's ``_DistributedBackendOptions``: store, rank, size, timeout, members.
        options: the caller's ``ProcessGroupOCCL.Options``, or None.
    """
    own = options
    if not isinstance(own, _C.ProcessGroupOCCL.Options):
        own = _C.ProcessGroupOCCL.Options()
    own._timeout = group.timeout
    own.group_name = group.group_id
    own.global_ranks_in_group = group.global_ranks_in_group
    return _C.ProcessGroupOCCL(group.store, group.group_rank, group.group_size, own)
