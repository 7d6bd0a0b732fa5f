# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures for compiled functions that replay captured graphs (``mode="reduce-overhead"``).

A test compiles its functions in two ways: to generated kernels, and to calls to operators.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

WAYS: dict[str, dict[str, Any]] = {
    "generated": {"mode": "reduce-overhead"},
    "operators": {"backend": "openreg", "mode": "reduce-overhead"},
}

#: Options for the same two ways of compilation, but without graphs.
PLAIN: dict[str, dict[str, Any]] = {
    "generated": {},
    "operators": {"backend": "openreg", "options": {"passes": []}},
}


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture(params=WAYS)
def replaying(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Returns ``torch.compile`` with the options for one of the two ways."""
    return lambda function: torch.compile(function, **WAYS[request.param])


def captures() -> int:
    return counters["openreg"]["graph_captures"]


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device="openreg")


@pytest.fixture
def calls() -> Iterator[list[int]]:
    """Yields a list that gets one element each time the host runs replay_test::count."""
    seen: list[int] = []
    library = torch.library.Library("replay_test", "DEF")
    library.define("count(Tensor x) -> Tensor")

    def count(x: Tensor) -> Tensor:
        seen.append(1)
        return x.clone()

    library.impl("count", count, "PrivateUse1")
    library.impl("count", torch.empty_like, "Meta")
    yield seen
    library._destroy()
