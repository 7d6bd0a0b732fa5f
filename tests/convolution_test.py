# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions of all geometries, layouts and dtypes agree with the CPU and do not block."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from tests.differential import assert_same, check, check_error, is_queued, to_device

CHANNELS_LAST = {1: None, 2: torch.channels_last, 3: torch.channels_last_3d}


@dataclass(frozen=True)
class Case:
    """The arguments of a call to torch.convolution."""

    dtype: torch.dtype
    input_sizes: tuple[int, ...]
    weight_sizes: tuple[int, ...]
    bias: bool
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    transposed: bool
    output_padding: list[int]
    groups: int
    input_layout: str
    weight_layout: str

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return torch.convolution(
            x,
            weight,
            bias,
            self.stride,
            self.padding,
            self.dilation,
            self.transposed,
            self.output_padding,
            self.groups,
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(1, 3))

    def each(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=dims, max_size=dims))

    groups = draw(st.integers(1, 2))
    per_input, per_output = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    transposed = draw(st.booleans())
    kernel, stride, padding, dilation = each(1, 3), each(1, 2), each(0, 1), each(1, 2)
    smallest = [
        max(1, d * (k - 1) + 1 - 2 * p) for k, p, d in zip(kernel, padding, dilation, strict=True)
    ]
    # A transposed convolution may have a kernel larger than its input, but not an empty output.
    image = [m + extra for m, extra in zip(smallest, each(0, 4), strict=True)]
    weight = (per_input * groups, per_output) if transposed else (per_output * groups, per_input)
    output_padding = [0] * dims
    if transposed:
        output_padding = [
            min(o, max(s, d) - 1) for o, s, d in zip(each(0, 1), stride, dilation, strict=True)
        ]
    layouts = st.sampled_from(["contiguous", "channels last", "sliced"])
    return Case(
        dtype=draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16])),
        input_sizes=(draw(st.integers(0, 3)), per_input * groups, *image),
        weight_sizes=(*weight, *kernel),
        bias=draw(st.booleans()),
        stride=stride,
        padding=padding,
        dilation=dilation,
        transposed=transposed,
        output_padding=output_padding,
        groups=groups,
        input_layout=draw(layouts),
        weight_layout=draw(layouts),
    )


def _make(sizes: tuple[int, ...], dtype: torch.dtype, layout: str) -> Tensor:
    memory_format = CHANNELS_LAST[len(sizes) - 2]
    if layout == "sliced":
        wide = torch.randn((*sizes[:-1], 2 * sizes[-1] + 1))
        tensor = wide.to(dtype)[..., 1::2]
    else:
        tensor = torch.randn(sizes).to(dtype)
        if layout == "channels last" and memory_format is not None:
            tensor = tensor.contiguous(memory_format=memory_format)
    return tensor.requires_grad_()


@settings(max_examples=250, deadline=None)
@given(cases())
def test_geometries_layouts_dtypes(case: Case) -> None:
    torch.manual_seed(0)
    tensors = [
        _make(case.input_sizes, case.dtype, case.input_layout),
        _make(case.weight_sizes, case.dtype, case.weight_layout),
    ]
    channels = case.weight_sizes[1] * case.groups if case.transposed else case.weight_sizes[0]
    if case.bias:
        tensors.append(torch.randn(channels).to(case.dtype).requires_grad_())
    try:
        case.convolve(*tensors)
    except RuntimeError:
        # The CPU rejects some geometries with empty tensors. The device must raise an error too,
        # but its text may differ. For example, the device cannot even allocate a result of negative
        # size.
        check_error(case.convolve, *tensors, words="")
    else:
        check(case.convolve, *tensors)


def _strides(case: Case, tensors: list[Tensor]) -> list[tuple[int, ...]]:
    """Returns the strides of a result and its gradients, except in dimensions of size 1."""
    result = case.convolve(*tensors)
    gradients = torch.autograd.grad(result, tensors, torch.empty_like(result))
    return [
        tuple(s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1)
        for x in (result, *gradients)
    ]


