# SPDX-License-Identifier: BSD-3-Clause
"""Metadata that a backend attaches to a tensor, beyond sizes, strides and dtype (docs/storage.md).

torch calls the metadata BackendMeta. It consists of a format, which identifies a memory layout of
the hardware, and vendor-defined bytes. No kernel of this device reads the metadata.
"""

import functools
from dataclasses import dataclass
from typing import Any

import torch

from torch_openreg import _C


@dataclass(frozen=True)
class TensorMeta:
    """A tensor's metadata.

    Attributes:
        format: the memory layout, a vendor-defined number from 0 to 2**31 - 1; 0 is the layout
            given by sizes and strides.
        version: the version of ``data``, a vendor-defined number from 0 to 2**31 - 1.
        data: vendor-defined bytes, at most 64 KiB.
    """

    format: int = 0
    version: int = 0
    data: bytes = b""


def get_tensor_meta(tensor: torch.Tensor) -> TensorMeta | None:
    """Return a tensor's metadata, or None if it has none.

    Args:
        tensor: a tensor on openreg that has its own memory.

    Raises:
        TypeError: for an argument that is not a tensor.
        ValueError: for a tensor on another device, or composed of other tensors (sparse, wrappers).
    """
    found = _C.tensor_meta(tensor)
    if found is None:
        return None
    version, format_, data = found
    return TensorMeta(format_, version, data)


def set_tensor_meta(tensor: torch.Tensor, meta: TensorMeta | None) -> None:
    """Set or replace a tensor's metadata; None removes it.

    Args:
        tensor: a tensor on openreg that has its own memory.
        meta: preserved by ``detach``, ``Parameter``, module ``copy``, pickle, ``torch.save`` and
            ``torch.jit.save``; the results of other operators have no metadata.

    Raises:
        TypeError: for an argument that is not a tensor, or for metadata of other types.
        ValueError: for a tensor that cannot have metadata, a number out of range, or too much data.
    """
    if meta is None:
        _C.clear_tensor_meta(tensor)
    elif not isinstance(meta, TensorMeta):
        raise TypeError(
            f"set_tensor_meta: expected a TensorMeta or None, but got {type(meta).__name__}"
        )
    else:
        _C.set_tensor_meta(tensor, meta.version, meta.format, meta.data)


def _with_meta(deepcopy: Any) -> Any:
    @functools.wraps(deepcopy)
    def __deepcopy__(self: torch.Tensor, memo: dict[int, Any]) -> Any:
        copied = deepcopy(self, memo)
        # Do not query the tensor here, for example for its device, because an active mode would
        # intercept the query.
        if isinstance(copied, torch.Tensor):
            _C.copy_tensor_meta(self, copied)
        return copied

    return __deepcopy__


def register() -> None:
    """Make copy.deepcopy preserve metadata, which torch drops. Must be called only once."""
    torch.Tensor.__deepcopy__ = _with_meta(torch.Tensor.__deepcopy__)  # type: ignore[method-assign]
    torch.nn.Parameter.__deepcopy__ = _with_meta(  # type: ignore[method-assign]
        torch.nn.Parameter.__deepcopy__
    )
