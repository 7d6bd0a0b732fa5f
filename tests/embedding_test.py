# SPDX-License-Identifier: BSD-3-Clause
"""Embeddings and selections: index_select, where, x[i], masks; errors that only the data shows."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from tests.differential import check, check_error, is_queued

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


def test_embedding_bag() -> None:
    weight = torch.randn(5, 3, requires_grad=True)
    index = torch.tensor([[0, 1, 1], [2, 4, 0]])
    for mode in ("sum", "mean", "max"):
        check(lambda i, w, mode=mode: functional.embedding_bag(i, w, mode=mode), index, weight)


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
    # A number that lives on the CPU, and may change right after the call.
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
    torch.openreg.synchronize()  # once
    assert bool((weight + 1).isfinite().all())  # and the stream goes on


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
