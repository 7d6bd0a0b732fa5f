# SPDX-License-Identifier: BSD-3-Clause
"""Compares quantized tensors, per tensor and per channel, with those on the CPU."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

DEVICE = torch.device("openreg:0")
DTYPES = (torch.qint8, torch.quint8, torch.qint32)
SCALES = torch.tensor([0.1, 0.2, 0.5], dtype=torch.float64)
ZEROS = torch.tensor([0, 1, 2])

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per")


def numbers() -> Tensor:
    return torch.linspace(-1, 3, 24).reshape(2, 3, 4)


def whole(device: str | torch.device, dtype: torch.dtype = torch.quint8) -> Tensor:
    result: Tensor = torch.quantize_per_tensor(numbers().to(device), 0.1, 2, dtype)
    return result


def channels(device: str | torch.device, dtype: torch.dtype = torch.qint8) -> Tensor:
    result: Tensor = torch.quantize_per_channel(
        numbers().to(device), SCALES.to(device), ZEROS.to(device), 1, dtype
    )
    return result


def assert_same(ours: Tensor, theirs: Tensor) -> None:
    assert ours.device == DEVICE
    assert ours.dtype == theirs.dtype
    assert ours.is_quantized == theirs.is_quantized
    if not theirs.is_quantized:
        assert_close(ours.cpu(), theirs)
        return
    assert ours.qscheme() == theirs.qscheme()
    assert ours.stride() == theirs.stride()
    assert torch.equal(ours.int_repr().cpu(), theirs.int_repr())
    if theirs.qscheme() == torch.per_tensor_affine:
        assert ours.q_scale() == theirs.q_scale()
        assert ours.q_zero_point() == theirs.q_zero_point()
    else:
        assert ours.q_per_channel_axis() == theirs.q_per_channel_axis()
        assert torch.equal(ours.q_per_channel_scales().cpu(), theirs.q_per_channel_scales())
        assert torch.equal(
            ours.q_per_channel_zero_points().cpu(), theirs.q_per_channel_zero_points()
        )
    assert_close(ours.dequantize().cpu(), theirs.dequantize())


@pytest.mark.parametrize("make", [whole, channels])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_quantize_and_dequantize(make: Callable[..., Tensor], dtype: torch.dtype) -> None:
    assert_same(make(DEVICE, dtype), make("cpu", dtype))


@pytest.mark.parametrize("make", [whole, channels])
def test_there_and_back(make: Callable[..., Tensor]) -> None:
    theirs = make("cpu")
    ours = theirs.to(DEVICE)
    assert torch.equal(ours.int_repr().cpu(), theirs.int_repr())
    back = ours.cpu()
    assert back.qscheme() == theirs.qscheme()
    assert torch.equal(back.int_repr(), theirs.int_repr())
    assert_close(back.dequantize(), theirs.dequantize())


OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "clone": torch.clone,
    "view": lambda q: q.view(6, 4),
    "transpose": lambda q: q.transpose(0, 2),
    "select": lambda q: q[1],
    "slice": lambda q: q[:, 1:],
    "reshape of a transpose": lambda q: q.transpose(0, 1).reshape(3, 8),
    "max": torch.max,
    "max pool": lambda q: torch.nn.functional.max_pool2d(q[None], 2),
    "average pool": lambda q: torch.nn.functional.adaptive_avg_pool2d(q[None], 1),
    "cat": lambda q: torch.cat([q, q]),
    "mean": lambda q: q.mean(dim=[1, 2]),
    "hardsigmoid": torch.nn.functional.hardsigmoid,
    "interpolate": lambda q: torch.nn.functional.interpolate(q[None], scale_factor=2.0),
    "comparison": lambda q: q > 0.5,
    "empty_like, copied": lambda q: torch.empty_like(q).copy_(q),
    "requantized by copy": lambda q: q.clone().copy_(q.dequantize() * 0.5),
    "added": lambda q: torch.ops.quantized.add(q, q, 0.2, 1),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    function = OPERATORS[name]
    assert_same(function(whole(DEVICE)), function(whole("cpu")))


def test_clone_per_channel() -> None:
    assert_same(channels(DEVICE).clone(), channels("cpu").clone())


@pytest.mark.parametrize(("to", "of"), [(DEVICE, DEVICE), (DEVICE, "cpu"), ("cpu", DEVICE)])
def test_copies_bring_their_quantizer(to: str | torch.device, of: str | torch.device) -> None:
    target = whole(to)
    source = torch.quantize_per_tensor(numbers().to(of) * 2, 0.3, 5, torch.quint8)
    target.copy_(source)
    assert target.q_scale() == pytest.approx(0.3)
    assert_close(target.dequantize().cpu(), source.dequantize().cpu())
    per_channel = channels(to)
    per_channel.copy_(
        torch.quantize_per_channel(
            numbers().to(of), SCALES.to(of) * 2, ZEROS.to(of), 1, torch.qint8
        )
    )
    assert_close(per_channel.q_per_channel_scales().cpu(), SCALES * 2)
    assert per_channel.q_per_channel_scales().device == per_channel.device


def test_copies_between_other_kinds_are_refused() -> None:
    for bad in (channels(DEVICE), whole(DEVICE, torch.qint32), numbers().double().to(DEVICE)):
        with pytest.raises(RuntimeError, match=r"[Qq]uantized [Cc]opy"):
            whole(DEVICE).copy_(bad)
    with pytest.raises(NotImplementedError, match="several elements per byte"):
        torch.quantize_per_channel(
            torch.rand(4, 8), torch.full((4,), 0.1), torch.zeros(4), 0, torch.quint4x2
        ).to(DEVICE)


def test_resize_deepcopy_and_save(tmp_path: Path) -> None:
    ours = whole(DEVICE)
    copied = copy.deepcopy(ours)
    assert_same(copied, whole("cpu"))
    torch.save(ours, tmp_path / "q.pt")
    assert_same(torch.load(tmp_path / "q.pt", weights_only=True), whole("cpu"))
    assert ours.resize_(40, 40).shape == (40, 40)
    assert torch.empty_like(copied, device="cpu").device.type == "cpu"


def test_views_share_memory() -> None:
    q = whole(DEVICE)
    q[0].fill_(3.0)
    assert q[0].dequantize().cpu().unique().tolist() == pytest.approx([3.0])


@pytest.mark.parametrize("kind", ["whole", "channels"])
def test_fake_quantization_has_gradients(kind: str) -> None:
    def gradient(device: str | torch.device) -> Tensor:
        x = numbers().to(device).requires_grad_()
        if kind == "whole":
            y = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 15)
        else:
            y = torch.fake_quantize_per_channel_affine(
                x, SCALES.float().to(device), ZEROS.int().to(device), 1, 0, 15
            )
        y.pow(2).sum().backward()
        assert x.grad is not None
        return x.grad

    assert_close(gradient(DEVICE).cpu(), gradient("cpu"))


def test_device_of_the_result() -> None:
    assert whole("openreg:1").device == torch.device("openreg:1")
    assert channels("openreg:1").q_per_channel_scales().device == torch.device("openreg:1")
    assert whole(DEVICE).to("openreg:1").int_repr().device == torch.device("openreg:1")
