# SPDX-License-Identifier: BSD-3-Clause
"""Compiled functions that cannot be captured run without graphs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.testing import assert_close

from tests.kernel_cache import own_cache as own_cache
from tests.replay_compiler import calls as calls
from tests.replay_compiler import captures, random
from tests.replay_compiler import fresh_compiler as fresh_compiler
from tests.replay_compiler import replaying as replaying


def test_dynamic_sizes_may_be_skipped(replaying: Callable[[Any], Any]) -> None:
    with torch._inductor.config.patch("triton.cudagraph_skip_dynamic_graphs", True):
        compiled = replaying(torch.sin)
        for size in (3, 5, 9, 5, 5, 5):
            x = random(size)
            assert_close(compiled(x), x.sin())
    assert counters["inductor"]["cudagraph_skips"] > 0


def test_sizes_that_are_not_repeated(
    replaying: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch_openreg_compile.replay.MOST_SIZES", 5)
    compiled = replaying(torch.cos)
    for size in range(3, 15):
        x = random(size)
        assert_close(compiled(x), x.cos())
    assert captures() == 0
    assert counters["inductor"]["cudagraph_skips"] > 0


def test_uncapturable_functions_run_uncaptured(replaying: Callable[[Any], Any]) -> None:
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    try:
        compiled = replaying(lambda x: (x.nonzero() + 1, x * 2))
        for _ in range(4):
            x = random(9).relu()
            assert_close(compiled(x), (x.nonzero() + 1, x * 2))
    finally:
        torch._dynamo.config.capture_dynamic_output_shape_ops = False
    assert captures() == 0
    assert counters["inductor"]["cudagraph_skips"] > 0


def test_functions_that_wait_run_uncaptured(
    replaying: Callable[[Any], Any], calls: list[int]
) -> None:
    library = torch.library.Library("replay_test", "FRAGMENT")
    library.define("wait(Tensor x) -> Tensor")
    library.impl("wait", lambda x: x + x.cpu().to("openreg"), "PrivateUse1")
    library.impl("wait", torch.empty_like, "Meta")
    compiled = replaying(lambda x: torch.ops.replay_test.wait(x + 1) * 2)
    for _ in range(4):
        x = random(5)
        assert_close(compiled(x), (x + 1) * 4)
    assert captures() == 0
    assert counters["inductor"]["cudagraph_skips"] > 0
    library._destroy()


def test_numbers_on_the_cpu_are_not_frozen(replaying: Callable[[Any], Any]) -> None:
    compiled = replaying(lambda x, scale: x * scale)
    for scale in range(5):
        x = random(5)
        assert_close(compiled(x, torch.tensor(float(scale))), x * scale)
    assert captures() == 0


def test_an_operator_tagged_as_unsafe(replaying: Callable[[Any], Any]) -> None:
    library = torch.library.Library("replay_test_unsafe", "DEF")
    library.define("twice(Tensor x) -> Tensor", tags=(torch.Tag.cudagraph_unsafe,))
    library.impl("twice", lambda x: x * 2, "PrivateUse1")
    library.impl("twice", torch.empty_like, "Meta")
    compiled = replaying(lambda x: torch.ops.replay_test_unsafe.twice(x + 1) + 1)
    for _ in range(4):
        x = random(5)
        assert_close(compiled(x), (x + 1) * 2 + 1)
    assert captures() == 0
    library._destroy()


def test_tensors_of_two_devices_run_uncaptured(replaying: Callable[[Any], Any]) -> None:
    compiled = replaying(lambda x, y: x * 2 + y.to("openreg:0"))
    for _ in range(4):
        x, y = random(4), torch.randn(4, device="openreg:1")
        assert_close(compiled(x, y), x * 2 + y.to("openreg:0"))
    assert captures() == 0


def test_the_policy_of_the_program() -> None:
    from torch._inductor.cudagraph_utils import CUDAGraphPolicy

    with torch._inductor.config.patch("cudagraph_policy", CUDAGraphPolicy()):
        compiled = torch.compile(lambda x: x * 5, mode="reduce-overhead")
        for _ in range(4):
            x = random(3)
            assert_close(compiled(x), x * 5)
    assert captures() == 0


def test_the_cpu_is_as_before() -> None:
    compiled = torch.compile(lambda x: x * 7, mode="reduce-overhead")
    for _ in range(3):
        x = torch.randn(3)
        assert_close(compiled(x), x * 7)
    assert captures() == 0


def test_refusals_can_be_errors() -> None:
    with torch._inductor.config.patch("triton.cudagraph_or_error", True):
        compiled = torch.compile(lambda x, y: x * y, mode="reduce-overhead")
        with pytest.raises(RuntimeError, match="several devices: cpu, openreg"):
            compiled(random(3), torch.tensor(2.0))
