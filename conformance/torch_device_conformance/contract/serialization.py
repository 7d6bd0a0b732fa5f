# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for saving, pickling and copying objects."""

import copy
import io
import pickle
from typing import Any

import torch
from torch_device_conformance.contract.child import run, succeed
from torch_device_conformance.contract.row import Backend, require, require_equal, row

FILE = "aten/tensors/storage.cc"
STORAGE = "aten::set_.source_Storage_storage_offset; storages that copy to the CPU and back"


def saved(value: Any, **options: Any) -> Any:
    """Saves a value with torch.save and loads it with torch.load, which gets the `options`."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


def same(what: str, found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Checks that two tensors have the same values, strides, storage offset and device."""
    require_equal(f"values of {what}", found, wanted)
    require_equal(f"strides of {what}", found.stride(), wanted.stride())
    require_equal(f"storage offset of {what}", found.storage_offset(), wanted.storage_offset())
    require_equal(f"device of {what}", found.device, wanted.device)


@row(
    "serialization",
    "save_and_load",
    requires="torch.save and torch.load keep values, dtypes, strides, offsets and the device",
    implement=STORAGE,
    without="checkpoints cannot be saved or loaded",
    shown_by=FILE,
)
def save_and_load(backend: Backend) -> None:
    x = torch.arange(24.0).view(4, 6).to(backend.device)
    for name, made in {
        "a tensor": x,
        "a transposed tensor": x.t(),
        "a slice": x[1:, ::2],
        "a bfloat16 tensor": x.to(torch.bfloat16),
        "a bool tensor": x > 3,
        "a 0-dim tensor": x[1, 1],
        "an empty tensor": x[:0],
    }.items():
        same(name, saved(made), made)
    kept = saved(torch.nn.Parameter(x))
    require(
        isinstance(kept, torch.nn.Parameter) and kept.requires_grad,
        "a parameter is no longer a Parameter that requires gradients after loading",
    )


@row(
    "serialization",
    "shared_storage",
    requires="tensors that share memory share memory after loading",
    implement=STORAGE,
    without="tied weights become independent",
    shown_by=FILE,
)
def shared_storage(backend: Backend) -> None:
    x = torch.arange(6.0).to(backend.device)
    whole, part = saved([x, x[2:4]])
    whole.fill_(9)
    require_equal("the part after a write to the whole", part, torch.full((2,), 9.0))


@row(
    "serialization",
    "map_location",
    requires="map_location moves tensors to the CPU, to the device and to a different index",
    implement="torch.<device> module; hook isAvailable; storages that copy",
    without="checkpoints load only on the device that saved them",
    shown_by=FILE,
)
def map_location(backend: Backend) -> None:
    x = torch.arange(6.0).view(2, 3).to(backend.device).t()
    last = backend.last()
    for place in ("cpu", backend.type, last, str(last)):
        loaded = saved(x, map_location=place)
        require_equal(f"values with map_location={place}", loaded, x)
        require_equal("device", loaded.device.type, torch.device(place).type)
        require_equal("strides", loaded.stride(), x.stride())
    require_equal(f"device with map_location={last}", saved(x, map_location=last).device, last)
    require_equal(
        f"device of a CPU tensor with map_location={last}",
        saved(x.cpu(), map_location=last).device,
        last,
    )


@row(
    "serialization",
    "without_device",
    requires="without the backend, map_location='cpu' loads a file that was saved on the device",
    implement="nothing if torch.save is used; a pickle must not need the backend",
    without="models can be loaded only where the backend is installed",
    shown_by=FILE,
    seconds=180,
)
def without_device(backend: Backend) -> None:
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.pt")
        torch.save({"x": torch.arange(3.0).to(backend.device)}, path)
        lines = f"""
            import torch
            print(torch.load({path!r}, map_location="cpu")["x"].tolist())
        """
        done = run(backend, lines, load=False, environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    require_equal("values", succeed(done, "torch.load without the backend"), "[0.0, 1.0, 2.0]")


@row(
    "serialization",
    "pickle",
    requires="pickle keeps values, strides and the device",
    implement=STORAGE,
    without="multiprocessing and caches cannot transfer or store tensors",
    shown_by=FILE,
)
def pickles(backend: Backend) -> None:
    x = torch.arange(24.0).view(4, 6).to(backend.device)
    for name, made in (("a tensor", x), ("a transposed tensor", x.t()), ("a slice", x[1:, ::2])):
        same(name, pickle.loads(pickle.dumps(made)), made)


@row(
    "serialization",
    "deepcopy",
    requires="copy.deepcopy allocates new memory and keeps strides and sharing",
    implement=STORAGE + "; storage.clone",
    without="moving averages of weights share memory with the weights",
    shown_by=FILE,
)
def deepcopy(backend: Backend) -> None:
    x = torch.arange(6.0).view(2, 3).to(backend.device)
    first, second = copy.deepcopy([x.t(), x])
    same("a copy", first, x.t())
    require(first.data_ptr() != x.data_ptr(), "the copy shares memory with the original")
    second.zero_()
    require_equal("the original after a write to the copy", x, torch.arange(6.0).view(2, 3))
    require_equal("the other view of the copy", first, torch.zeros(3, 2))
    layer = torch.nn.Linear(2, 2).to(backend.device)
    again = copy.deepcopy(layer)
    require_equal("weight of a layer", again.weight, layer.weight)


@row(
    "serialization",
    "state_dict",
    requires="training continues correctly after loading a model's and an optimizer's state_dict",
    implement="aten::_has_compatible_shallow_copy_type for param.data = tensor",
    without="training cannot be resumed",
    shown_by="aten/tensors/views.cc",
)
def state_dict(backend: Backend) -> None:
    def make() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(model.parameters())
        return model.to(backend.device), optimizer

    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        model(torch.ones(4, 3, device=backend.device)).pow(2).sum().backward()
        optimizer.step()

    model, optimizer = make()
    step(model, optimizer)
    files = saved([model.state_dict(), optimizer.state_dict()])
    step(model, optimizer)
    other, other_optimizer = make()
    other.load_state_dict(files[0])
    other_optimizer.load_state_dict(files[1])
    step(other, other_optimizer)
    require_equal("weight after one more step", other.weight, model.weight)
