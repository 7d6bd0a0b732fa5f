# SPDX-License-Identifier: BSD-3-Clause
"""Tests torchao: quantized weights, and optimizers with quantized state."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torchao
from torch import Tensor, nn
from torchao.quantization import quantize_

from tests.clients import tiny_models
from tests.clients.comparison import DEVICE, assert_same, on_device, to_device

quantization = torchao.quantization

CONFIGURATIONS: dict[str, Any] = {
    "int8": lambda: quantization.Int8WeightOnlyConfig(version=2),
    "int8_dynamic": lambda: quantization.Int8DynamicActivationInt8WeightConfig(version=2),
    "int4_integers": lambda: quantization.IntxWeightOnlyConfig(
        weight_dtype=torch.int4, granularity=quantization.PerGroup(16)
    ),
    "float8": lambda: quantization.Float8WeightOnlyConfig(),
}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32), nn.Linear(32, 16)).eval()


def quantized(model: Any, name: str) -> Any:
    quantize_(model, CONFIGURATIONS[name]())
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_quantizes(name: str, dtype: torch.dtype) -> None:
    model = network().to(dtype)
    x = torch.randn(4, 32, dtype=dtype)
    ours, theirs = quantized(on_device(model), name), quantized(model, name)
    tolerance = 1e-4 if dtype is torch.float32 else 2e-2
    with torch.no_grad():
        assert_same(ours(x.to(DEVICE)), theirs(x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_compiles(name: str) -> None:
    model, x = network(), torch.randn(4, 32)
    ours, theirs = quantized(on_device(model), name), quantized(model, name)
    # Except on "cpu", Inductor replaces the division by a constant with a multiplication by its
    # reciprocal. An activation may therefore round to the next integer.
    tolerance = 2e-2 if name == "int8_dynamic" else 1e-4
    with torch.no_grad():
        compiled: Any = torch.compile(ours)
        assert_same(compiled(x.to(DEVICE)), theirs(x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_moves_and_saves(name: str, tmp_path: Path) -> None:
    """A model that is quantized on the CPU can be moved to the device, saved there, and loaded."""
    model, x = quantized(network(), name), torch.randn(4, 32)
    with torch.no_grad():
        theirs = model(x)
        ours = copy.deepcopy(model).to(DEVICE)
        assert_same(ours(x.to(DEVICE)), theirs, rtol=1e-4, atol=1e-4)
        torch.save(ours.state_dict(), tmp_path / "weights.pt")
        # weights_only=False is necessary because the file also contains torchao's settings.
        # map_location needs an index. Without one, torch creates the tensor subclasses on a device
        # without an index (it does the same for CUDA), and such tensors cannot be copied.
        state = torch.load(tmp_path / "weights.pt", map_location="openreg:0", weights_only=False)
        loaded = network().to(DEVICE)
        loaded.load_state_dict(state, assign=True)
        assert_same(loaded(x.to(DEVICE)), theirs, rtol=1e-4, atol=1e-4)


def test_quantizes_a_language_model() -> None:
    model = tiny_models.decoder("Llama").eval()
    prompt = tiny_models.tokens(2, 7)
    ours, theirs = quantized(on_device(model), "int8"), quantized(model, "int8")
    settings = {"max_new_tokens": 6, "do_sample": False}
    assert_same(ours.generate(prompt.to(DEVICE), **settings), theirs.generate(prompt, **settings))


@pytest.mark.parametrize("name", ["AdamW8bit", "AdamW4bit", "AdamWFp8"])
def test_optimizers(name: str) -> None:
    # The state of a parameter is quantized only if it has at least 4096 elements.
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    x = torch.randn(8, 64)
    results = []
    for m, data in ((on_device(model), to_device(x)), (model, x)):
        optimizer = getattr(torchao.optim, name)(m.parameters(), lr=1e-2)
        losses: list[Tensor] = []
        for _ in range(3):
            loss = m(data).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        results.append(torch.stack(losses))
    assert_same(*results, rtol=1e-2, atol=1e-4)
