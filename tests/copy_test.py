# SPDX-License-Identifier: BSD-3-Clause
"""Tests copies to, from, within and between devices: values, order and errors."""

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from tests.devices import LAST, needs_two_devices

DEVICE = torch.device("openreg:0")
OTHER = torch.device(LAST)
DTYPES = (torch.float32, torch.float64, torch.int64, torch.int8, torch.bool, torch.bfloat16)
# Numbers of elements. The last two exceed the limit for staged copies, and the last one is enough
# for a thread team.
SIZES = (0, 1, 1000, 20_000, 300_000)
LATE = 20_000_000  # ns: long enough for the host to run ahead of the stream


def numbers(count: int) -> Tensor:
    return torch.arange(count, dtype=torch.float32)


def layouts() -> st.SearchStrategy[Callable[[Tensor], Tensor]]:
    """Generates functions that return a view of a tensor of shape (4, 6, 5)."""
    views: list[Callable[[Tensor], Tensor]] = [
        lambda t: t,
        lambda t: t.transpose(0, 2),
        lambda t: t[1:, ::2, 1:4],
        lambda t: t[:, :1].expand(4, 6, 5),
        lambda t: t.permute(1, 2, 0)[::3],
    ]
    return st.sampled_from(views)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("count", SIZES)
def test_there_and_back(count: int, busy: bool) -> None:
    source = numbers(count)
    if busy:
        torch.openreg._sleep(LATE)
    there = source.to(DEVICE)
    assert there.device == DEVICE
    assert torch.equal(there.cpu(), source)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("count", SIZES)
def test_a_pageable_source_may_change_after_the_call(count: int, busy: bool) -> None:
    source = numbers(count)
    expected = source.clone()
    if busy:
        torch.openreg._sleep(LATE)
    there = source.to(DEVICE, non_blocking=True)
    source.fill_(-1)
    assert torch.equal(there.cpu(), expected)


@pytest.mark.parametrize("count", SIZES[1:])
def test_a_pinned_source_is_read_in_the_order_of_the_stream(count: int) -> None:
    source = numbers(count).pin_memory()
    torch.openreg._sleep(10 * LATE)  # on a loaded machine, the host may be delayed too
    there = source.to(DEVICE, non_blocking=True)
    assert not torch.openreg.current_stream().query(), "the copy made the host wait"
    source.fill_(-1)  # programs must not do this, but here it proves that the copy runs later
    assert torch.equal(there.cpu(), torch.full((count,), -1.0))


def test_memory_of_a_pinned_source_is_not_used_again_too_soon() -> None:
    expected = numbers(1000)
    source = expected.pin_memory()
    address = source.data_ptr()
    torch.openreg._sleep(LATE)
    there = source.to(DEVICE, non_blocking=True)
    del source
    other = torch.full((1000,), -1.0).pin_memory()
    assert other.data_ptr() != address
    assert torch.equal(there.cpu(), expected)


@settings(deadline=None, max_examples=100)
@given(
    view=layouts(),
    other_view=layouts(),
    dtype=st.sampled_from(DTYPES),
    other_dtype=st.sampled_from(DTYPES),
    way=st.sampled_from([("cpu", DEVICE), (DEVICE, "cpu"), (DEVICE, DEVICE), (DEVICE, OTHER)]),
    busy=st.booleans(),
)
def test_layouts_and_dtypes_as_on_the_cpu(
    view: Callable[[Tensor], Tensor],
    other_view: Callable[[Tensor], Tensor],
    dtype: torch.dtype,
    other_dtype: torch.dtype,
    way: tuple[str | torch.device, str | torch.device],
    busy: bool,
) -> None:
    base = torch.arange(120).remainder(7).reshape(4, 6, 5)
    source = view(base.to(dtype))
    target = torch.zeros(4, 6, 5, dtype=other_dtype)
    shape = other_view(target).shape
    if source.shape != shape or other_view(target).stride().count(0):
        other_view = _same
        target = torch.zeros(source.shape, dtype=other_dtype)
    expected = target.clone()
    other_view(expected).copy_(source)

    there = view(base.to(dtype).to(way[0]))
    result = target.to(way[1])
    if busy:
        torch.openreg._sleep(100_000)
    other_view(result).copy_(there)
    assert torch.equal(result.cpu(), expected)


def _same(tensor: Tensor) -> Tensor:
    return tensor


@pytest.mark.parametrize("source", ["cpu", DEVICE], ids=str)
@pytest.mark.parametrize(("to", "of"), [((2,), (3,)), ((1,), (3,)), ((2, 3), (3, 2)), ((), (2,))])
def test_shapes_that_do_not_fit_are_refused_at_the_call(
    to: tuple[int, ...], of: tuple[int, ...], source: str | torch.device
) -> None:
    with pytest.raises(RuntimeError) as ours:
        torch.zeros(to, device=DEVICE).copy_(torch.zeros(of, device=source))
    with pytest.raises(RuntimeError) as theirs:
        torch.zeros(to).copy_(torch.zeros(of))
    assert str(ours.value) == str(theirs.value)


@needs_two_devices
@pytest.mark.parametrize("count", SIZES[1:])
def test_between_devices_in_order(count: int) -> None:
    torch.openreg._sleep(LATE)
    source = numbers(count).to(DEVICE)
    there = source.add(1).to(OTHER)  # the copy waits for the source's stream
    back = there.mul(2).to(DEVICE)
    assert torch.equal(back.cpu(), (numbers(count) + 1) * 2)


def test_conjugation_in_place() -> None:
    x = torch.randn(3, dtype=torch.complex64)
    ours = x.to(DEVICE)
    assert ours.conj_physical_() is ours
    assert torch.equal(ours.cpu(), x.conj())


def test_of_the_same_elements() -> None:
    """Source and destination may overlap if each element is copied to itself."""
    x = torch.arange(3.0).to(DEVICE).expand(2, 3)
    assert x.copy_(x.detach()) is x
    assert torch.equal(x.cpu(), torch.arange(3.0).expand(2, 3))
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        x.copy_(x.clone())


def test_conjugate_and_negative_bits() -> None:
    source = torch.complex(numbers(50), numbers(50).flip(0))
    assert torch.equal(source.to(DEVICE).conj().cpu(), source.conj())
    assert torch.equal(source.conj().to(DEVICE).cpu(), source.conj())
    assert torch.equal(source.conj().imag.to(DEVICE).cpu(), source.conj().imag)


def test_an_earlier_error_is_not_lost_by_a_copy() -> None:
    bad = torch.tensor([9], device=DEVICE)
    torch.zeros(3, device=DEVICE).index_select(0, bad - 9)  # the first call with new dtypes waits
    torch.openreg._sleep(LATE)
    torch.zeros(3, device=DEVICE).index_select(0, bad)
    with pytest.raises((RuntimeError, IndexError)):
        torch.zeros(2, device=DEVICE).cpu()
    torch.openreg.synchronize()
