# SPDX-License-Identifier: BSD-3-Clause
"""Tests backend metadata on tensors: the operations that keep or drop it, and invalid values."""

import copy
import io
import pickle
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode, resolve_name
from torch.testing._internal.two_tensor import TwoTensor
from torch_openreg.openreg.tensor_meta import TensorMeta

from tests import child
from tests.devices import LAST, needs_two_devices

META = TensorMeta(format=1, version=3, data=bytes(range(256)))

get_meta = torch.openreg.get_tensor_meta
set_meta = torch.openreg.set_tensor_meta


def tensor_with_meta(*, device: str = LAST, meta: TensorMeta = META) -> Tensor:
    tensor = torch.arange(6.0, device=device).reshape(2, 3)
    set_meta(tensor, meta)
    return tensor


def round_trip(saved: Any, *, legacy: bool = False, **load: Any) -> Any:
    file = io.BytesIO()
    torch.save(saved, file, _use_new_zipfile_serialization=not legacy)
    file.seek(0)
    return torch.load(file, **load)


def same_values(found: Tensor, expected: Tensor) -> bool:
    return torch.equal(found.cpu(), expected.cpu())


def test_setting_and_taking_away() -> None:
    tensor = torch.ones(3, device="openreg")
    assert get_meta(tensor) is None
    set_meta(tensor, None)
    assert get_meta(tensor) is None
    for meta in (TensorMeta(), META, TensorMeta(2**31 - 1, 2**31 - 1, b"x" * 65536)):
        set_meta(tensor, meta)
        assert get_meta(tensor) == meta
    set_meta(tensor, None)
    assert get_meta(tensor) is None


@pytest.mark.parametrize(
    "derive",
    [
        lambda x: x.detach(),
        lambda x: x.data,
        lambda x: Parameter(x),
        lambda x: x.requires_grad_(),
        lambda x: torch.ops.aten.detach(x),
        lambda x: x.add_(1),
        lambda x: x.resize_(100),
        lambda x: x.t_(),
        lambda x: x.set_(torch.ones(3, device=LAST)),
        copy.copy,
        copy.deepcopy,
        lambda x: copy.deepcopy(Parameter(x)),
        lambda x: copy.deepcopy([x])[0],
        lambda x: copy.deepcopy(torch.nn.ParameterList([x]))[0],
        lambda x: pickle.loads(pickle.dumps(x)),
        lambda x: pickle.loads(pickle.dumps(Parameter(x))),
    ],
)
def test_operations_that_keep_metadata(derive: Callable[[Tensor], Tensor]) -> None:
    tensor = tensor_with_meta()
    derived = derive(tensor)
    assert get_meta(derived) == META
    # A change to one tensor's metadata must not affect the other tensor, unless both are the same
    # object.
    set_meta(tensor, TensorMeta(version=9))
    assert get_meta(derived) == (TensorMeta(version=9) if derived is tensor else META)


class Sub(Tensor):
    """A tensor subclass with torch's default __torch_function__."""

    def new_empty(self, *arguments: Any, **options: Any) -> "Sub":
        """Returns a Sub, because copy.deepcopy requires this of a subclass."""
        return super().new_empty(*arguments, **options).as_subclass(Sub)


def test_subclasses() -> None:
    tensor = torch.ones(3, device="openreg").as_subclass(Sub)
    set_meta(tensor, META)
    copied = copy.deepcopy(tensor)
    assert type(copied) is Sub
    assert get_meta(copied) == META
    # torch makes these copies with as_subclass(), which drops the metadata.
    for copied in (copy.copy(tensor), pickle.loads(pickle.dumps(tensor))):
        assert type(copied) is Sub
        assert get_meta(copied) is None


@pytest.mark.parametrize(
    "derive",
    [
        lambda x: x.clone(),
        lambda x: x + 1,
        lambda x: x.view(-1),
        lambda x: x.t(),
        lambda x: x[0],
        pytest.param(lambda x: x.to("openreg:0"), marks=needs_two_devices),
        lambda x: x.half(),
        lambda x: x.as_subclass(Sub),
        lambda x: torch.empty_like(x),
        lambda x: torch.from_dlpack(x),
    ],
)
def test_new_tensors_have_none(derive: Callable[[Tensor], Tensor]) -> None:
    tensor = tensor_with_meta()
    assert get_meta(derive(tensor)) is None
    assert get_meta(tensor) == META


