# SPDX-License-Identifier: BSD-3-Clause
"""Tests matrix products with float32 results: mm, bmm, addmm and baddbmm with ``out_dtype``."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.differential import DEVICE

PRODUCTS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "mm": (torch.mm, [(3, 40), (40, 5)]),
    "bmm": (torch.bmm, [(2, 3, 40), (2, 40, 5)]),
    "addmm": (torch.addmm, [(3, 5), (3, 40), (40, 5)]),
    "baddbmm": (torch.baddbmm, [(2, 3, 5), (2, 3, 40), (2, 40, 5)]),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", PRODUCTS)
def test_sums_are_not_rounded(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    function, shapes = PRODUCTS[name]
    operands = [torch.randn(shape).to(dtype) for shape in shapes]
    expected = function(*(operand.float() for operand in operands))
    ours = [operand.to(DEVICE) for operand in operands]
    actual = function(*ours, out_dtype=torch.float32)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual.cpu(), expected)
    out = torch.empty(0, device=DEVICE)
    assert function(*ours, out_dtype=torch.float32, out=out) is out
    assert torch.equal(out, actual)
    assert function(*ours, out_dtype=dtype).dtype == dtype
    with pytest.raises(RuntimeError, match="out_dtype must be"):
        function(*ours, out_dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"expected scalar type|out_dtype must be"):
        function(*ours[:-1], ours[-1].float(), out_dtype=torch.float32)


@pytest.mark.parametrize("name", ["addmm", "baddbmm"])
def test_factors(name: str) -> None:
    function, shapes = PRODUCTS[name]
    operands = [torch.randn(shape).half() for shape in shapes]
    expected = function(*(operand.float() for operand in operands), beta=0.5, alpha=2)
    ours = [operand.to(DEVICE) for operand in operands]
    actual = function(*ours, out_dtype=torch.float32, beta=0.5, alpha=2)
    torch.testing.assert_close(actual.cpu(), expected)


def test_they_run_ahead() -> None:
    x = torch.ones(4, 4, device=DEVICE).half()
    torch.mm(x, x, out_dtype=torch.float32)
    torch.openreg.synchronize()
    torch.openreg._sleep(100_000_000)
    y = torch.mm(x, x, out_dtype=torch.float32)
    assert not torch.openreg.current_stream().query()
    assert y.unique().tolist() == [4.0]
