# SPDX-License-Identifier: BSD-3-Clause
"""Tests operators on lists of tensors: number of kernels, and lists on two devices."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.testing import assert_close

from tests.differential import to_device

OPERATORS: dict[str, Callable[[list[Tensor], list[Tensor]], Any]] = {
    "add_": lambda x, y: torch._foreach_add_(x, y, alpha=0.5),
    "sub_": torch._foreach_sub_,
    "mul_": torch._foreach_mul_,
    "div_": torch._foreach_div_,
    "addcmul_": lambda x, y: torch._foreach_addcmul_(x, y, y, 0.5),
    "addcdiv_": lambda x, y: torch._foreach_addcdiv_(x, y, y, [0.5] * len(x)),
    "lerp_": lambda x, y: torch._foreach_lerp_(x, y, 0.3),
}


def _lists(size: int, dtype: torch.dtype, count: int = 6) -> tuple[list[Tensor], list[Tensor]]:
    """Returns two lists of CPU tensors. The second list contains no zeros."""
    ones = [torch.randn(size, dtype=dtype) for _ in range(count)]
    return ones, [torch.rand(size, dtype=dtype) + 0.5 for _ in range(count)]


def _kernels(work: Callable[[], Any]) -> list[str]:
    """Runs `work` twice and returns the names of the kernels that the second run launches."""
    work()  # the first launch of an operator may use other kernels
    with profile(activities=[ProfilerActivity.PrivateUse1]) as profiler:
        work()
        torch.openreg.synchronize()
    names = [event.name.partition(".")[0] for event in profiler.events()]
    return [name for name in names if name.startswith("aten::")]


@pytest.mark.parametrize(
    ("size", "dtype", "is_one_launch"),
    [
        (64, torch.float32, False),
        (64, torch.float64, False),
        (64, torch.bfloat16, True),  # not eligible for the fast path
        (4096, torch.float32, True),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", OPERATORS)
def test_small_tensors_are_processed_one_by_one(
    name: str, size: int, dtype: torch.dtype, is_one_launch: bool
) -> None:
    x, y = _lists(size, dtype)
    ours, others = [to_device(t) for t in x], [to_device(t) for t in y]
    launched = _kernels(lambda: OPERATORS[name](ours, others))
    whole, single = f"aten::_foreach_{name}", f"aten::{name}"
    assert launched == ([whole] if is_one_launch else [single] * len(x))
    for _ in range(2):
        OPERATORS[name](x, y)
    assert_close([t.cpu() for t in ours], x)


@pytest.mark.parametrize("size", [3, 20000])
@pytest.mark.parametrize("name", [*OPERATORS, "sqrt_"])
def test_a_list_may_be_on_two_devices(name: str, size: int) -> None:
    function: Any = OPERATORS.get(name, lambda x, _: torch._foreach_sqrt_(x))
    x, y = _lists(size, torch.float32, 4)
    x = [t.abs() for t in x]
    ours, others = (
        [t.to(torch.device("openreg", i % 2)) for i, t in enumerate(list_)] for list_ in (x, y)
    )
    function(ours, others)
    function(x, y)
    assert [t.device.index for t in ours] == [0, 1, 0, 1]
    assert_close([t.cpu() for t in ours], x)
