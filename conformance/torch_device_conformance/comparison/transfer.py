# SPDX-License-Identifier: BSD-3-Clause
"""Copies a sample's tensors to a device. Each run uses a separate copy."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.profiler import record_function
from torch.utils._pytree import tree_map

# In a trace, operators inside this label only copy the sample. They are not part of its run.
LABEL = "torch_device_conformance: transfer"


@functools.cache
def has_set(device: torch.device) -> bool:
    """Returns whether set_ can create a float32 tensor on part of a uint8 storage of the device.

    set_ is tried once per process, before any run is traced. An error in a traced run would leave
    the set_ call open in torch's trace. The trace would then record all later calls as children of
    this call.
    """
    storage = torch.empty(16, dtype=torch.uint8, device=device).untyped_storage()
    try:
        torch.empty(0, dtype=torch.float32, device=device).set_(storage, 1, (2,), (1,))
    except NotImplementedError:
        return False
    return True


def transfer(device: torch.device) -> Callable[[Any], Any]:
    """Returns a function that copies lists, tuples and dicts of CPU tensors to a device.

    The device may be the CPU. Tensors keep their strides and offsets. Tensors that share a storage
    also share a storage on the device, even if several calls to the returned function copy them. If
    the backend has no set_, only the values are copied. The CPU device, as a `torch.device` or as
    the string "cpu", is replaced with the device.
    """
    storages: dict[int, Tensor] = {}

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.device):
            return device if leaf.type == "cpu" else leaf
        if isinstance(leaf, str):
            return str(device) if leaf == "cpu" else leaf
        if isinstance(leaf, PackedSequence):  # batch_sizes must stay on the CPU
            data = move(leaf.data)
            return leaf._replace(
                data=data,
                sorted_indices=move(leaf.sorted_indices),
                unsorted_indices=move(leaf.unsorted_indices),
            )
        if not isinstance(leaf, Tensor):
            return leaf
        with torch.no_grad(), record_function(LABEL):
            copy = move_tensor(leaf.detach())
        return copy.requires_grad_(leaf.requires_grad)

    def move_tensor(tensor: Tensor) -> Tensor:
        if tensor.is_conj():
            return move_tensor(tensor.conj()).conj()
        if tensor.is_neg():
            return torch._neg_view(move_tensor(torch._neg_view(tensor)))
        if tensor.layout != torch.strided:
            return tensor.to(device, copy=True)
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in storages:
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)
            storages[key] = whole.to(device, copy=True)
        if not has_set(device):
            # A contract row already reports that set_ is missing, so operators must not fail
            # because of it, too.
            return tensor.to(device, copy=True)
        result: Tensor = torch.empty(0, dtype=tensor.dtype, device=device).set_(
            storages[key].untyped_storage(),
            tensor.storage_offset(),
            tensor.size(),
            tensor.stride(),
        )
        return result

    return lambda tree: tree_map(move, tree, is_leaf=lambda x: isinstance(x, PackedSequence))
