# SPDX-License-Identifier: BSD-3-Clause
"""Checks the table in operators.md of dtypes that accelerators support but the CPU does not."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map_only

from tests.accelerator_dtypes import differences, name_of
from tests.differential import to_device

PAGE = Path("docs/operators.md")
OPERATORS = {name_of(op): op for op in op_db}
# Maps the dtype of a sample to the dtype in which the CPU computes the expected result.
WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.bool: torch.int64,
    torch.complex32: torch.complex64,
}
SAMPLES = 6


class Row(NamedTuple):
    """A table entry: one operator with one dtype."""

    operator: str
    dtype: str
    taken: bool
    reason: str


def _rows() -> Iterator[Row]:
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 4 and cells[2] in ("yes", "no"):
            for operator in re.findall(r"`([^`]+)`", cells[1]):
                for dtype in cells[0].split(", "):
                    yield Row(operator, dtype, cells[2] == "yes", cells[3])


ROWS = list(_rows())


def test_table_is_complete() -> None:
    found = {(name, dtype) for name, dtypes in differences().items() for dtype in dtypes}
    table = [(row.operator, row.dtype) for row in ROWS]
    assert sorted(table) == sorted(found)
    assert all(row.reason for row in ROWS)


def _cases(taken: bool) -> list[Any]:
    return [
        pytest.param(row.operator, getattr(torch, row.dtype), id=f"{row.operator}-{row.dtype}")
        for row in ROWS
        if row.taken == taken
    ]


def _results(name: str, arguments: Any) -> list[Tensor]:
    sample, args, kwargs = arguments
    return [
        x for x in tree_leaves(OPERATORS[name](sample, *args, **kwargs)) if isinstance(x, Tensor)
    ]


def _cpu_takes(name: str, dtype: torch.dtype) -> bool:
    """Returns whether the CPU kernel accepts a dtype that torch does not list for the CPU."""
    try:
        for sample in list(OPERATORS[name].sample_inputs("cpu", dtype))[:SAMPLES]:
            _results(name, (sample.input, sample.args, sample.kwargs))
    except (RuntimeError, NotImplementedError):
        return False
    return True


@pytest.mark.parametrize(("name", "dtype"), _cases(taken=True))
def test_supported_dtype_is_computed_as_in_a_wider_dtype(name: str, dtype: torch.dtype) -> None:
    """Compares with a CPU result in the same dtype or, if the CPU lacks it, in a wider one."""
    op = OPERATORS[name]
    wider = dtype if _cpu_takes(name, dtype) else WIDER.get(dtype, torch.float64)
    differentiable = op.supports_autograd and dtype.is_floating_point
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=differentiable))
    for sample in samples[:: len(samples) // SAMPLES + 1]:
        arguments = (sample.input, sample.args, sample.kwargs)

        def widen(x: Tensor) -> Tensor:
            y = x.detach().clone()
            y = y.to(wider) if x.dtype == dtype else y
            return y.requires_grad_(x.requires_grad)

        theirs = tree_map_only(Tensor, widen, arguments)
        ours = tree_map_only(Tensor, to_device, arguments)
        is_random = sample.kwargs.get("training", False) and name == "nn.functional.rrelu"
        expected, actual = _results(name, theirs), _results(name, ours)
        for x, y in zip(actual, expected, strict=True):
            assert x.device.type == "openreg"
            assert x.dtype == (dtype if y.dtype == wider and dtype != torch.bool else x.dtype)
            if not is_random:
                assert_close(x.detach().cpu(), y.detach().to(x.dtype), equal_nan=True)
        leaves = [
            (x, y)
            for x, y in zip(tree_leaves(ours), tree_leaves(theirs), strict=True)
            if isinstance(x, Tensor) and x.requires_grad
        ]
        if differentiable and leaves and not is_random and actual[0].requires_grad:
            grad = torch.randn(expected[0].shape).to(dtype)
            found = torch.autograd.grad(actual[0], [x for x, _ in leaves], to_device(grad))
            wanted = torch.autograd.grad(expected[0], [y for _, y in leaves], grad.to(wider))
            for x, y in zip(found, wanted, strict=True):
                assert x.dtype == dtype
                assert_close(x.cpu(), y.to(dtype), rtol=1e-2, atol=1e-2, equal_nan=True)


@pytest.mark.parametrize(("name", "dtype"), _cases(taken=False))
def test_unsupported_dtype_is_rejected(name: str, dtype: torch.dtype) -> None:
    """The device must reject at least one sample. If it accepts all, update the table."""
    refused = 0
    for sample in list(OPERATORS[name].sample_inputs("cpu", dtype))[:SAMPLES]:
        arguments = tree_map_only(Tensor, to_device, (sample.input, sample.args, sample.kwargs))
        try:
            _results(name, arguments)
            torch.openreg.synchronize()
        except (RuntimeError, NotImplementedError, TypeError):
            refused += 1
    assert refused > 0


def test_results_are_written_to_given_tensors() -> None:
    x = torch.randn(1, 2, 4, 4, 4).half()
    for out in (torch.empty(1, 2, 2, 2, 2).half(), torch.empty(0).half()):
        given = out.to("openreg")
        result = torch.ops.aten.avg_pool3d.out(x.to("openreg"), [2, 2, 2], out=given)
        assert result is given
        assert_close(given.cpu(), torch.nn.functional.avg_pool3d(x.float(), 2).half())
    y = x.to("openreg")
    assert torch.nn.functional.rrelu_(y, training=True) is y
    assert torch.equal(y.cpu()[x > 0], x[x > 0])
    assert bool((y.cpu() <= x.relu()).all())
    b = torch.tensor([True, False], device="openreg")
    assert b.abs_().tolist() == [True, False]
