# SPDX-License-Identifier: BSD-3-Clause
"""Compiles a few operators and compares the results with the CPU's. The sweep compiles all."""

from collections.abc import Iterator

import pytest
from torch_device_conformance.verdict.verdict import Case, Verdict

from tests.sweep.verdicts import KNOWN, chosen, verdicts

# A few operators of each kind: pointwise, reductions, indexing, views, random, and operators that
# are not compiled.
OPERATORS = (
    "add",
    "addmm",
    "argmax",
    "as_strided",
    "bernoulli",
    "cat",
    "clamp",
    "cumsum",
    "diagonal",
    "div.floor_rounding",
    "erfinv",
    "expand",
    "fft.rfft",
    "gather",
    "index_put",
    "linalg.svd",
    "masked_fill",
    "matmul",
    "max.reduction_with_dim",
    "nn.functional.batch_norm",
    "nn.functional.conv2d",
    "nn.functional.cross_entropy",
    "nn.functional.embedding",
    "nn.functional.gelu",
    "nn.functional.interpolate.bilinear",
    "nn.functional.layer_norm",
    "nn.functional.max_pool2d",
    "nn.functional.scaled_dot_product_attention",
    "roll",
    "scatter_add",
    "sort",
    "split",
    "std_mean",
    "sum",
    "topk",
    "triu",
    "where",
)

CHOSEN = chosen("op", ["compiled_inductor"], ["float32"], OPERATORS)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Case, Verdict]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield verdicts(CHOSEN, 120)


@pytest.mark.parametrize("case", CHOSEN, ids=str)
def test_compiled_operator_agrees_with_the_cpu(case: Case, found: dict[Case, Verdict]) -> None:
    assert not KNOWN.fails(found[case]), found[case].message
    assert found[case].samples == 1


def test_every_chosen_name_has_a_case() -> None:
    assert {case.name for case in CHOSEN} == set(OPERATORS)
