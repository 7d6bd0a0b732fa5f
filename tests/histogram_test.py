# SPDX-License-Identifier: BSD-3-Clause
"""histc supports integers, as on accelerators, and the other dtypes that it supports on the CPU."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.differential import check, check_error

INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def _expected(values: list[int], bins: int, low: int, high: int) -> list[int]:
    """Returns a histogram's counts, computed exactly with Python integers."""
    if low == high and values:
        low, high = min(values), max(values)
    if low == high:
        low, high = low - 1, high + 1
    counts = [0] * bins
    for value in values:
        if low <= value <= high:
            counts[min((value - low) * bins // (high - low), bins - 1)] += 1
    return counts


@given(
    dtype=st.sampled_from(INTEGERS),
    values=st.lists(st.integers(0, 120), max_size=50),
    bins=st.integers(1, 20),
    limits=st.tuples(st.integers(0, 100), st.integers(0, 100)).map(sorted),
)
def test_integers(dtype: torch.dtype, values: list[int], bins: int, limits: list[int]) -> None:
    x = torch.tensor(values, dtype=dtype, device="openreg")
    expected = torch.tensor(_expected(values, bins, *limits), dtype=dtype)
    found = torch.histc(x, bins, *limits)
    assert found.dtype == dtype
    assert torch.equal(found.cpu(), expected)
    out = torch.empty(0, dtype=dtype, device="openreg")
    assert torch.histc(x, bins, *limits, out=out) is out
    assert torch.equal(out.cpu(), expected)


def test_the_largest_integers() -> None:
    info = torch.iinfo(torch.int64)
    values = [info.min, -1, 0, info.max]
    x = torch.tensor(values, device="openreg")
    assert x.histc(1000).tolist() == _expected(values, 1000, 0, 0)


def test_how_often_experts_are_chosen() -> None:
    """Counts how often experts are chosen, as transformers does on all devices but the CPU."""
    experts = torch.tensor([[0, 3], [3, 1], [3, 7]], device="openreg")
    counts = torch.histc(experts.int().flatten(), bins=8, min=0, max=7)
    assert counts.tolist() == [1, 1, 0, 3, 0, 0, 0, 1]
    assert counts.cumsum(0).tolist() == [1, 2, 2, 5, 5, 5, 5, 6]


def test_other_dtypes_are_the_cpus() -> None:
    for dtype in (torch.float32, torch.float64):
        check(lambda x: x.histc(5, -1, 1), torch.randn(50, dtype=dtype))
    check_error(torch.histc, torch.ones(3, dtype=torch.bool))
    check_error(torch.histc, torch.ones(3, dtype=torch.uint16))


def test_views_and_results_with_gaps() -> None:
    x = torch.arange(24, device="openreg").view(4, 6).t()[::2]
    wide = torch.zeros(4, 2, dtype=torch.int64, device="openreg")
    torch.histc(x, 4, 0, 23, out=wide[:, 0])
    expected = _expected(x.flatten().tolist(), 4, 0, 23)
    assert wide.tolist() == [[count, 0] for count in expected]


def test_does_not_wait() -> None:
    x = torch.tensor([1, 2, 2, 9], device="openreg")
    x.histc(3, 0, 9)  # warm-up: the first call may wait
    torch.openreg.synchronize()
    torch.openreg._sleep(200_000_000)
    found = x.histc(3, 0, 9)
    queued = not torch.openreg.current_stream().query()
    assert found.tolist() == [3, 0, 1]
    assert queued


@pytest.mark.parametrize(
    ("bins", "low", "high", "words"),
    [
        (0, 0, 0, "bins must be > 0"),
        (3, 4, 1, "max must be larger than min"),
        (3, 0, 1000, "cannot be converted to type int8_t without overflow"),
    ],
)
def test_errors_are_raised_by_the_call(bins: int, low: int, high: int, words: str) -> None:
    x = torch.ones(3, dtype=torch.int8, device="openreg")
    with pytest.raises(RuntimeError, match=words):
        x.histc(bins, low, high)
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.histc(x, 3, out=torch.empty(3, device="openreg"))