def test_modes_see_nothing_but_torchs_own_copy() -> None:
    class Mode(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(resolve_name(function))
            return function(*args, **(kwargs or {}))

    for tensor in (tensor_with_meta(), torch.ones(2)):
        seen: list[str | None] = []
        with Mode():
            copied = copy.deepcopy(tensor)
        assert seen == ["torch.Tensor.__deepcopy__"]
        assert torch.equal(copied, tensor)


def test_training_keeps_the_meta_of_a_parameter() -> None:
    parameter = Parameter(tensor_with_meta())
    optimizer = torch.optim.Adam([parameter])
    parameter.square().sum().backward()
    optimizer.step()
    assert get_meta(parameter) == META
    parameter.data = tensor_with_meta(meta=TensorMeta(version=7))
    assert get_meta(parameter) == TensorMeta(version=7)


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    ("location", "device"),
    [
        (None, LAST),
        ("openreg:0", "openreg:0"),
        (torch.device("openreg:0"), "openreg:0"),
        ({LAST: "openreg:0"}, "openreg:0"),
        (lambda storage, tag: storage.openreg(0), "openreg:0"),
        (lambda storage, tag: storage, "cpu"),
        ("cpu", "cpu"),
        ({LAST: "cpu"}, "cpu"),
        ("meta", "meta"),
    ],
)
def test_files(location: Any, device: str, legacy: bool, weights_only: bool) -> None:
    tensor = tensor_with_meta()
    for saved in (tensor, Parameter(tensor)):
        loaded = round_trip(saved, legacy=legacy, map_location=location, weights_only=weights_only)
        assert loaded.device == torch.device(device)
        assert type(loaded) is type(saved)
        if device.startswith("openreg"):
            assert get_meta(loaded) == META
        if device != "meta":
            assert same_values(loaded, tensor)


def test_mapped_files(tmp_path: Path) -> None:
    path = tmp_path / "tensor.pt"
    torch.save(tensor_with_meta(), path)
    assert get_meta(torch.load(path, mmap=True)) == META
    assert torch.load(path, mmap=True, map_location="cpu").sum() == 15


def test_state_of_a_module() -> None:
    network = torch.nn.Linear(3, 2).to(LAST)
    set_meta(network.weight, META)
    state = round_trip(network.state_dict())
    assert get_meta(state["weight"]) == META
    assert get_meta(state["bias"]) is None
    other = torch.nn.Linear(3, 2).to(LAST)
    other.load_state_dict(state)  # copies only the values
    assert get_meta(other.weight) is None
    other.load_state_dict(state, assign=True)
    assert get_meta(other.weight) == META


def test_lazy_bits_are_kept() -> None:
    tensor = torch.tensor([1 + 2j], device="openreg").conj()
    set_meta(tensor, META)
    loaded = round_trip(tensor)
    assert loaded.is_conj()
    assert get_meta(loaded) == META
    assert torch.equal(loaded, tensor)


class Network(torch.nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript() -> None:
    network = Network(tensor_with_meta())
    scripted = torch.jit.script(network)
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    for location, expected in ((None, META), ("openreg:0", META), ("cpu", None)):
        file.seek(0)
        loaded = torch.jit.load(file, map_location=location)
        assert same_values(loaded.weight, network.weight)
        if loaded.weight.device.type == "openreg":
            assert get_meta(loaded.weight) == expected


def test_safetensors_have_values_only() -> None:
    tensor = tensor_with_meta()
    loaded = safetensors.torch.load(safetensors.torch.save({"x": tensor}))["x"].to("openreg")
    assert same_values(loaded, tensor)
    assert get_meta(loaded) is None


def test_messages_to_other_processes_have_values_only() -> None:
    tensor = tensor_with_meta()
    received = ForkingPickler.loads(bytes(ForkingPickler.dumps(tensor)))
    assert received.data_ptr() == tensor.data_ptr()
    assert get_meta(received) is None


def test_wrappers_keep_the_metadata_of_inner_tensors() -> None:
    wrapped = TwoTensor(tensor_with_meta(), tensor_with_meta(meta=TensorMeta(version=5)))
    with torch.serialization.safe_globals([TwoTensor]):
        copies = [round_trip(wrapped), copy.copy(wrapped), copy.deepcopy(wrapped)]
    for copied in copies[:2]:
        assert get_meta(copied.a) == META
        assert get_meta(copied.b) == TensorMeta(version=5)
    assert type(copies[2]) is TwoTensor  # created by clone(), which drops the metadata
    with pytest.raises(ValueError, match=r"memory of their own.*or wraps other tensors"):
        get_meta(wrapped)


def test_fake_tensors_have_none() -> None:
    tensor = tensor_with_meta()
    with torch._subclasses.FakeTensorMode() as mode:
        fake = mode.from_tensor(tensor)
        with pytest.raises(ValueError, match="memory of their own"):
            set_meta(fake, META)
    file = io.BytesIO()
    torch.save(tensor_with_meta(), file)
    file.seek(0)
    with torch._subclasses.FakeTensorMode():
        assert torch.load(file).shape == (2, 3)


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        (TensorMeta(version=-1), "the version of a tensor's metadata must be from 0 to .*got -1"),
        (TensorMeta(version=2**31), "from 0 to 2147483647, but got 2147483648"),
        (TensorMeta(format=-1), "the format of a tensor's metadata must be from 0 to .*got -1"),
        (TensorMeta(format=2**31), "from 0 to 2147483647, but got 2147483648"),
        (TensorMeta(data=b"x" * 65537), "must be at most 65536 bytes, but got 65537 bytes"),
    ],
)
def test_wrong_meta(meta: TensorMeta, message: str) -> None:
    tensor = tensor_with_meta()
    with pytest.raises(ValueError, match=message):
        set_meta(tensor, meta)
    assert get_meta(tensor) == META