@settings(max_examples=100, deadline=None)
@given(cases())
def test_fake_tensors_have_the_strides_of_real_ones(case: Case) -> None:
    tensors = [
        _make(case.input_sizes, case.dtype, case.input_layout),
        _make(case.weight_sizes, case.dtype, case.weight_layout),
    ]

    def strides(device: str) -> list[list[tuple[int, ...]]]:
        moved = [to_device(x) if device == "openreg" else x for x in tensors]
        with FakeTensorMode() as mode:
            fakes: list[Tensor] = [mode.from_tensor(x) for x in moved]
            faked = _strides(case, fakes)
        return [_strides(case, moved), faked]

    try:
        expected = strides("cpu")
    except RuntimeError:
        assume(False)  # the CPU does not support the geometry
    # Compare real and fake tensors with real CPU tensors: torch's rule for fake tensors is not
    # exact.
    assert strides("openreg") == expected


def test_traced_graphs_know_the_order_of_channels_last() -> None:
    """The view in this graph is valid only if tracing predicts a channels-last result."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten())
    image = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    expected = model(image)
    model, image = model.to("openreg"), image.to("openreg")
    actual = torch.compile(model, backend="aot_eager", fullgraph=True)(image)
    assert_same(actual, expected)
    actual.square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_gradients_of_some_arguments(wanted: tuple[int, ...]) -> None:
    tensors = [torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3), torch.randn(4)]
    for index in wanted:
        tensors[index].requires_grad_()
    check(functional.conv2d, *tensors)


def test_gradients_of_gradients() -> None:
    x = torch.randn(2, 3, 5, 5, requires_grad=True)
    weight = torch.randn(4, 3, 3, 3, requires_grad=True)

    def penalty(x: Tensor, weight: Tensor) -> Tensor:
        y = functional.conv2d(x, weight, padding=1)
        (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        return gradient.square().sum() * 1e-4

    check(penalty, x, weight)


def test_without_batch_and_with_padding_by_name() -> None:
    x, weight = torch.randn(3, 7, 7), torch.randn(4, 3, 3, 3)
    check(lambda x, w: functional.conv2d(x, w, padding="same", dilation=2), x, weight)
    check(lambda x, w: functional.conv2d(x, w, padding="valid", stride=2), x, weight)


def test_complex_numbers_and_integers() -> None:
    x, weight = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
    check(functional.conv2d, x.to(torch.complex64), weight.to(torch.complex64))
    check(functional.conv2d, (4 * x).long(), (4 * weight).long())


def test_errors_are_those_of_the_cpu_at_the_call() -> None:
    x, weight, bias = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3), torch.randn(4)
    check_error(functional.conv2d, x, weight[:, :2])
    check_error(functional.conv2d, x, weight, bias[:3])
    check_error(functional.conv2d, x[..., :2], weight)
    check_error(functional.conv2d, x[..., :0], weight)
    check_error(lambda x, w: functional.conv2d(x, w, stride=0), x, weight)
    check_error(lambda x, w: functional.conv2d(x, w, groups=2), x, weight)
    check_error(functional.conv2d, x, weight.double(), words="should be the same")
    check_error(functional.conv2d, x, weight, bias.double())
    check_error(functional.conv2d, x > 0, weight > 0)


def test_a_weight_on_the_cpu_is_refused() -> None:
    x = torch.randn(2, 3, 6, 6, device="openreg")
    with pytest.raises(RuntimeError, match=r"(same device|should be the same)"):
        functional.conv2d(x, torch.randn(4, 3, 3, 3))


def test_does_not_wait() -> None:
    assert is_queued(functional.conv2d, torch.randn(2, 3, 16, 16), torch.randn(4, 3, 3, 3))


def test_results_land_on_the_tensors_device() -> None:
    x = torch.randn(1, 3, 6, 6, device="openreg:1", requires_grad=True)
    weight = torch.randn(4, 3, 3, 3, device="openreg:1")
    y = functional.conv2d(x, weight)
    y.sum().backward()
    assert y.device == torch.device("openreg:1")
    assert x.grad is not None
    assert x.grad.device == y.device
