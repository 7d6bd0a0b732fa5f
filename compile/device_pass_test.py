# SPDX-License-Identifier: BSD-3-Clause
"""Runs the device pass, which changes a graph last, on graphs of FakeTensors."""

from collections.abc import Callable
from typing import Any

import absent_device  # noqa: F401
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch_openreg_compile.device_pass import DevicePass

aten = torch.ops.aten


def changed(
    function: Callable[..., Any], *shapes: tuple[int, ...], device: str = "openreg"
) -> fx.GraphModule:
    """Return a function's graph after the device pass."""
    with FakeTensorMode():
        inputs = [torch.empty(shape, device=device) for shape in shapes]
        gm = make_fx(function)(*inputs)
    DevicePass()(gm)
    gm.graph.lint()
    return gm


def kept(gm: fx.GraphModule) -> list[str]:
    return [node.name for node in gm.graph.nodes if node.meta.get("inductor_realize_to_strides")]


def test_heavy_results_with_several_uses_are_kept() -> None:
    def function(x: Tensor) -> Tensor:
        once = x.exp().sum()
        twice = x.tanh()
        later = x.sigmoid() + 1
        cheap = x + 2
        return once + twice * twice.sum() + later * later.sum() + cheap * cheap.sum()

    assert kept(changed(function, (4,))) == ["tanh", "add"]
    assert kept(changed(function, (4,), device="cpu")) == []


@pytest.mark.parametrize("operator", [torch.argmax, torch.argmin])
@pytest.mark.parametrize("keepdim", [False, True])
def test_argmax_of_a_whole_tensor_is_flattened(
    operator: Callable[..., Tensor], keepdim: bool
) -> None:
    gm = changed(lambda x: operator(x.t(), keepdim=keepdim), (3, 5))
    (extremum,) = (node for node in gm.graph.nodes if "arg" in str(node.target))
    assert extremum.args[0].target is aten.reshape.default
    (result,) = gm.graph.output_node().all_input_nodes
    assert tuple(result.meta["val"].shape) == ((1, 1) if keepdim else ())
    x = torch.randn(3, 5)
    assert torch.equal(gm(x), operator(x.t(), keepdim=keepdim))


def test_argmax_of_one_dimension_is_unchanged() -> None:
    gm = changed(lambda x: x.t().argmax(1), (3, 5))
    assert [node.target for node in gm.graph.nodes if "reshape" in str(node.target)] == []


def test_convolutions_are_replaced() -> None:
    def function(x: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(x, weight)

    targets = [str(n.target) for n in changed(function, (1, 2, 5, 5), (3, 2, 3, 3)).graph.nodes]
    assert "openreg_compile.convolution.default" in targets
    on_host = changed(function, (1, 2, 5, 5), (3, 2, 3, 3), device="cpu")
    assert "aten.convolution.default" in [str(node.target) for node in on_host.graph.nodes]


@pytest.mark.parametrize(
    ("dtype", "order"),
    [(torch.float32, torch.channels_last), (torch.float64, torch.contiguous_format)],
)
def test_memory_format_of_a_convolution_is_known(
    dtype: torch.dtype, order: torch.memory_format
) -> None:
    with FakeTensorMode():
        x = torch.empty(1, 2, 5, 5, dtype=dtype, device="openreg")
        weight = torch.empty(3, 2, 3, 3, dtype=dtype, device="openreg")
        arguments = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        result = torch.ops.openreg_compile.convolution(x, weight, None, *arguments)
        of_x, of_weight, of_bias = torch.ops.openreg_compile.convolution_backward(
            result, x, weight, None, *arguments, [True, True, False]
        )
    assert result.shape == (1, 3, 3, 3)
    assert result.is_contiguous(memory_format=order)
    assert of_x.shape == x.shape
    assert of_x.is_contiguous(memory_format=order)
    assert of_weight.shape == weight.shape
    assert of_weight.is_contiguous()
    assert of_bias is None


def test_uuid_is_stable() -> None:
    assert DevicePass().uuid() == DevicePass().uuid()
    assert len(DevicePass().uuid()) >= 32


def test_int8_matrices_are_multiplied_directly() -> None:
    def function(x: Tensor, y: Tensor, dtype: torch.dtype) -> Tensor:
        return x.to(dtype).to(torch.int32) @ y.to(torch.int8).to(torch.int32)

    def product(device: str, dtype: torch.dtype) -> fx.Node:
        gm = changed(lambda x, y: function(x, y, dtype), (4, 8), (8, 2), device=device)
        node: fx.Node
        (node,) = (n for n in gm.graph.nodes if "mm" in str(n.target))
        return node

    node = product("openreg", torch.int8)
    assert node.target is aten._int_mm.default
    assert [factor.meta["val"].dtype for factor in node.all_input_nodes] == [torch.int8] * 2
    assert product("openreg", torch.int16).target is aten.mm.default
    assert product("cpu", torch.int8).target is aten.mm.default