def test_wrong_types() -> None:
    tensor = tensor_with_meta()
    for wrong in (
        TensorMeta(version="1"),  # type: ignore[arg-type]
        TensorMeta(version=2**80),
        TensorMeta(data="text"),  # type: ignore[arg-type]
        TensorMeta(format=None),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            set_meta(tensor, wrong)
    with pytest.raises(TypeError, match="expected a TensorMeta or None, but got int"):
        set_meta(tensor, 5)
    with pytest.raises(TypeError, match="expected a tensor, but got list"):
        get_meta([1])
    assert get_meta(tensor) == META


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.ones(2), "expected a tensor on device openreg.*got a tensor on cpu"),
        (lambda: torch.ones(2, device="meta"), "on device openreg.*got a tensor on meta"),
        (lambda: torch.eye(2, device="openreg").to_sparse(), "memory of their own.*Sparse"),
    ],
)
def test_tensors_that_can_have_none(make: Callable[[], Tensor], message: str) -> None:
    tensor = make()
    for attempt in (lambda: set_meta(tensor, META), lambda: get_meta(tensor)):
        with pytest.raises(ValueError, match=message):
            attempt()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("openreg:version=1;format=0", "is damaged or was written by another release"),
        ("openreg:version=1;format=-1;data=", "from 0 to 2147483647, but got -1"),
        ("openreg:version=1;format=0;data=0g", "is damaged or was written by another release"),
    ],
)
def test_damaged_files(key: str, message: str) -> None:
    tensor = torch.ones(2, device="openreg")
    with pytest.raises(ValueError, match=message):
        torch._utils.set_tensor_metadata(tensor, {key: True})
    assert get_meta(tensor) is None


def test_metadata_of_other_backends_is_kept() -> None:
    tensor = torch.ones(2, device="openreg")
    torch._utils.set_tensor_metadata(tensor, {"another:version=1": True})
    assert get_meta(tensor) is None


