# SPDX-License-Identifier: BSD-3-Clause
"""Files and copies of objects on the device restore values, devices and shared memory."""

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch
from torch import Tensor
from torch.distributed import checkpoint
from torch.testing._internal.two_tensor import TwoTensor

from tests import child
from tests.devices import LAST, LAST_INDEX, needs_two_devices

pytestmark = [
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.uint16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.complex32,
    torch.complex64,
    torch.complex128,
]


def round_trip(saved: Any, *, legacy: bool = False, **load: Any) -> Any:
    file = io.BytesIO()
    torch.save(saved, file, _use_new_zipfile_serialization=not legacy)
    file.seek(0)
    return torch.load(file, **load)


def copy_by_pickle(saved: Any) -> Any:
    return pickle.loads(pickle.dumps(saved))


def numbers(*shape: int, device: str = LAST) -> Tensor:
    return torch.arange(float(torch.Size(shape).numel()), device=device).reshape(shape)


def assert_same(found: Tensor, expected: Tensor) -> None:
    """Checks that two tensors have equal values and metadata, but different memory."""
    assert found.device == expected.device
    assert found.dtype == expected.dtype
    assert found.stride() == expected.stride()
    assert found.requires_grad == expected.requires_grad
    assert found.data_ptr() != expected.data_ptr()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize(
    ("dtype", "legacy"),
    [(dtype, False) for dtype in DTYPES]
    # torch cannot read newer dtypes from a legacy file, on any device.
    + [(dtype, True) for dtype in DTYPES if dtype not in torch.storage._new_dtypes()],
    ids=str,
)
def test_tensors_of_each_dtype(dtype: torch.dtype, legacy: bool, weights_only: bool) -> None:
    tensor = torch.arange(8).to(dtype).to(LAST)
    loaded = round_trip(tensor, legacy=legacy, weights_only=weights_only)
    assert loaded.device == torch.device(LAST)
    assert loaded.dtype == dtype
    assert torch.equal(loaded.cpu().view(torch.uint8), tensor.cpu().view(torch.uint8))


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    "tensor",
    [
        numbers(2, 3).t(),
        numbers(4, 5)[1:, ::2],
        torch.ones(3, device="openreg").expand(2, 3),
        torch.tensor(2.0, device="openreg"),
        torch.empty(0, 3, device=LAST),
        numbers(2).requires_grad_(),
    ],
    ids=["transposed", "view", "expanded", "scalar", "empty", "requires_grad"],
)
def test_layouts(tensor: Tensor, legacy: bool, weights_only: bool) -> None:
    loaded = round_trip(tensor, legacy=legacy, weights_only=weights_only)
    assert loaded.storage_offset() == tensor.storage_offset()
    if tensor.numel() == 0:
        assert (loaded.shape, loaded.device) == (tensor.shape, tensor.device)
    else:
        assert_same(loaded, tensor)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    ("location", "device"),
    [
        (None, LAST),
        ("cpu", "cpu"),
        ("openreg:0", "openreg:0"),
        ("meta", "meta"),
        (torch.device("cpu"), "cpu"),
        (torch.device("openreg", 0), "openreg:0"),
        ({LAST: "openreg:0"}, "openreg:0"),
        ({LAST: "cpu"}, "cpu"),
        pytest.param({"openreg:0": "cpu"}, LAST, marks=needs_two_devices),
        (lambda storage, tag: storage, "cpu"),
        (lambda storage, tag: storage.openreg(0), "openreg:0"),
        (lambda storage, tag: None, LAST),
    ],
)
def test_map_location(location: Any, device: str, legacy: bool) -> None:
    tensor = numbers(2, 3)
    loaded = round_trip(tensor, legacy=legacy, map_location=location)
    assert loaded.device == torch.device(device)
    if device != "meta":
        assert torch.equal(loaded.cpu(), tensor.cpu())


@pytest.mark.parametrize("location", ["openreg", torch.device("openreg")], ids=str)
def test_no_index_means_the_current_device(location: Any) -> None:
    with torch.openreg.device(LAST):
        loaded = round_trip(torch.ones(2), map_location=location)
    assert loaded.device == torch.device(LAST)
    assert round_trip(torch.ones(2), map_location=location).device == torch.device("openreg:0")


def test_callables_of_map_location_get_the_device() -> None:
    tags: list[str] = []
    saved = {"a": numbers(2), "b": numbers(2, device="openreg:0"), "c": torch.ones(2)}
    round_trip(saved, map_location=lambda storage, tag: tags.append(tag))
    assert sorted(tags) == sorted(["cpu", "openreg:0", LAST])


