# SPDX-License-Identifier: BSD-3-Clause
"""Tests legacy types such as torch.openreg.FloatTensor and torch.openreg.FloatStorage."""

import io
import warnings

import pytest
import torch

from tests.devices import LAST

TYPES = {
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "ShortTensor": torch.int16,
    "CharTensor": torch.int8,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}
STORAGES = {
    **{name.replace("Tensor", "Storage"): dtype for name, dtype in TYPES.items()},
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
}


@pytest.mark.parametrize(("name", "dtype"), TYPES.items())
def test_tensor_types(name: str, dtype: torch.dtype) -> None:
    kind = getattr(torch.openreg, name)
    tensor = torch.zeros(2, 3, dtype=dtype, device="openreg")
    assert tensor.type() == f"torch.openreg.{name}"
    assert isinstance(tensor, kind)
    assert not isinstance(tensor.cpu(), kind)
    assert repr(kind) == f"<class 'torch.openreg.{name}'>"
    assert kind.__name__ == name
    assert torch.typename(tensor) == f"torch.openreg.{name}"
    made = kind(2, 3)
    assert (made.dtype, made.device.type, made.shape) == (dtype, "openreg", (2, 3))
    cpu = torch.ones(2, dtype=torch.int32)
    for converted in (cpu.type(f"torch.openreg.{name}"), cpu.type(kind)):
        assert isinstance(converted, kind)
        assert converted.cpu().to(torch.int32).tolist() == [1, 1]


def test_a_tensor_type_takes_values() -> None:
    assert torch.openreg.LongTensor([3, 1, 2]).tolist() == [3, 1, 2]
    assert torch.openreg.FloatTensor().shape == (0,)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storage_types() -> None:
    storage = torch.arange(4.0, device="openreg").storage()
    assert storage.type() == "torch.openreg.FloatStorage"
    assert isinstance(storage, torch.openreg.FloatStorage)
    assert not isinstance(storage, torch.openreg.DoubleStorage)
    assert torch.openreg.IntStorage.dtype == torch.int32
    made = torch.openreg.HalfStorage(5)
    assert (len(made), made.device.type, made.dtype) == (5, "openreg", torch.float16)
    assert storage.cpu().tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize(("name", "dtype"), STORAGES.items())
def test_names_of_storage_types(name: str, dtype: torch.dtype) -> None:
    kind = getattr(torch.openreg, name)
    assert repr(kind) == f"<class 'torch.openreg.{name}'>"
    assert (kind.__module__, kind.__name__, kind.dtype) == ("torch.openreg", name, dtype)
    tensor = torch.ones(3, dtype=dtype, device="openreg")
    storage = tensor.storage()
    assert storage.type() == kind(3).type() == f"torch.openreg.{name}"
    assert isinstance(storage, kind)
    assert not isinstance(tensor.cpu().storage(), kind)
    assert not isinstance(storage, getattr(torch, name))
    assert tensor.storage_type() is kind
    assert storage.pickle_storage_type() == name
    assert storage.cpu().type() == f"torch.{name}"
    # As on other devices, a storage is not an instance of the type that its type() reports.
    assert torch.typename(storage) == "torch.storage.TypedStorage"
    assert torch.typename(tensor.untyped_storage()) == "torch.storage.UntypedStorage"


def test_storage_types_accept_only_storages_of_their_device() -> None:
    tensor = torch.arange(4.0, device="openreg")
    storage = torch.openreg.FloatStorage(wrap_storage=tensor.untyped_storage())
    assert storage._untyped_storage.data_ptr() == tensor.data_ptr()
    with pytest.raises(RuntimeError, match="must be openreg, but got cpu"):
        torch.openreg.FloatStorage(wrap_storage=tensor.cpu().untyped_storage())
    with pytest.raises(RuntimeError, match="must be cpu, but got openreg"):
        torch.FloatStorage(wrap_storage=tensor.untyped_storage())
    with pytest.raises(RuntimeError, match="'device' cannot be specified"):
        torch.openreg.FloatStorage(device="openreg")


@pytest.mark.parametrize("new_format", [True, False], ids=["zip", "legacy"])
def test_save_and_load(new_format: bool) -> None:
    tensor = torch.arange(6.0, device=LAST).view(2, 3).t()
    file = io.BytesIO()
    torch.save(
        {"tensor": tensor, "again": tensor[0]}, file, _use_new_zipfile_serialization=new_format
    )
    for location, device in ((None, LAST), ("openreg", "openreg:0"), ("cpu", "cpu")):
        file.seek(0)
        with warnings.catch_warnings(action="error"):
            loaded = torch.load(file, map_location=location, weights_only=True)
        assert str(loaded["tensor"].device) == device
        assert torch.equal(loaded["tensor"].cpu(), tensor.cpu())
        assert loaded["again"].untyped_storage()._cdata == loaded["tensor"].untyped_storage()._cdata


def test_load_onto_a_missing_device() -> None:
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    file.seek(0)
    with pytest.raises(RuntimeError, match=r"device 99 but torch\.openreg\.device_count"):
        torch.load(file, map_location="openreg:99")
