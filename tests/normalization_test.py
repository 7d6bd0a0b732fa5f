# SPDX-License-Identifier: BSD-3-Clause
"""Batch, layer, group, instance and RMS normalization, with their gradients and statistics."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from tests.differential import check, check_error, is_queued

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
LAYOUTS = ["contiguous", "channels last", "transposed", "sliced"]

aten = torch.ops.aten


def _data(sizes: list[int], dtype: torch.dtype, layout: str) -> Tensor:
    if layout == "sliced":
        tensor = torch.randn(*sizes[:-1], 2 * sizes[-1]).to(dtype)[..., ::2]
    elif layout == "transposed":
        tensor = torch.randn(sizes[::-1]).to(dtype).permute(*range(len(sizes))[::-1])
    else:
        tensor = torch.randn(sizes).to(dtype)
        if layout == "channels last" and len(sizes) in (4, 5):
            last = torch.channels_last if len(sizes) == 4 else torch.channels_last_3d
            tensor = tensor.contiguous(memory_format=last)
    return tensor.requires_grad_()


def _parameter_dtype(data: torch.dtype, mixed: bool) -> torch.dtype:
    return torch.float32 if mixed and data in (torch.bfloat16, torch.float16) else data


@settings(max_examples=120, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=5),
    dtype=st.sampled_from(DTYPES),
    mixed=st.booleans(),
    affine=st.booleans(),
    running=st.booleans(),
    training=st.booleans(),
    layout=st.sampled_from(LAYOUTS),
)
def test_batch_norm(
    sizes: list[int],
    dtype: torch.dtype,
    mixed: bool,
    affine: bool,
    running: bool,
    training: bool,
    layout: str,
) -> None:
    torch.manual_seed(0)
    sizes[0] += 1  # torch refuses one value a channel
    parameter = _parameter_dtype(dtype, mixed)
    channels = sizes[1]
    tensors: list[Any] = [_data(sizes, dtype, layout)]
    if affine:
        tensors += [
            torch.rand(channels).to(parameter).requires_grad_(),
            torch.randn(channels).to(parameter).requires_grad_(),
        ]
    else:
        tensors += [None, None]
    if running or not training:
        tensors += [torch.randn(channels).to(parameter), torch.rand(channels).to(parameter) + 0.5]
    else:
        tensors += [None, None]

    def normalize(
        x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
    ) -> Tensor:
        return functional.batch_norm(x, mean, variance, weight, bias, training, 0.3, 1e-4)

    check(normalize, *tensors)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_batch_norm_under_its_other_names(layout: str, training: bool) -> None:
    x = _data([3, 4, 5, 2], torch.float32, layout).detach()
    weight, bias, mean, variance = torch.rand(4), torch.randn(4), torch.randn(4), torch.rand(4)
    check(
        lambda *a: aten._native_batch_norm_legit(*a, training, 0.1, 1e-5),
        x,
        weight,
        bias,
        mean,
        variance,
    )
    check(lambda *a: aten._native_batch_norm_legit.no_stats(*a, True, 0.1, 1e-5), x, weight, bias)
    check(lambda *a: aten._batch_norm_with_update(*a, 0.1, 1e-5), x, weight, bias, mean, variance)
    check(lambda *a: aten._batch_norm_no_update(*a, 0.1, 1e-5), x, weight, bias, mean, variance)
    gradient = torch.randn_like(x)
    check(
        lambda *a: (
            aten.batch_norm_backward(
                *a, training, 1e-5, [True, False, True], torch.empty(0, dtype=torch.uint8)
            )
            if a[0].device.type == "cpu"
            else aten.batch_norm_backward(
                *a,
                training,
                1e-5,
                [True, False, True],
                torch.empty(0, dtype=torch.uint8, device="openreg"),
            )
        ),
        gradient,
        x,
        weight,
        mean,
        variance,
        torch.randn(4),
        torch.rand(4),
    )


def test_instance_norm() -> None:
    x = torch.randn(2, 3, 4, 5, requires_grad=True)
    check(lambda x, w, b: functional.instance_norm(x, weight=w, bias=b), x, torch.rand(3), None)


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    normalized=st.integers(1, 3),
    dtype=st.sampled_from(DTYPES),
    mixed=st.booleans(),
    affine=st.sampled_from(["none", "weight", "both"]),
    layout=st.sampled_from(LAYOUTS),
)
def test_layer_norm(
    sizes: list[int], normalized: int, dtype: torch.dtype, mixed: bool, affine: str, layout: str
) -> None:
    torch.manual_seed(0)
    shape = sizes[-min(normalized, len(sizes)) :]
    sizes = sizes[: len(sizes) - len(shape)] + [max(n, 1) for n in shape]
    shape = sizes[len(sizes) - len(shape) :]
    parameter = _parameter_dtype(dtype, mixed)
    tensors: list[Any] = [_data(sizes, dtype, layout), None, None]
    if affine != "none":
        tensors[1] = torch.rand(shape).to(parameter).requires_grad_()
    if affine == "both":
        tensors[2] = torch.randn(shape).to(parameter).requires_grad_()
    check(lambda x, w, b: functional.layer_norm(x, shape, w, b), *tensors)


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    groups=st.integers(1, 3),
    per_group=st.integers(1, 3),
    dtype=st.sampled_from(DTYPES),
    mixed=st.booleans(),
    affine=st.booleans(),
    layout=st.sampled_from(LAYOUTS),
)
def test_group_norm(
    sizes: list[int],
    groups: int,
    per_group: int,
    dtype: torch.dtype,
    mixed: bool,
    affine: bool,
    layout: str,
) -> None:
    torch.manual_seed(0)
    channels = groups * per_group
    sizes = [sizes[0] + 1, channels, *sizes[1:]]
    parameter = _parameter_dtype(dtype, mixed)
    tensors: list[Any] = [_data(sizes, dtype, layout), None, None]
    if affine:
        tensors[1] = torch.rand(channels).to(parameter).requires_grad_()
        tensors[2] = torch.randn(channels).to(parameter).requires_grad_()
    # torch's formula makes the gradient contiguous on all devices but its own.
    check(lambda x, w, b: functional.group_norm(x, groups, w, b), *tensors, strides=False)
    check(lambda x, w, b: functional.group_norm(x, groups, w, b), *tensors, backward=False)


def test_rms_norm() -> None:
    x = torch.randn(2, 3, 8, requires_grad=True)
    check(lambda x, w: functional.rms_norm(x, [8], w), x, torch.rand(8, requires_grad=True))


def test_gradients_of_gradients() -> None:
    x = torch.randn(4, 3, 5, requires_grad=True)

    def penalty(normalize: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def function(x: Tensor) -> Tensor:
            (gradient,) = torch.autograd.grad(normalize(x).pow(3).sum(), x, create_graph=True)
            return gradient.square().sum()

        return function

    check(penalty(lambda x: functional.layer_norm(x, [5])), x)
    check(penalty(lambda x: functional.batch_norm(x, None, None, training=True)), x)


def test_empty_batches_sum_to_zero() -> None:
    x = torch.randn(0, 4, requires_grad=True)
    weight, bias = torch.rand(4, requires_grad=True), torch.rand(4, requires_grad=True)
    check(lambda x, w, b: functional.layer_norm(x, [4], w, b), x, weight, bias)
    mean, variance = torch.zeros(4), torch.ones(4)
    check(
        lambda x, m, v, w, b: functional.batch_norm(x, m, v, w, b), x, mean, variance, weight, bias
    )


def test_errors_are_those_of_the_cpu_at_the_call() -> None:
    x, three, double = torch.randn(2, 3, 4), torch.ones(3), torch.ones(3).double()
    check_error(lambda x: functional.layer_norm(x, [3]), x)
    check_error(lambda x, w: functional.layer_norm(x, [4], w), x, three)
    check_error(lambda x: functional.layer_norm(x, [4]), x.long())
    check_error(lambda x, w: functional.layer_norm(x, [4], w), x, torch.ones(4).double())
    check_error(lambda x, w: functional.batch_norm(x, None, None, w, training=True), x, double)
    check_error(lambda x: functional.batch_norm(x, None, None, training=True), x.long())
    check_error(lambda x, m: functional.batch_norm(x, m, m), x, torch.ones(4))
    check_error(lambda x: aten.native_batch_norm(x, *[None] * 4, True, 0.1, 1e-5), x[0, 0])
    check_error(lambda x: aten.native_batch_norm(x, *[None] * 4, True, 0.1, 1e-5), x[:, :, :0])
    check_error(lambda x: functional.group_norm(x, 2), x)
    check_error(lambda x: torch.native_group_norm(x, None, None, 2, 3, 4, 2, 1e-5), x)
    check_error(lambda x, w: torch.native_group_norm(x, w, None, 2, 3, 4, 3, 1e-5), x, x[0, 0])
    check_error(lambda x: functional.group_norm(x, 3), x.long())


def test_does_not_wait() -> None:
    x = torch.randn(4, 8, 16)
    assert is_queued(lambda x: functional.layer_norm(x, [16]), x)
    assert is_queued(lambda x: functional.group_norm(x, 4), x)
    assert is_queued(lambda x: functional.batch_norm(x, None, None, training=True), x)
