# SPDX-License-Identifier: BSD-3-Clause
"""Tests safetensors: device tensors can be written to files and read back to the device.

The library accepts a fixed list of device names. It treats an integer as an index of the
accelerator.
"""

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import Tensor, nn

from tests.clients.comparison import DEVICE, assert_same_tensors

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool]


def tensors() -> dict[str, Tensor]:
    made = {str(dtype): (torch.arange(12) % 3).reshape(3, 4).to(dtype) for dtype in DTYPES}
    return made | {"empty": torch.empty(0, 3), "scalar": torch.tensor(2.5)}


def test_saves_and_loads(tmp_path: Path) -> None:
    path = tmp_path / "tensors.safetensors"
    save_file({name: tensor.to(DEVICE) for name, tensor in tensors().items()}, path)
    loaded = load_file(path, device=0)
    assert_same_tensors(loaded, tensors())


def test_reads_slices(tmp_path: Path) -> None:
    path = tmp_path / "tensors.safetensors"
    save_file({"x": torch.arange(24.0, device=DEVICE).reshape(4, 6)}, path)
    with safe_open(path, framework="pt", device=0) as file:
        part = file.get_slice("x")[1:3, 2:]
        whole = file.get_tensor("x")
    assert part.device == whole.device == DEVICE
    assert torch.equal(part, whole[1:3, 2:])


def test_models(tmp_path: Path) -> None:
    """Tests save_model() and load_model() with a model in which two layers share a weight."""
    path = str(tmp_path / "model.safetensors")
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to(DEVICE)
    model[1].weight = model[0].weight
    save_model(model, path)
    loaded = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to(DEVICE)
    loaded[1].weight = loaded[0].weight
    load_model(loaded, path, device=0)
    expected = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
    assert_same_tensors(loaded.state_dict(), expected)
