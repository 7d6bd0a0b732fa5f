# SPDX-License-Identifier: BSD-3-Clause
"""Tests embeddings and selections: index_select, where, x[i], masks, data-dependent errors."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._pytree import tree_map_only

from tests.differential import check, check_error, is_queued, to_device
from tests.graph_capture import capture

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@settings(max_examples=100, deadline=None)
@given(
    rows=st.integers(1, 6),
    width=st.integers(1, 5),
    indices=st.lists(st.integers(0, 5), max_size=8),
    padding=st.booleans(),
    scaled=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    index_dtype=st.sampled_from([torch.int64, torch.int32]),
    columns=st.booleans(),
)
def test_embedding(
    rows: int,
    width: int,
    indices: list[int],
    padding: bool,
    scaled: bool,
    dtype: torch.dtype,
    index_dtype: torch.dtype,
    columns: bool,
) -> None:
    torch.manual_seed(0)
    weight = torch.randn(rows, width).to(dtype).requires_grad_()
    index = torch.tensor([i % rows for i in indices], dtype=index_dtype)
    if columns:
        index = index.unsqueeze(1).expand(-1, 2)
    check(
        lambda i, w: functional.embedding(
            i, w, padding_idx=0 if padding else None, scale_grad_by_freq=scaled
        ),
        index,
        weight,
    )


def test_embedding_with_a_largest_norm() -> None:
    check(
        lambda i, w: functional.embedding(i, w, max_norm=0.5),
        torch.tensor([1, 2, 1]),
        torch.randn(4, 3),
    )


MODES = ("sum", "mean", "max")


@settings(max_examples=150, deadline=None)
@given(
    rows=st.integers(1, 6),
    width=st.integers(1, 40),
    bags=st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=5),
    mode=st.sampled_from(MODES),
    flags=st.tuples(*[st.booleans()] * 5),
    dtype=st.sampled_from(DTYPES),
    index_dtypes=st.tuples(*[st.sampled_from([torch.int64, torch.int32])] * 2),
)
def test_embedding_bag(
    rows: int,
    width: int,
    bags: list[list[int]],
    mode: str,
    flags: tuple[bool, ...],
    dtype: torch.dtype,
    index_dtypes: tuple[torch.dtype, torch.dtype],
) -> None:
    last, padding, weighted, scaled, transposed = flags
    weighted = weighted and mode == "sum"
    weight = torch.randn(width, rows).t() if transposed else torch.randn(rows, width)
    flat = [i % rows for bag in bags for i in bag]
    starts = [sum(map(len, bags[:i])) for i in range(len(bags) + last)]
    tensors = [
        torch.tensor(flat, dtype=index_dtypes[0]),
        weight.to(dtype).requires_grad_(),
        torch.tensor(starts, dtype=index_dtypes[1]),
    ]
    if weighted:
        tensors.append(torch.rand(len(flat)).to(dtype).requires_grad_())

    def function(i: Tensor, w: Tensor, o: Tensor, *per_sample_weights: Tensor) -> Tensor:
        return functional.embedding_bag(
            i,
            w,
            o,
            mode=mode,
            include_last_offset=last,
            padding_idx=0 if padding else None,
            per_sample_weights=per_sample_weights[0] if per_sample_weights else None,
            scale_grad_by_freq=scaled and mode != "max",
        )

    check(function, *tensors)


@pytest.mark.parametrize("mode", MODES)
def test_results_of_embedding_bag_are_those_of_an_accelerator(mode: str) -> None:
    """Real results have the sizes of fake ones, whichever mode or CPU fast path is used."""
    weight = torch.randn(5, 3, device="openreg")
    index = torch.tensor([0, 1, 4, 2], device="openreg", dtype=torch.int32)
    offsets = torch.tensor([0, 0, 2, 4], device="openreg")
    arguments = weight, index, offsets, False, MODES.index(mode), False, None, True
    for function in (torch._embedding_bag, torch._embedding_bag_forward_only):
        real = function(*arguments)
        with FakeTensorMode() as fake:
            expected = function(*tree_map_only(Tensor, fake.from_tensor, arguments))
        assert [(x.shape, x.dtype) for x in real] == [(x.shape, x.dtype) for x in expected]
        assert real[1].tolist() == [1, 1, 2, 2]
        if mode != "sum":
            assert real[2].tolist() == [0, 2, 2, 0]


def test_sparse_gradient_of_embedding_bag() -> None:
    index, offsets = torch.tensor([0, 1, 1, 2, 4, 0]), torch.tensor([0, 2, 2])
    gradients = []
    weight = torch.randn(5, 3)
    grad = torch.randn(3, 3)
    for device in ("cpu", "openreg"):
        w = weight.detach().to(device).requires_grad_()
        for mode in ("sum", "mean"):
            functional.embedding_bag(
                index.to(device), w, offsets.to(device), mode=mode, sparse=True
            ).backward(grad.to(device))
        assert w.grad is not None
        assert w.grad.is_sparse
        gradients.append(w.grad.to_dense().cpu())
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("mode", MODES)
def test_training_with_bags_is_captured(mode: str) -> None:
    weight = torch.randn(6, 3)
    index, offsets = torch.tensor([0, 1, 1, 2]), torch.tensor([0, 2])
    others = torch.tensor([5, 4, 0, 0]), torch.tensor([0, 1])
    w = weight.to("openreg").requires_grad_()
    i, o = index.to("openreg"), offsets.to("openreg")

    def step() -> tuple[Tensor, Tensor]:
        result = functional.embedding_bag(i, w, o, mode=mode)
        (gradient,) = torch.autograd.grad((result * result).sum(), w)
        return result, gradient

    with torch.openreg.fallback.policy("error"):
        graph, results = capture(step)
    for now, then in zip((i, o), others, strict=True):
        now.copy_(then)
    graph.replay()
    expected = weight.requires_grad_()
    result = functional.embedding_bag(others[0], expected, others[1], mode=mode)
    (gradient,) = torch.autograd.grad((result * result).sum(), expected)
    torch.testing.assert_close(results[0].cpu(), result)
    torch.testing.assert_close(results[1].cpu(), gradient)


def test_wrong_bags_are_refused_at_the_call() -> None:
    weight, index, offsets = torch.randn(5, 3), torch.tensor([0, 1, 4, 2]), torch.tensor([0, 2])
    bag = torch._embedding_bag
    check_error(lambda w, i, o: bag(w, i, o[None]), weight, index, offsets)
    check_error(lambda w, i, o: bag(w[0], i, o), weight, index, offsets)
    check_error(lambda w, i, o: bag(w, i, o, False, 3), weight, index, offsets)
    check_error(
        lambda w, i, o: bag(w, i, o[:0], False, 0, False, None, True), weight, index, offsets
    )
    check_error(lambda w, i, o: bag(w, i, o, False, 1, False, w[:4, 0]), weight, index, offsets)
    for words, change in {
        "scalar types: Long, Int": (weight, index.float(), offsets),
        "Half, BFloat16, Float, Double": (weight.long(), index, offsets),
    }.items():
        check_error(bag, *change, words=words)
    for weights in (torch.rand(3), torch.rand(2, 2), torch.rand(4).double()):
        with pytest.raises(RuntimeError, match="per_sample_weights"):
            bag(
                to_device(weight),
                to_device(index),
                to_device(offsets),
                per_sample_weights=to_device(weights),
            )


@pytest.mark.parametrize(
    ("index", "offsets", "words"),
    [
        ([0, 5], [0, 1], "Index 1 of input takes value 5"),
        ([0, 1], [1, 1], r"offsets\[0\] has to be 0"),
        ([0, 1], [0, 3], r"offsets\[-1\] can ?not be greater than input's length 2"),
    ],
)
def test_bags_that_only_the_data_shows_to_be_wrong(
    index: list[int], offsets: list[int], words: str
) -> None:
    weight = torch.randn(5, 3, device="openreg")
    arguments = [torch.tensor(numbers, device="openreg") for numbers in (index, offsets)]
    functional.embedding_bag(arguments[0], weight, arguments[1])
    with pytest.raises((RuntimeError, IndexError), match=words):
        torch.openreg.synchronize()


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    mask_dims=st.integers(1, 3),
    density=st.sampled_from([0.0, 0.4, 1.0]),
    kind=st.sampled_from(["number", "0-dim", "0-dim on the CPU", "one", "rows", "all", "too few"]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool]),
    accumulate=st.booleans(),
    transposed=st.booleans(),
)
def test_writing_where_a_mask_is_set(
    sizes: list[int],
    mask_dims: int,
    density: float,
    kind: str,
    dtype: torch.dtype,
    accumulate: bool,
    transposed: bool,
) -> None:
    x = (4 * torch.randn(sizes)).to(dtype)
    x = x.mT if transposed and len(sizes) > 1 else x
    mask = torch.rand(x.shape[:mask_dims]) < density
    count, rest = int(mask.sum()), x.shape[mask.dim() :]
    values: Any = {
        "number": 3,
        "0-dim": torch.tensor(2).to(dtype),
        "0-dim on the CPU": torch.tensor(2).to(dtype),
        "one": torch.ones(1).to(dtype),
        "rows": torch.randn(rest).to(dtype),
        "all": (4 * torch.randn(count, *rest)).to(dtype),
        "too few": torch.ones(count + 2, *rest).to(dtype),
    }[kind]

    def write(x: Tensor, mask: Tensor, values: Any) -> None:
        if kind == "0-dim on the CPU":
            values = values.cpu()
        if accumulate and isinstance(values, Tensor) and dtype != torch.bool:
            x.index_put_((mask,), values, accumulate=True)
        else:
            x[mask] = values

    if kind != "too few":
        check(write, x, mask, values)
        return
    with pytest.raises((RuntimeError, IndexError), match="shape mismatch"):
        write(x.clone(), mask, values)

    def write_and_wait() -> None:
        write(to_device(x), to_device(mask), to_device(values))
        torch.openreg.synchronize()

    # The device reports this error later, because only the kernel counts the selected elements.
    with pytest.raises((RuntimeError, IndexError), match="shape mismatch"):
        write_and_wait()


@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.uint8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_writing_where_a_mask_is_set_does_not_wait_and_is_captured(
    dtype: torch.dtype, mask_dtype: torch.dtype
) -> None:
    mask = torch.tensor([1, 0, 1], dtype=mask_dtype)
    for value in (2, torch.tensor(2).to(dtype), torch.tensor([2, 3]).to(dtype)):
        x = torch.zeros(3, dtype=dtype, device="openreg")
        there = mask.to("openreg")
        given_value = value.to("openreg") if isinstance(value, Tensor) else value
        x[there] = given_value  # warm-up: the first call may wait
        torch.openreg.synchronize()
        torch.openreg._sleep(200_000_000)
        x[there] = given_value
        assert not torch.openreg.current_stream().query()
        expected = torch.zeros(3, dtype=dtype)
        expected[mask.bool()] = value
        assert torch.equal(x.cpu(), expected)

        def write(x: Tensor = x, there: Tensor = there, value: Any = given_value) -> None:
            x[there] = value

        graph, _ = capture(write)
        x.zero_()
        there.copy_(torch.tensor([False, True, True]))
        graph.replay()
        expected = torch.zeros(3, dtype=dtype)
        expected[1:] = value
        assert torch.equal(x.cpu(), expected)


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), max_size=4),
    dim=st.integers(-4, 3),
    count=st.integers(0, 5),
    index_dtype=st.sampled_from([torch.int64, torch.int32]),
    dtype=st.sampled_from([*DTYPES, torch.int64, torch.bool, torch.complex64]),
    transposed=st.booleans(),
)
def test_index_select(
    sizes: list[int],
    dim: int,
    count: int,
    index_dtype: torch.dtype,
    dtype: torch.dtype,
    transposed: bool,
) -> None:
    dims = max(len(sizes), 1)
    dim %= dims
    x = (4 * torch.randn(sizes)).to(dtype)
    if transposed and len(sizes) > 1:
        x = x.transpose(0, -1)
    count = count if sizes else 1
    index = torch.randint(0, x.shape[dim] if sizes else 1, (count,), dtype=index_dtype)
    if dtype.is_floating_point:
        x = x.requires_grad_()
    check(lambda x, i: x.index_select(dim, i), x, index)


def test_index_select_to_a_given_tensor() -> None:
    x, index, out = torch.randn(3, 4), torch.tensor([2, 0]), torch.empty(2, 4)
    check(lambda x, i, o: torch.index_select(x, 0, i, out=o), x, index, out)
    wide = torch.empty(4, 4)[::2]
    check(lambda x, i, o: torch.index_select(x, 0, i, out=o), x, index, wide)


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 4), max_size=4),
    shrunk=st.tuples(*[st.lists(st.booleans(), min_size=4, max_size=4)] * 3),
    left=st.sampled_from([*DTYPES, torch.int64]),
    right=st.sampled_from([*DTYPES, torch.int64]),
    layouts=st.tuples(*[st.booleans()] * 3),
)
def test_where(
    sizes: list[int],
    shrunk: tuple[list[bool], ...],
    left: torch.dtype,
    right: torch.dtype,
    layouts: tuple[bool, ...],
) -> None:
    torch.manual_seed(0)

    def make(ones: list[bool], transposed: bool) -> Tensor:
        own = [1 if one else n for n, one in zip(sizes, ones, strict=False)]
        return (
            torch.randn(own[::-1]).permute(tuple(range(len(own)))[::-1])
            if transposed
            else (torch.randn(own))
        )

    condition, x, y = (make(s, t) for s, t in zip(shrunk, layouts, strict=True))
    x, y = (4 * x).to(left), (4 * y).to(right)
    for tensor in (x, y):
        if tensor.dtype.is_floating_point:
            tensor.requires_grad_()
    check(torch.where, condition > 0, x, y)


def test_where_with_numbers_and_to_a_given_tensor() -> None:
    condition, x = torch.randn(3, 4) > 0, torch.randn(3, 4)
    check(lambda c, x: torch.where(c, x, 0), condition, x)
    check(lambda c, x: torch.where(c, 2.5, x), condition, x.long())
    check(lambda c: torch.where(c, 1, 2.0), condition)
    check(lambda c, x, o: torch.where(c, x, x + 1, out=o), condition, x, torch.empty(3, 4).t().t())
    check(lambda c, x, o: torch.where(c, x, x + 1, out=o), condition, x, torch.empty(0))
    # The program may change a 0-dim CPU tensor immediately after the call.
    number = torch.tensor(3.0)
    torch.openreg._sleep(50_000_000)
    result = torch.where(condition.to("openreg"), x.to("openreg"), number)
    numbers = torch.where(condition.to("openreg"), number, torch.tensor(4.0))
    number.zero_()
    assert torch.equal(result.cpu(), torch.where(condition, x, 3.0))
    assert torch.equal(numbers.cpu(), torch.where(condition, 3.0, 4.0))
    single = torch.where(torch.tensor(True), x[0, 0].to("openreg"), torch.tensor(4.0))
    assert single.device.type == "openreg"
    assert torch.equal(single.cpu(), x[0, 0])


@pytest.mark.parametrize("number", [1e300, -(2.0**70), math.nan, 300])
def test_a_number_that_the_dtype_does_not_hold_is_rounded(number: float) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.randn(3, 4).to(dtype)
        check(lambda x: torch.where(x > 0, x, number), x)
        check(lambda x: x.__setitem__((slice(None), 0), number), x)
        check(lambda x: x.__setitem__(x > 0, number), x)
    check_error(lambda x: x.__setitem__(0, number), torch.zeros(3, dtype=torch.uint8))


def test_uint8_conditions_are_deprecated() -> None:
    condition, x = torch.tensor([1, 0, 2], dtype=torch.uint8), torch.randn(3)
    check(lambda c, x: torch.where(c, x, -x), condition, x)


def test_uint8_masks_are_deprecated() -> None:
    mask = torch.tensor([1, 0, 2], dtype=torch.uint8)
    values = torch.tensor([2.0, 3.0])
    check(lambda x, mask, values: x.__setitem__(mask, values), torch.zeros(3), mask, values)
    check_error(lambda x, mask, values: x.__setitem__(mask, values), torch.zeros(2), mask, values)
    x = torch.zeros(3, device="openreg")
    with pytest.warns(UserWarning, match="indexing with dtype torch.uint8"):
        x[mask.to("openreg")] = values.to("openreg")
    # If all tensors are on the CPU, torch passes the mask to masked_fill_, which raises an error.
    x[mask.to("openreg")] = 4.0
    assert x.tolist() == [4.0, 0.0, 4.0]


def test_errors_are_those_of_the_cpu_at_the_call() -> None:
    x, index = torch.randn(3, 4), torch.tensor([0, 1])
    check_error(lambda x, i: x.index_select(2, i), x, index)
    check_error(lambda x, i: x.index_select(0, i), x, index.double())
    check_error(lambda x, i: x.index_select(0, i), x, index.view(1, 2))
    check_error(lambda x, i: x.sum().index_select(0, i), x, index)
    check_error(lambda x, i, o: torch.index_select(x, 0, i, out=o), x, index, x.double())
    check_error(lambda x, m: x.sum().index_put((m,), x.sum()), x, torch.tensor(True))
    check_error(lambda x, m: x.index_put((m, m), x.sum()), x, x > 0)
    check_error(torch.where, x, x, x)
    check_error(torch.where, x > 0, x, x[:2])
    check_error(lambda c, x, o: torch.where(c, x, x, out=o), x > 0, x, x.double())
    check_error(functional.embedding, index.double(), x, words="scalar types: Long, Int")


def test_an_index_out_of_range_is_thrown_at_the_next_synchronization() -> None:
    weight = torch.randn(3, 4, device="openreg")
    result = functional.embedding(torch.tensor([7], device="openreg"), weight)
    with pytest.raises(IndexError, match="out of"):
        torch.openreg.synchronize()
    assert result.shape == (1, 4)
    torch.openreg.synchronize()  # the error is reported only once
    assert bool((weight + 1).isfinite().all())  # the stream continues to work


def test_tensors_of_the_cpu_are_refused() -> None:
    x = torch.randn(3, 4, device="openreg")
    with pytest.raises(RuntimeError, match="same device"):
        x.index_select(0, torch.tensor([1]))
    with pytest.raises(RuntimeError, match="same device"):
        functional.embedding(torch.tensor([1]), x)
    with pytest.raises(RuntimeError, match="same device"):
        torch.where(x > 0, x, torch.ones(3, 4))


def test_does_not_wait() -> None:
    x, index = torch.randn(8, 4), torch.tensor([1, 5])
    assert is_queued(lambda i, x: functional.embedding(i, x), index, x)
    assert is_queued(lambda x: torch.where(x > 0, x, 0), x)
