# SPDX-License-Identifier: BSD-3-Clause
"""Tests batch, layer, group, instance and RMS normalization, with gradients and statistics."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from tests.differential import DEVICE, check, check_error, is_queued

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
LAYOUTS = ["contiguous", "channels last", "transposed", "sliced"]

aten = torch.ops.aten


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    # The device runs small kernels on one thread. The CPU would distribute even a few rows over
    # several threads, each with a 16-bit sum, and round differently.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
    sizes[0] += 1  # torch rejects batches that have only one value per channel
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
    # Do not compare strides: torch's formula makes the gradient contiguous on out-of-tree devices.
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


def _merge(parts: list[Tensor], eps: float, **running: Tensor) -> tuple[Tensor, Tensor]:
    """Returns a batch's statistics, merged from the parts as in SyncBatchNorm."""
    each = [torch.batch_norm_stats(part, eps) for part in parts]
    counts = torch.tensor([part.numel() // part.size(1) for part in parts], device=DEVICE)
    return torch.batch_norm_gather_stats_with_counts(
        parts[0],
        torch.stack([mean for mean, _ in each]),
        torch.stack([invstd for _, invstd in each]),
        running.get("mean"),
        running.get("var"),
        0.1,
        eps,
        counts.to(each[0][0].dtype),
    )


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(7, 3), (5, 3, 4), (5, 3, 4, 2)])
def test_parts_of_a_batch_are_normalized_like_the_whole(
    sizes: tuple[int, ...], dtype: torch.dtype, affine: bool
) -> None:
    """Compares the steps of two processes that share a batch with batch_norm on the CPU."""
    torch.manual_seed(0)
    statistics = torch.float64 if dtype == torch.float64 else torch.float32
    whole = (torch.randn(sizes) * 2 + 5).to(dtype).to(statistics).requires_grad_()
    weight = torch.rand(3, dtype=statistics).requires_grad_() if affine else None
    bias = torch.rand(3, dtype=statistics).requires_grad_() if affine else None
    running = torch.zeros(3, dtype=statistics), torch.ones(3, dtype=statistics)
    expected = functional.batch_norm(whole, *running, weight, bias, training=True)
    grad = torch.randn(sizes).to(dtype).to(statistics)
    expected.backward(grad)

    parts = [part.detach().to(DEVICE, dtype) for part in whole.split([2, sizes[0] - 2])]
    grads = [part.to(DEVICE, dtype) for part in grad.split([2, sizes[0] - 2])]
    scale = None if weight is None else weight.detach().to(DEVICE)
    shift = None if bias is None else bias.detach().to(DEVICE)
    moving = {"mean": torch.zeros(3, dtype=statistics), "var": torch.ones(3, dtype=statistics)}
    moving = {name: tensor.to(DEVICE) for name, tensor in moving.items()}
    mean, invstd = _merge(parts, 1e-5, **moving)
    assert mean.dtype == invstd.dtype == statistics
    outputs = [torch.batch_norm_elemt(x, scale, shift, mean, invstd, 1e-5) for x in parts]
    out = torch.empty(0, dtype=dtype, device=DEVICE)
    assert torch.batch_norm_elemt(parts[0], scale, shift, mean, invstd, 1e-5, out=out) is out
    assert torch.equal(out, outputs[0])

    sums = [
        torch.batch_norm_backward_reduce(g, x, mean, invstd, scale, True, affine, affine)
        for g, x in zip(grads, parts, strict=True)
    ]
    sum_dy = torch.stack([each[0] for each in sums]).sum(0)
    sum_dy_xmu = torch.stack([each[1] for each in sums]).sum(0)
    counts = torch.tensor([x.numel() // 3 for x in parts], dtype=torch.int32, device=DEVICE)
    grad_inputs = [
        torch.batch_norm_backward_elemt(g, x, mean, invstd, scale, sum_dy, sum_dy_xmu, counts)
        for g, x in zip(grads, parts, strict=True)
    ]

    tolerance = 2e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-4
    assert whole.grad is not None
    for ours, theirs in [
        (torch.cat(outputs), expected.detach()),
        (torch.cat(grad_inputs), whole.grad),
        (moving["mean"], running[0]),
        (moving["var"], running[1]),
    ]:
        torch.testing.assert_close(
            ours.cpu(), theirs, check_dtype=False, rtol=tolerance, atol=tolerance
        )
    assert {tensor.dtype for tensor in (*outputs, *grad_inputs)} == {dtype}
    for place, parameter in ((2, weight), (3, bias)):
        if parameter is None:
            assert sums[0][place] is None or not sums[0][place].numel()
            continue
        total = sums[0][place] + sums[1][place]
        torch.testing.assert_close(total.cpu(), parameter.grad, rtol=tolerance, atol=tolerance)


def test_gathering_statistics_with_one_count() -> None:
    x = torch.randn(4, 3, 5, device=DEVICE)
    mean, invstd = torch.batch_norm_stats(x, 1e-5)
    both = torch.batch_norm_gather_stats(
        x, torch.stack([mean, mean]), torch.stack([invstd, invstd]), None, None, 0.1, 1e-5, 20
    )
    torch.testing.assert_close(both, (mean, invstd))


def test_sync_batch_norm_runs_ahead() -> None:
    """No operator of SyncBatchNorm makes the host wait for the device."""
    x = torch.randn(4, 3, 5, device=DEVICE)

    def step() -> None:
        mean, invstd = _merge([x[:1], x[1:]], 1e-5)
        torch.batch_norm_elemt(x, None, None, mean, invstd, 1e-5)
        torch.batch_norm_backward_reduce(x, x, mean, invstd, None, True, False, False)
        torch.batch_norm_backward_elemt(x, x, mean, invstd, None, mean, mean, counts)

    counts = torch.tensor([5, 15], dtype=torch.int32, device=DEVICE)
    step()
    torch.openreg.synchronize()
    torch.openreg._sleep(100_000_000)
    step()
    assert not torch.openreg.current_stream().query()
    torch.openreg.synchronize()
