# SPDX-License-Identifier: BSD-3-Clause
"""What a backend keeps with a tensor beside sizes, strides and dtype (docs/storage.md).

It is torch's BackendMeta: here a format, which says how hardware wants the values to lie, and bytes
of a vendor's own. No kernel of this device reads it.
"""

import functools
from dataclasses import dataclass
from typing import Any

import torch

from torch_openreg import _C


@dataclass(frozen=True)
class TensorMeta:
    """Metadata of a tensor.

    Attributes:
        format: the order of the values in memory, numbered by the vendor from 0 to 2**31 - 1; 0 is
            the order that sizes and strides give.
        version: of ``data``, numbered by the vendor from 0 to 2**31 - 1.
        data: the vendor's own, 64 KiB at most.
    """

    format: int = 0
    version: int = 0
    data: bytes = b""


def get_tensor_meta(tensor: torch.Tensor) -> TensorMeta | None:
    """Return the metadata of a tensor, None if it has none.

    Args:
        tensor: on openreg, with memory of its own.

    Raises:
        TypeError: for anything but a tensor.
        ValueError: for a tensor that is elsewhere, or is made of others (sparse ones, wrappers).
    """
    found = _C.tensor_meta(tensor)
    if found is None:
        return None
    version, format_, data = found
    return TensorMeta(format_, version, data)


def set_tensor_meta(tensor: torch.Tensor, meta: TensorMeta | None) -> None:
    """Give a tensor metadata in place of what it has; None takes it away.

    Args:
        tensor: on openreg, with memory of its own.
        meta: goes with the tensor through ``detach``, ``Parameter``, copies by the module copy,
            pickle, ``torch.save`` and ``torch.jit.save``; results of operators have none.

    Raises:
        TypeError: for anything but a tensor, or metadata of other types.
        ValueError: for a tensor that can have none, a number that is out of range, or too much
            data.
    """
    if meta is None:
        _C.clear_tensor_meta(tensor)
    elif not isinstance(meta, TensorMeta):
        raise TypeError(f"expected a TensorMeta or None, but got {type(meta).__name__}")
    else:
        _C.set_tensor_meta(tensor, meta.version, meta.format, meta.data)


def _carrying(deepcopy: Any) -> Any:
    @functools.wraps(deepcopy)
    def __deepcopy__(self: torch.Tensor, memo: dict[int, Any]) -> Any:
        copied = deepcopy(self, memo)
        # No question to the tensor here, such as for its device: a mode would see it.
        if isinstance(copied, torch.Tensor):
            _C.copy_tensor_meta(self, copied)
        return copied

    return __deepcopy__


def register() -> None:
    """Let copy.deepcopy keep metadata, which torch leaves behind. To be called once."""
    torch.Tensor.__deepcopy__ = _carrying(torch.Tensor.__deepcopy__)  # type: ignore[method-assign]
    torch.nn.Parameter.__deepcopy__ = _carrying(  # type: ignore[method-assign]
        torch.nn.Parameter.__deepcopy__
    )
