# SPDX-License-Identifier: BSD-3-Clause
"""Tests grouped matrix products. Tests shared by all products are in quantization_test.py."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.differential import check, check_error
from tests.graph_capture import quiet_devices as quiet_devices

REDUCED = [torch.float32, torch.bfloat16, torch.float16]


@settings(max_examples=60, deadline=None)
@given(
    dims=st.sampled_from([(2, 3), (3, 3), (3, 2), (2, 2)]),
    groups=st.integers(1, 4),
    sizes=st.tuples(*[st.integers(1, 3)] * 3),
    cuts=st.lists(st.integers(0, 24), min_size=4, max_size=4),
    dtype=st.sampled_from(REDUCED),
    columns=st.booleans(),
)
def test_grouped_mm(
    dims: tuple[int, int],
    groups: int,
    sizes: tuple[int, int, int],
    cuts: list[int],
    dtype: torch.dtype,
    columns: bool,
) -> None:
    m, k, n = (8 * size for size in sizes)
    left = torch.randn(*([groups] if dims[0] == 3 else []), m, k).to(dtype)
    right = torch.randn(*([groups] if dims[1] == 3 else []), k, n).to(dtype)
    if columns:
        right = right.mT.contiguous().mT
    # The offsets split the left matrix's rows, the right matrix's columns, or the contracted
    # dimension.
    length = {(2, 3): m, (3, 3): 0, (3, 2): n, (2, 2): k}[dims]
    ends = sorted(min(cut, length) for cut in cuts[:groups])
    ends[-1] = length
    offsets = [torch.tensor(ends, dtype=torch.int32)] if length else []
    check(
        lambda a, b, *offs: torch._grouped_mm(a, b, *offs),
        left.requires_grad_(),
        right.requires_grad_(),
        *offsets,
    )


def test_offsets_of_groups_may_be_wrong() -> None:
    """Elements outside all groups are undefined and too large offsets ignored, as on the CPU."""
    a, b = torch.randn(8, 16), torch.randn(3, 16, 8)
    for ends, rows in (([1, 2, 5], 5), ([1, 2, 9], 8), ([3, 2, 8], 8)):
        offsets = torch.tensor(ends, dtype=torch.int32)
        check(
            lambda a, b, offs, rows=rows: torch._grouped_mm(a, b, offs=offs)[:rows], a, b, offsets
        )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"offs": None}, "Have to provide offsets if there is a 2d matrix"),
        ({"a": torch.ones(3, 8, 16)}, "or no offset if both matrices are 3d"),
        ({"a": torch.ones(8)}, "mat_a has to be 2 or 3d"),
        ({"b": torch.ones(3, 8, 8)}, "contraction dimension of mat_a and mat_b must match"),
        ({"offs": torch.tensor([1, 2, 8])}, "Offsets have to be int32"),
        ({"offs": torch.tensor([1, 8], dtype=torch.int32)}, "matrix batch sizes have to match"),
        ({"bias": torch.ones(3, 8)}, "Bias not supported yet"),
        ({"out_dtype": torch.half}, "Grouped gemm output dtype must match `mat_a` dtype"),
        ({"a": torch.ones(8, 16).half()}, "expected m1 and m2 to have the same dtype, but got"),
        ({"a": torch.ones(8, 16).long()}, "Expected mat_a to be Float32, BFloat16 or Float16"),
        ({"a": torch.ones(8, 15), "b": torch.ones(3, 15, 8)}, "strides should be multiple of 16"),
    ],
)
def test_wrong_arguments_of_grouped_mm(change: dict[str, Any], words: str) -> None:
    arguments = {
        "a": torch.ones(8, 16),
        "b": torch.ones(3, 16, 8),
        "offs": torch.tensor([1, 2, 8], dtype=torch.int32),
        "bias": None,
        "out_dtype": None,
        **change,
    }
    check_error(torch._grouped_mm, *arguments.values(), words=words)
