# SPDX-License-Identifier: BSD-3-Clause
"""Legacy types such as ``torch.openreg.FloatTensor`` and ``torch.openreg.FloatStorage``.

Each dtype has a storage type and, unless it is complex, a tensor type. torch uses these types to
pickle a storage, and to convert the type of a tensor to or from a string. New code should use
``torch.empty(..., dtype=..., device="openreg")``.
"""

import types
from typing import Any

import torch
from torch.storage import _LegacyStorage, _warn_typed_storage_removal

from torch_openreg.name import DEVICE_TYPE, MODULE

_DTYPES = {
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}
_STORAGE_ONLY = {"ComplexDouble": torch.complex128, "ComplexFloat": torch.complex64}


class _TensorType(type):
    """Metaclass of torch.openreg.FloatTensor and so on. A call creates a tensor of that type."""

    dtype: torch.dtype

    # torch.Tensor.type() reads the full name that was passed to type.__new__ from the type's C
    # struct. Python code reads this attribute instead, which is the last part of the full name.
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        return cls._short_name  # type: ignore[attr-defined, no-any-return]

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == DEVICE_TYPE
            and instance.dtype == cls.dtype
        )

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        result: torch.Tensor = torch.empty(0, dtype=cls.dtype, device=DEVICE_TYPE).new(
            *args, **kwargs
        )
        return result

    def __repr__(cls) -> str:
        return f"<class '{MODULE}.{cls.__name__}'>"


class _StorageDtype:
    """Descriptor for ``dtype`` of a storage class. It warns once, as all typed storages do."""

    def __init__(self, dtype: torch.dtype, warn: bool) -> None:
        self._dtype = dtype
        self._warn = warn

    def __get__(self, instance: object, owner: type) -> torch.dtype:
        if self._warn:
            _warn_typed_storage_removal()
        return self._dtype


def _tensor_type(name: str, dtype: torch.dtype) -> _TensorType:
    attributes = {"__module__": MODULE, "_short_name": name, "dtype": dtype}
    return _TensorType(f"{MODULE}.{name}", (), attributes)


def _storage_type(name: str, dtype: torch.dtype) -> type:
    attributes = {
        "__module__": MODULE,
        "dtype": _StorageDtype(dtype, warn=True),
        "_dtype": _StorageDtype(dtype, warn=False),
    }
    return types.new_class(name, (_LegacyStorage,), exec_body=lambda body: body.update(attributes))


def legacy_types() -> dict[str, type]:
    """Return the tensor and storage types by name in ``torch.openreg``."""
    found: dict[str, type] = {}
    for prefix, dtype in _DTYPES.items():
        found[f"{prefix}Tensor"] = _tensor_type(f"{prefix}Tensor", dtype)
    for prefix, dtype in {**_DTYPES, **_STORAGE_ONLY}.items():
        found[f"{prefix}Storage"] = _storage_type(f"{prefix}Storage", dtype)
    return found
