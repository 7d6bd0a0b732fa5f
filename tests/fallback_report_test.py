# SPDX-License-Identifier: BSD-3-Clause
"""Tests the fallback's report, which counts the calls to each operator without a device kernel."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _no_records() -> Iterator[None]:
    torch.openreg.fallback.reset()
    yield
    torch.openreg.fallback.reset()


def unique() -> torch.Tensor:
    """Calls an operator that has no device kernel and whose output size depends on data."""
    result: torch.Tensor = torch.unique(torch.tensor([3, 1, 3, 2], device="openreg"))
    return result


def test_nothing_fell_back() -> None:
    assert torch.openreg.fallback.stats() == {}
    assert torch.openreg.fallback.report() == "no operator fell back"


def test_calls_are_counted() -> None:
    for _ in range(3):
        assert unique().tolist() == [1, 2, 3]
    ((name, record),) = [
        item for item in torch.openreg.fallback.stats().items() if "unique" in item[0]
    ]
    assert name.startswith("aten::")
    assert record.calls == 3
    assert record.synchronous == 3
    assert record.asynchronous == 0
    assert record.bytes_out >= 3 * 3 * 8
    assert record.ns > 0


def test_reset() -> None:
    unique()
    assert torch.openreg.fallback.stats()
    torch.openreg.fallback.reset()
    assert torch.openreg.fallback.stats() == {}


def test_report_is_an_aligned_table() -> None:
    unique()
    torch.ones(4, device="openreg").logcumsumexp(0)
    header, *rows = torch.openreg.fallback.report().splitlines()
    assert header.split("  ")[0] == "operator"
    assert len(rows) == len(torch.openreg.fallback.stats())
    assert {len(row) for row in rows} == {len(header)}
    assert any("unique" in row for row in rows)
