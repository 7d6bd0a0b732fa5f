# SPDX-License-Identifier: BSD-3-Clause
"""Compares nested tensors of strided and jagged layout with those on the CPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

DEVICE = torch.device("openreg:0")
LAYOUTS = (torch.strided, torch.jagged)

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def rows() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, 8, generator=generator) for n in (2, 5, 3)]


def nested(device: str | torch.device, layout: torch.layout, **options: Any) -> Tensor:
    result: Tensor = torch.nested.nested_tensor(rows(), layout=layout, device=device, **options)
    return result


def assert_same(ours: Tensor, theirs: Tensor) -> None:
    assert ours.device == DEVICE
    assert ours.is_nested == theirs.is_nested
    if not theirs.is_nested:
        assert_close(ours.cpu(), theirs)
        return
    assert ours.layout == theirs.layout
    for actual, expected in zip(ours.unbind(), theirs.unbind(), strict=True):
        assert actual.device == DEVICE
        assert actual.shape == expected.shape
        assert_close(actual.cpu(), expected)


OPERATORS: dict[str, Callable[[Tensor], Any]] = {
    "itself": lambda n: n,
    "add": lambda n: n + n,
    "mul number": lambda n: n * 3,
    "mul": lambda n: n * n,
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
    "softmax": lambda n: torch.softmax(n, -1),
    "layer norm": lambda n: nn.LayerNorm(8).to(n.device)(n),
    "clone": torch.clone,
    "detach": torch.detach,
    "padded": lambda n: torch.nested.to_padded_tensor(n, 7.0),
    "transpose": lambda n: n.transpose(1, 2),
    "double": lambda n: n.double(),
    "linear": lambda n: nn.functional.linear(n, torch.eye(8, device=n.device)[:3]),
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str, layout: torch.layout) -> None:
    function = OPERATORS[name]
    assert_same(function(nested(DEVICE, layout)), function(nested("cpu", layout)))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_there_and_back(layout: torch.layout) -> None:
    ours = nested("cpu", layout).to(DEVICE)
    assert_same(ours, nested("cpu", layout))
    for actual, expected in zip(ours.cpu().unbind(), rows(), strict=True):
        assert torch.equal(actual, expected)
    assert ours.to("openreg:1").device == torch.device("openreg:1")


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_of_device_tensors(layout: torch.layout) -> None:
    parts = [row.to(DEVICE) for row in rows()]
    assert_same(torch.nested.as_nested_tensor(parts, layout=layout), nested("cpu", layout))


def test_unbound_rows_share_memory() -> None:
    n = nested(DEVICE, torch.strided)
    n.unbind()[1].zero_()
    assert [bool(row.any()) for row in n.unbind()] == [True, False, True]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_backward(layout: torch.layout) -> None:
    def gradient(device: str | torch.device) -> Tensor:
        n = nested(device, layout, requires_grad=True)
        torch.nested.to_padded_tensor(torch.sin(n) * 2, 0.0).sum().backward()
        assert n.grad is not None
        return n.grad

    assert_same(gradient(DEVICE), gradient("cpu"))


def test_attention_of_jagged_sequences() -> None:
    def attend(device: str | torch.device) -> Tensor:
        heads = nested(device, torch.jagged).unflatten(-1, [2, 4]).transpose(1, 2)
        result: Tensor = nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return result.transpose(1, 2)

    assert_same(attend(DEVICE), attend("cpu"))


def test_an_encoder_skips_padding() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()
    padded = torch.nested.to_padded_tensor(nested("cpu", torch.strided), 0.0)
    mask = padded.abs().sum(-1) == 0
    with torch.inference_mode():
        theirs = encoder(padded, src_key_padding_mask=mask)
        ours = encoder.to(DEVICE)(padded.to(DEVICE), src_key_padding_mask=mask.to(DEVICE))
    assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)
