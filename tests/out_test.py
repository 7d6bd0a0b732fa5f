# SPDX-License-Identifier: BSD-3-Clause
"""Tests results that are written to a caller's tensor (out=)."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

# This import also registers Python meta kernels, which check out= less strictly than torch's own.
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.differential import DEVICE, assert_same, check, check_error, to_device


def warned(function: Callable[..., object], *tensors: Tensor) -> list[str]:
    """Makes a call and returns the first sentence of each warning."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        function(*tensors)
        torch.accelerator.synchronize()
    return [str(warning.message).split(".")[0] for warning in seen]


@pytest.mark.parametrize("function", [torch.acos, torch.erfinv, torch.cumsum, torch.exp])
def test_resizing_warns_as_on_the_cpu(function: Callable[..., Tensor]) -> None:
    x = torch.rand(5, 3)
    more = (1,) if function is torch.cumsum else ()

    def call(x: Tensor, out: Tensor) -> Tensor:
        return function(x, *more, out=out)

    with FakeTensorMode():
        pass
    for out in (torch.zeros(5, 3), torch.zeros(3, 5).t(), torch.zeros(0)):
        check(call, x, out)
        assert warned(call, to_device(x), to_device(out)) == []
    out = torch.zeros(4)
    wanted = warned(call, x, out.clone())
    assert len(wanted) == 1
    assert warned(call, to_device(x), to_device(out)) == wanted
    ours, theirs = to_device(out), out.clone()
    assert_same(call(to_device(x), ours), call(x, theirs))
    assert_same(ours, theirs)


@pytest.mark.parametrize("size", [(0,), (7, 7)])
def test_a_resized_result_has_the_strides_of_a_new_one(size: tuple[int, ...]) -> None:
    check(
        lambda x, q, r: torch.linalg.qr(x, out=(q, r)), matrix(), torch.zeros(size), torch.ones(0)
    )
    check(lambda x, values, vectors: torch.linalg.eigh(x, out=(values, vectors)), *symmetric(size))


def matrix() -> Tensor:
    return torch.randn(5, 4)


def symmetric(size: tuple[int, ...]) -> list[Tensor]:
    x = torch.diag(torch.arange(1.0, 6.0))
    return [x, torch.zeros(size), torch.zeros(size)]


def test_a_result_that_overlaps_is_refused() -> None:
    x = torch.arange(6.0).view(2, 3)
    rows = torch.tensor([1, 0])
    out = torch.zeros(3).expand(2, 3)
    check_error(lambda x, rows, out: torch.index_select(x, 0, rows, out=out), x, rows, out)
    check_error(lambda x, out: torch.acos(x, out=out), x, out)
    square = torch.arange(9.0).view(3, 3)
    check_error(lambda x, rows: torch.index_select(x, 0, rows, out=x[:2]), square, rows)


def test_narrow_copy_respects_the_layout_of_its_result() -> None:
    # Do not compare with the CPU: its kernel treats every result as contiguous.
    x = torch.arange(12.0).view(4, 3)
    out = torch.zeros(3, 2, device=DEVICE).t()
    assert torch.narrow_copy(to_device(x), 0, 1, 2, out=out) is out
    assert torch.equal(out.cpu(), x[1:3])
    memory = torch.zeros(9, device=DEVICE)
    for shared in (memory[:1].expand(2, 3), memory[:6].view(2, 3)[:, :1].expand(2, 3)):
        with pytest.raises(RuntimeError, match="refers to a single memory location"):
            torch.narrow_copy(to_device(x), 0, 1, 2, out=shared)
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to"):
        torch.narrow_copy(memory, 0, 0, 3, out=memory[1:4])
    assert not memory.any()
    check_error(lambda x, out: torch.narrow_copy(x, 0, 1, 2, out=out), x, torch.zeros(2, 3).long())


def test_mode() -> None:
    x = torch.tensor([[1.0, 2.0, 2.0], [3.0, 3.0, 1.0]])
    check(
        lambda x, values, indices: torch.mode(x, 1, out=(values, indices)),
        x,
        torch.zeros(2),
        torch.zeros(0, dtype=torch.int64),
    )


def test_no_elements() -> None:
    nothing, rows = torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)
    for x in (torch.ones(2, 3), nothing):
        check(lambda x, i, y: torch.index_reduce(x, 0, i, y, "amin"), x, rows, nothing)
        check(lambda x, i, y: x.index_reduce_(0, i, y, "prod"), x, rows, nothing.clone())


def test_negative_sizes_are_refused() -> None:
    x = torch.rand(1, 2, 5, 5)
    for size in ((-1, 0), (2, -1)):
        check_error(lambda x, size=size: torch.nn.functional.adaptive_max_pool2d(x, size), x)
    with pytest.raises(RuntimeError, match="negative dimension -1"):
        torch.empty(2, -1, device=DEVICE)
    with pytest.raises(RuntimeError, match="negative dimension -3"):
        torch.empty_strided((-3,), (1,), device=DEVICE)