def test_tags_of_storages() -> None:
    tag = torch.serialization.location_tag
    assert tag(torch.UntypedStorage(4, device="openreg")) == "openreg:0"
    assert tag(torch.UntypedStorage(4, device=LAST)) == LAST
    restored = torch.serialization.default_restore_location(
        numbers(4, device="cpu").untyped_storage(), LAST
    )
    assert restored.device == torch.device(LAST)
    assert torch.tensor(restored.tolist(), dtype=torch.uint8).view(torch.float32)[3] == 3


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_missing_device(legacy: bool) -> None:
    count = torch.openreg.device_count()
    missing = rf"OPENREG device {count} but .*device_count\(\) is {count}"
    with pytest.raises(RuntimeError, match=missing):
        round_trip(numbers(2), legacy=legacy, map_location={LAST: f"openreg:{count}"})
    assert torch.equal(round_trip(numbers(2), legacy=legacy), numbers(2))


@needs_two_devices
def test_files_in_other_processes(tmp_path: Path) -> None:
    path = tmp_path / "tensors.pt"
    torch.save({"first": numbers(3, device="openreg:0"), "second": numbers(3)}, path)
    load = f"import torch; load = lambda **options: torch.load({str(path)!r}, **options)\n"
    fewer = """
try:
    load()
except RuntimeError as error:
    print(error)
loaded = load(map_location="openreg")
assert {tensor.device for tensor in loaded.values()} == {torch.device("openreg:0")}
assert loaded["second"].tolist() == [0, 1, 2]
"""
    printed = child.output(load + fewer, OPENREG_DEVICE_COUNT="1")
    assert "OPENREG device 1 but torch.openreg.device_count() is 1" in printed
    assert "use torch.load with map_location" in printed
    without = """
try:
    load()
except RuntimeError as error:
    print(error)
assert load(map_location="cpu")["second"].tolist() == [0, 1, 2]
assert not hasattr(torch, "openreg")
"""
    printed = child.output(load + without, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "tagged with openreg:0" in printed


def test_mapped_files(tmp_path: Path) -> None:
    """With mmap, only host tensors map the file. Device tensors are copies."""
    path = tmp_path / "tensors.pt"
    torch.save({"device": numbers(1000), "host": torch.ones(1000)}, path)
    before = path.read_bytes()
    loaded = torch.load(path, mmap=True)
    assert_same(loaded["device"], numbers(1000))
    loaded["device"].zero_()
    torch.openreg.synchronize(LAST)
    assert path.read_bytes() == before
    assert torch.load(path, mmap=True, map_location="openreg:0")["host"].sum() == 1000
    file = io.BytesIO(before)
    with pytest.raises(ValueError, match="must be a file path"):
        torch.load(file, mmap=True)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_storages(legacy: bool) -> None:
    typed = round_trip(numbers(6).storage(), legacy=legacy)
    assert typed.dtype == torch.float32
    assert typed.device == torch.device(LAST)
    assert typed.tolist() == list(range(6))


def test_untyped_storages() -> None:
    storage = numbers(6).untyped_storage()
    loaded = round_trip(storage)
    assert loaded.device == storage.device
    assert loaded.tolist() == storage.tolist()
    # torch cannot read untyped storages from a legacy file or a pickle, on any device.
    attempts: list[Callable[[], Any]] = [
        lambda: round_trip(storage, legacy=True),
        lambda: copy_by_pickle(storage),
    ]
    for again in attempts:
        with pytest.raises(AttributeError, match="no attribute 'dtype'"):
            again()


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_views_still_share_memory(legacy: bool) -> None:
    base = numbers(4, 4)
    loaded = round_trip({"base": base, "row": base[1], "t": base.t(), "o": base + 0}, legacy=legacy)
    loaded["base"].fill_(7)
    assert loaded["row"].tolist() == [7] * 4
    assert loaded["t"].sum().item() == 7 * 16
    assert torch.equal(loaded["o"], base)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_modules_and_optimizers_resume(legacy: bool) -> None:
    x = numbers(4, 3)

    def make() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        network = torch.nn.Sequential(
            torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2)
        ).to(LAST)
        return network, torch.optim.Adam(network.parameters(), amsgrad=True)

    def step(network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = network(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    network, optimizer = make()
    step(network, optimizer)
    state = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
    loaded = round_trip(state, legacy=legacy)
    for value in loaded["network"].values():
        assert value.device == torch.device(LAST)
    assert loaded["optimizer"]["state"][0]["exp_avg"].device == torch.device(LAST)
    other = make()
    other[0].load_state_dict(loaded["network"])
    other[1].load_state_dict(loaded["optimizer"])
    for _ in range(3):
        assert torch.equal(step(network, optimizer), step(*other))


def test_parameters_and_whole_modules() -> None:
    parameter = round_trip(torch.nn.Parameter(numbers(3), requires_grad=False))
    assert type(parameter) is torch.nn.Parameter
    assert_same(parameter, torch.nn.Parameter(numbers(3), requires_grad=False))
    module = torch.nn.Linear(3, 2).to(LAST)
    loaded = round_trip(module, weights_only=False)
    assert torch.equal(loaded(numbers(3)), module(numbers(3)))


QUANTIZED = {
    "tensor": lambda: torch.quantize_per_tensor(torch.arange(6.0), 0.5, 1, torch.qint8),
    "channel": lambda: torch.quantize_per_channel(
        torch.ones(2, 3), torch.tensor([0.5, 0.25]), torch.tensor([0, 1]), 0, torch.qint8
    ),
}


@pytest.mark.parametrize("make", QUANTIZED.values(), ids=QUANTIZED)
def test_quantized_tensors(make: Callable[[], Tensor]) -> None:
    tensor = make().to("openreg")
    for loaded in (round_trip(tensor), copy.deepcopy(tensor)):
        assert loaded.device == tensor.device
        assert loaded.qscheme() == tensor.qscheme()
        assert torch.equal(loaded.int_repr(), tensor.int_repr())
        assert torch.equal(loaded.dequantize(), tensor.dequantize())


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    "layout",
    [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc],
    ids=str,
)
def test_sparse_tensors(layout: torch.layout) -> None:
    blocks = (2, 2) if layout in {torch.sparse_bsr, torch.sparse_bsc} else None
    tensor = torch.eye(4).to_sparse(layout=layout, blocksize=blocks).to(LAST)
    for loaded in (round_trip(tensor), copy.deepcopy(tensor)):
        assert loaded.layout == layout
        assert loaded.values().device == torch.device(LAST)
        assert torch.equal(loaded.cpu().to_dense(), torch.eye(4))
    assert round_trip(tensor, map_location="cpu").values().device.type == "cpu"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors(layout: torch.layout) -> None:
    nested = torch.nested.nested_tensor([numbers(2, 3), numbers(1, 3)], layout=layout, device=LAST)
    # weights_only does not support nested tensors of jagged layout.
    loaded = round_trip(nested, weights_only=layout == torch.strided)
    assert loaded.device == torch.device(LAST)
    for found, expected in zip(loaded.unbind(), nested.unbind(), strict=True):
        assert torch.equal(found, expected)


def test_lazy_bits() -> None:
    tensor = torch.tensor([1 + 2j, 3 - 4j], device="openreg")
    for view in (tensor.conj(), tensor.conj().imag):
        for loaded in (round_trip(view), copy_by_pickle(view)):
            assert (loaded.is_conj(), loaded.is_neg()) == (view.is_conj(), view.is_neg())
            assert torch.equal(loaded, view)


def test_pickle() -> None:
    tensor = numbers(2, 3)
    assert_same(copy_by_pickle(tensor), tensor)
    parameter = copy_by_pickle(torch.nn.Parameter(tensor))
    assert parameter.requires_grad
    assert parameter.device == tensor.device
    assert copy_by_pickle(tensor.device) == tensor.device
    assert copy_by_pickle(torch.device("openreg")) == torch.device("openreg")


def test_copies_in_python() -> None:
    base = numbers(2, 3).requires_grad_()
    base.grad = torch.ones_like(base)
    shallow = copy.copy(base.detach())
    assert shallow.data_ptr() == base.data_ptr()
    copied, row = copy.deepcopy([base, base.detach()[1]])
    assert_same(copied, base)
    torch.testing.assert_close(copied.grad, base.grad, rtol=0, atol=0)
    assert row.data_ptr() == copied[1].data_ptr()
    module = copy.deepcopy(torch.nn.Linear(2, 2).to(LAST))
    assert next(module.parameters()).device == torch.device(LAST)


class Network(torch.nn.Module):
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.register_buffer("scale", torch.full((2,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x)) * self.scale


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", ["script", "trace"])
def test_torchscript(kind: str, tmp_path: Path) -> None:
    network = Network().to(LAST)
    x = numbers(4, 3)
    compiled = torch.jit.script(network) if kind == "script" else torch.jit.trace(network, x)
    path = str(tmp_path / "network.pt")
    torch.jit.save(compiled, path)
    loaded = torch.jit.load(path)
    assert {value.device for value in loaded.state_dict().values()} == {x.device}
    assert torch.equal(loaded(x), network(x))
    for device in ("cpu", "openreg:0"):
        moved = torch.jit.load(path, map_location=device)
        assert {value.device for value in moved.state_dict().values()} == {torch.device(device)}
        assert torch.allclose(moved(x.to(device)).cpu(), network(x).cpu())


def test_exported_programs() -> None:
    network = Network().to(LAST)
    x = numbers(4, 3)
    file = io.BytesIO()
    torch.export.save(torch.export.export(network, (x,)), file)
    file.seek(0)
    loaded = torch.export.load(file)
    assert {value.device for value in loaded.state_dict.values()} == {x.device}
    assert torch.equal(loaded.module()(x), network(x))


def test_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "tensors.safetensors"
    tensor = numbers(2, 3)
    safetensors.torch.save_file({"x": tensor, "y": tensor.bfloat16()}, path)
    host = safetensors.torch.load_file(path)
    assert host["y"].dtype == torch.bfloat16
    assert torch.equal(host["x"], tensor.cpu())
    # safetensors uses an integer as an index of the accelerator, because its list of device names
    # does not contain "openreg".
    loaded = safetensors.torch.load_file(path, device=LAST_INDEX)
    assert_same(loaded["x"], tensor)
    with safetensors.safe_open(path, framework="pt", device=0) as file:
        assert file.get_slice("x")[1:].device == torch.device("openreg:0")
    with pytest.raises(safetensors.SafetensorError, match=f"device {LAST} is invalid"):
        safetensors.torch.load_file(path, device=LAST)


def test_models_with_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    network = Network().to(LAST)
    safetensors.torch.save_model(network, str(path))
    other = Network().to(LAST)
    missing, unexpected = safetensors.torch.load_model(other, path)
    assert not missing
    assert not unexpected
    assert torch.equal(other(numbers(4, 3)), network(numbers(4, 3)))


def test_subclasses_that_wrap_tensors() -> None:
    a, b = numbers(2, 3), numbers(2, 3) + 1
    wrapped = TwoTensor(a, b)
    with torch.serialization.safe_globals([TwoTensor]):
        copies = [round_trip(wrapped), round_trip(wrapped, legacy=True)]
    copies += [copy.deepcopy(wrapped), copy_by_pickle(wrapped)]
    for loaded in copies:
        assert type(loaded) is TwoTensor
        assert loaded.device == torch.device(LAST)
        assert_same(loaded.a, a)
        assert_same(loaded.b, b)
    with torch.serialization.safe_globals([TwoTensor]):
        moved = round_trip(wrapped, map_location="cpu")
    assert {moved.device, moved.a.device, moved.b.device} == {torch.device("cpu")}
    attributes, _ = wrapped.__tensor_flatten__()
    assert [getattr(wrapped, name).device.type for name in attributes] == ["openreg"] * 2


def test_files_without_data() -> None:
    file = io.BytesIO()
    with torch.serialization.skip_data():
        torch.save(numbers(2, 3), file)
    file.seek(0)
    loaded = torch.load(file)
    assert (loaded.device, loaded.shape) == (torch.device(LAST), (2, 3))


def test_fake_tensors_of_a_file() -> None:
    file = io.BytesIO()
    torch.save(numbers(2, 3), file)
    file.seek(0)
    with torch._subclasses.FakeTensorMode():
        loaded = torch.load(file)
    assert isinstance(loaded, torch._subclasses.FakeTensor)
    assert loaded.device == torch.device(LAST)


def test_distributed_checkpoints_of_one_process(tmp_path: Path) -> None:
    network = Network().to(LAST)
    # Before torch writes, it waits for the current device only.
    with torch.openreg.device(LAST):
        checkpoint.save(network.state_dict(), checkpoint_id=str(tmp_path), no_dist=True)
    state = Network().to(LAST).state_dict()
    checkpoint.load(state, checkpoint_id=str(tmp_path), no_dist=True)
    for name, value in network.state_dict().items():
        assert_same(state[name], value)


def test_states_of_generators() -> None:
    states = torch.openreg.get_rng_state_all()
    for state, loaded in zip(states, round_trip(states), strict=True):
        assert torch.equal(state, loaded)