def test_files_where_the_device_is_not(tmp_path: Path) -> None:
    path = tmp_path / "tensor.pt"
    torch.save(tensor_with_meta(), path)
    load = f"import torch; print(torch.load({str(path)!r}, map_location='cpu').sum().item())"
    assert child.output(load, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "15.0"


# --------------------------------------------------------------- metadata keys that other code owns


def test_keys_that_are_not_ours_are_kept() -> None:
    keys = {"version_number": True, "format_number": True, "another": False}
    tensor = torch.arange(3.0, device="openreg")
    torch._utils.set_tensor_metadata(tensor, keys)
    assert torch._utils.get_tensor_metadata(tensor) == keys
    assert get_meta(tensor) is None
    for back in (
        round_trip(tensor),
        round_trip(round_trip(tensor), legacy=True),
        copy.copy(tensor),
    ):
        assert torch._utils.get_tensor_metadata(back) == keys
        assert same_values(back, tensor)


def test_keys_that_are_not_ours_beside_metadata() -> None:
    tensor = tensor_with_meta()
    written = torch._utils.get_tensor_metadata(tensor)
    torch._utils.set_tensor_metadata(tensor, written | {"another": True})
    assert get_meta(tensor) == META
    assert torch._utils.get_tensor_metadata(round_trip(tensor)) == written | {"another": True}


# --------------------------------------------------------------------------- lazy clones of tensors


WRITES: dict[str, Callable[[Tensor], Any]] = {
    "pointwise": lambda x: x.add_(1),
    "pointwise out=": lambda x: torch.mul(x, 2, out=x),
    "structured": lambda x: x.clamp_(1, 2),
    "fallback": lambda x: x.erfinv_(),
    "copy_": lambda x: x.copy_(torch.ones(4)),
    "copy_ of the device": lambda x: x.copy_(torch.ones(4, device=x.device)),
    "fill_": lambda x: x.fill_(7),
    "random": lambda x: x.uniform_(),
    "foreach": lambda x: torch._foreach_add_([x], 1.0),
    "index_put_": lambda x: x.__setitem__(0, 9.0),
    "a view": lambda x: x[1:].zero_(),
    "storage": lambda x: x.untyped_storage().fill_(0),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("device", sorted({"openreg:0", LAST}))
def test_a_lazy_clone_gets_new_memory_when_it_is_written_to(name: str, device: str) -> None:
    values = torch.tensor([0.5, 1.5, 2.5, 3.5])
    for writes_to_clone in (False, True):
        tensor = values.to(device)
        clone = tensor._lazy_clone()
        assert not torch._C._is_cow_tensor(tensor)
        assert not torch._C._is_cow_tensor(clone)
        expected = values.clone()
        torch.manual_seed(1)
        changed, kept = (clone, tensor) if writes_to_clone else (tensor, clone)
        WRITES[name](changed)
        assert torch.equal(kept.cpu(), values)
        if name != "random":
            WRITES[name](expected)
            torch.testing.assert_close(changed.cpu(), expected, equal_nan=True)
        assert changed.device == kept.device == torch.device(device)


ADDRESSES: dict[str, Callable[[Tensor], Any]] = {
    "data_ptr": lambda x: x.data_ptr(),
    "data_ptr of the storage": lambda x: x.untyped_storage().data_ptr(),
    "dlpack": lambda x: x.__dlpack__(),
    "save": lambda x: torch.save(x, io.BytesIO()),
    "pickle for another process": ForkingPickler.dumps,
}


@needs_two_devices
@pytest.mark.parametrize("name", ADDRESSES)
def test_the_address_of_a_lazy_clone_while_another_device_is_current(name: str) -> None:
    tensor = torch.ones(4, device=LAST)
    assert torch.openreg.current_device() == 0
    before = torch.openreg.memory_allocated(0)
    clone = tensor._lazy_clone()
    ADDRESSES[name](clone)
    assert torch.openreg.current_device() == 0
    assert torch.openreg.memory_allocated(0) == before
    assert clone.device == clone.untyped_storage().device == torch.device(LAST)
    assert clone.data_ptr() != tensor.data_ptr()
    assert clone.tolist() == [1.0] * 4


def test_a_lazy_clone_has_the_metadata_of_the_original() -> None:
    tensor = torch.arange(6.0, device="openreg").reshape(2, 3).t()[1:]
    clone = tensor._lazy_clone()
    assert clone.tolist() == tensor.tolist()
    assert (clone.stride(), clone.storage_offset()) == (tensor.stride(), tensor.storage_offset())
    assert clone.untyped_storage().nbytes() == tensor.untyped_storage().nbytes()
    conjugate = torch.tensor([1 + 2j], device="openreg").conj()
    assert conjugate._lazy_clone().tolist() == [1 - 2j]
    assert torch.empty(0, device=LAST)._lazy_clone().device == torch.device(LAST)
    original = torch.ones(2, device="openreg", requires_grad=True)
    original._lazy_clone().mul(3).sum().backward()
    assert original.grad is not None
    assert original.grad.tolist() == [3.0, 3.0]


def test_the_last_lazy_clone_is_not_copied() -> None:
    tensor = torch.ones(4, device="openreg")
    clone = tensor._lazy_clone()
    del tensor
    clone.add_(1)
    assert clone.tolist() == [2.0] * 4


def test_a_lazy_clone_outlives_the_original_on_another_stream() -> None:
    tensor = torch.full((1000,), 3.0, device="openreg")
    clone = tensor._lazy_clone()
    torch.openreg.synchronize()
    side = torch.openreg.Stream()
    with torch.openreg.stream(side):
        torch.openreg._sleep(100_000_000)
        clone.add_(1)  # the copy runs on `side`, after the sleep
    del tensor
    for _ in range(20):  # reuses the original's memory immediately
        torch.full((1000,), -1.0, device="openreg")
    side.synchronize()
    assert clone.unique().tolist() == [4.0]
