# SPDX-License-Identifier: BSD-3-Clause
"""Tests torchao: all quantize_ configurations, and PT2E from export to generated kernels."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchao.quantization as quantization
from torch import Tensor, nn
from torch._inductor.utils import run_and_get_code
from torch.testing import assert_close
from torch.utils._pytree import tree_map_only
from torchao.quantization import quantize_
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config,
)
from torchao.quantization.quantize_.workflows import Int4TilePackedTo4dTensor

DEVICE = torch.device("openreg", 0)

CONFIGURATIONS: dict[str, Callable[[], Any]] = {
    "int8 weights": quantization.Int8WeightOnlyConfig,
    "int8 weights by groups": lambda: quantization.Int8WeightOnlyConfig(
        granularity=quantization.PerGroup(16)
    ),
    "int8 weights and inputs": quantization.Int8DynamicActivationInt8WeightConfig,
    "4 bits in int8, by groups": lambda: quantization.IntxWeightOnlyConfig(
        weight_dtype=torch.int4, granularity=quantization.PerGroup(16)
    ),
    "3 bits in int8, by rows": lambda: quantization.IntxWeightOnlyConfig(
        weight_dtype=torch.int3, granularity=quantization.PerAxis(0)
    ),
    "4 bits, int8 inputs": lambda: quantization.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=quantization.PerGroup(32)
    ),
    "float8 weights": quantization.Float8WeightOnlyConfig,
}
HOLD_ENUMS = {"int8 weights and inputs", "float8 weights"}
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 2e-2}


class Block(nn.Module):
    """A block of linear layers of several sizes, one of them without bias."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(64, 128)
        self.down = nn.Linear(128, 64, bias=False)
        self.head = nn.Linear(64, 24)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.down(nn.functional.gelu(self.up(x)))
        out: Tensor = self.head(x)
        return out


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def close(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    assert ours.device == DEVICE
    assert_close(ours.cpu(), theirs, rtol=tolerance, atol=tolerance)


# docs/quantization.md shows this program.
PROGRAM = """
import torch
from torch import nn
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).to("openreg")
quantize_(model, Int8DynamicActivationInt8WeightConfig())
result = model(torch.randn(8, 1024, device="openreg"))
"""


def test_first_program() -> None:
    names: dict[str, Any] = {}
    exec(PROGRAM, names)
    assert all(names["model"][layer].weight.qdata.dtype == torch.int8 for layer in (0, 2))
    assert names["result"].device == DEVICE
    assert names["result"].isfinite().all()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_quantize(name: str, dtype: torch.dtype, compiled: bool) -> None:
    """Quantization on the device yields the same integers and results as on the CPU."""
    theirs = Block().eval().to(dtype)
    ours = copy.deepcopy(theirs).to(DEVICE)
    x = torch.randn(2, 9, 64).to(dtype)
    for model in (ours, theirs):
        quantize_(model, CONFIGURATIONS[name]())
    for (key, mine), other in zip(
        ours.state_dict().items(), theirs.state_dict().values(), strict=True
    ):
        if hasattr(mine, "qdata"):
            assert torch.equal(mine.qdata.cpu().view(torch.uint8), other.qdata.view(torch.uint8)), (
                key
            )
    run = torch.compile(ours, fullgraph=True) if compiled else ours
    # Generated code divides by a scale differently, so an input may be rounded to the next integer.
    flips = compiled and name == "int8 weights and inputs"
    with torch.no_grad():
        close(run(x.to(DEVICE)), theirs(x), 2e-2 if flips else TOLERANCES[dtype])


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_save_and_load(name: str, tmp_path: Path) -> None:
    model = Block().eval()
    x = torch.randn(3, 64)
    quantize_(model, CONFIGURATIONS[name]())
    with torch.no_grad():
        expected = model(x)
        moved = copy.deepcopy(model).to(DEVICE)
        close(moved(x.to(DEVICE)), expected, 1e-4)
        torch.save(moved.state_dict(), tmp_path / "model.pt")
        for device in (DEVICE, torch.device("cpu")):
            loaded = Block().eval().to(device)
            # On every device, weights_only=True fails if the file contains one of torchao's enums.
            state = torch.load(
                tmp_path / "model.pt", map_location=device, weights_only=name not in HOLD_ENUMS
            )
            loaded.load_state_dict(state, assign=True)
            assert_close(loaded(x.to(device)).cpu(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_int8_sums_are_the_devices(compiled: bool) -> None:
    """int8 inputs and weights must be multiplied with _int_mm, and not as int32 or float."""
    model = Block().eval().to(DEVICE)
    quantize_(model, quantization.Int8DynamicActivationInt8WeightConfig())
    run = torch.compile(model) if compiled else model
    x = torch.randn(64, 64, device=DEVICE)
    with torch.no_grad():
        run(x)
        with torch.profiler.profile(
            activities=[
                torch.profiler.ProfilerActivity.CPU,
                torch.profiler.ProfilerActivity.PrivateUse1,
            ]
        ) as profile:
            run(x)
            torch.openreg.synchronize()
    names = {event.key for event in profile.key_averages()}
    assert "aten::_int_mm" in names


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_packed_int4(compiled: bool) -> None:
    """A packed weight works on the device, although torchao itself packs only for CUDA."""
    n, k, group = 16, 1024, 128
    numbers = torch.randint(0, 16, (n, k))
    scale_and_zero = torch.rand(k // group, n, 2).bfloat16()
    scale, zero = scale_and_zero.float().repeat_interleave(group, 0).unbind(2)
    weight = (numbers - 8) * scale.t() + zero.t()
    pairs = (numbers[:, ::2] << 4 | numbers[:, 1::2]).to(torch.uint8)
    layer = nn.Linear(k, n, device=DEVICE, dtype=torch.bfloat16)
    layer.weight = nn.Parameter(
        Int4TilePackedTo4dTensor(
            torch.ops.aten._convert_weight_to_int4pack(pairs.to(DEVICE), 8),
            scale_and_zero.to(DEVICE),
            [1, group],
            torch.Size([n, k]),
        ),
        requires_grad=False,
    )
    x = torch.randn(5, k).bfloat16()
    run = torch.compile(layer, fullgraph=True) if compiled else layer
    with torch.no_grad():
        ours = run(x.to(DEVICE))
    expected = x.float() @ weight.t() + layer.bias.detach().float().cpu()
    assert_close(ours.float().cpu(), expected, rtol=2e-2, atol=2e-1)


def _pt2e(model: nn.Module, x: Tensor) -> nn.Module:
    """Exports a model, inserts observers, calibrates them, and converts to quantized operators."""
    generator = torch.Generator().manual_seed(1)
    calibration = [torch.randn(x.shape, generator=generator).to(x.device) for _ in range(4)]
    exported = torch.export.export(model, (x,)).module()
    quantizer = X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(exported, quantizer)
    for batch in calibration:
        prepared(batch)
    converted: nn.Module = convert_pt2e(prepared)
    return converted


@pytest.fixture
def calibrated() -> tuple[nn.Module, nn.Module, Tensor]:
    """Returns a model quantized with PT2E on the device, the same on the CPU, and an input."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 36, 32),
        nn.ReLU(),
        nn.Linear(32, 4),
    ).eval()
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        ours = _pt2e(copy.deepcopy(model).to(DEVICE), x.to(DEVICE))
        theirs = _pt2e(model, x)
    return ours, theirs, x


# The tolerance is one quantization step: sums that differ in their last bits may round to different
# steps.
STEP = 5e-2


def test_pt2e(calibrated: tuple[nn.Module, nn.Module, Tensor]) -> None:
    ours, theirs, x = calibrated
    with torch.no_grad():
        close(ours(x.to(DEVICE)), theirs(x), STEP)


def test_pt2e_becomes_generated_kernels(
    calibrated: tuple[nn.Module, nn.Module, Tensor],
) -> None:
    ours, theirs, x = calibrated
    with torch.no_grad():
        result, codes = run_and_get_code(torch.compile(ours), x.to(DEVICE))
        close(result, theirs(x), STEP)
    # Generated kernels must contain quantization and dequantization. No operator may be called for
    # them.
    calls = "\n".join(code.split("def call", 1)[-1] for code in codes)
    assert "openreg" in calls
    assert "ops.quantized_decomposed" not in calls  # only comments before the calls name these


def test_pt2e_is_saved(calibrated: tuple[nn.Module, nn.Module, Tensor], tmp_path: Path) -> None:
    ours, _, x = calibrated
    x = x.to(DEVICE)
    with torch.no_grad():
        program = torch.export.export(ours, (x,))
        torch.export.save(program, tmp_path / "model.pt2")
        loaded = torch.export.load(tmp_path / "model.pt2").module()
        assert_close(loaded(x), ours(x))
        state = tree_map_only(Tensor, lambda t: t.device.type, dict(loaded.state_dict()))
        assert set(state.values()) <= {"openreg"}
