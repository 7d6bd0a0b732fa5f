# SPDX-License-Identifier: BSD-3-Clause
"""Graphs from torch._dynamo run through the passes of the pipeline and are executed."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from openreg_graph import log
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch._dynamo.reset()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Return the lines that the passes log."""
    log.addHandler(caplog.handler)
    with caplog.at_level(logging.DEBUG, log.name):
        yield caplog.messages
    log.removeHandler(caplog.handler)


def gate(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x) * 2 * 3


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    result: Callable[..., Any] = torch.compile(
        function, backend="openreg", options={"then": "eager", **options}, fullgraph=True
    )
    return result


def outcome(function: Callable[..., Any], *inputs: Tensor) -> list[Tensor]:
    """Return the result and the gradients with respect to the inputs."""
    copies = [x.detach().clone().requires_grad_() for x in inputs]
    result = function(*copies)
    weights = torch.linspace(0.5, 1.5, result.numel()).view(result.shape)
    return [result.detach(), *torch.autograd.grad((result * weights).sum(), copies)]


def test_training_uses_the_operator_forward_and_backward(
    caplog: pytest.LogCaptureFixture, lines: list[str]
) -> None:
    x = torch.randn(3, 4)
    torch.testing.assert_close(outcome(compiled(gate), x), outcome(gate, x))
    text = "\n".join(caplog.messages)
    assert text.count("aten.silu.default") == 2  # once before autograd, once in forward
    assert text.count("aten.silu_backward.default") == 1
    assert "aten.sigmoid" not in text
    assert len([line for line in caplog.messages if line.startswith("fold: ")]) == 2


def test_inference(caplog: pytest.LogCaptureFixture, lines: list[str]) -> None:
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(gate)(x), gate(x))
    assert any(line.startswith("inference:") for line in caplog.messages)


def test_only_the_passes_that_are_named(caplog: pytest.LogCaptureFixture, lines: list[str]) -> None:
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(gate, passes=["fold"])(x), gate(x))
    done = [line for line in caplog.messages if " -> " in line]
    assert [line.split(":")[0] for line in done] == ["fold"]


def test_rounding_as_before_unless_a_program_allows_another() -> None:
    def function(x: Tensor) -> Tensor:
        return x + 4 + 4

    x = torch.tensor([1e8])  # float32 cannot represent 1e8 + 1: the next value is 1e8 + 8
    assert compiled(function)(x).item() == function(x).item() == 1e8
    torch._dynamo.reset()
    assert compiled(function, inexact=True)(x).item() == 1e8 + 8


def test_mutated_inputs_and_buffers() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls: Tensor
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            x.mul_(2)
            return gate(x) + self.calls

    module = Counter()
    function = compiled(module)
    for calls in (1, 2):
        x = torch.ones(3)
        torch.testing.assert_close(function(x), gate(torch.full((3,), 2.0)) + calls)
        assert x.tolist() == [2, 2, 2]
        assert module.calls.item() == calls


def test_results_are_separate_tensors() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x * 1, x + 1, x + 1

    x = torch.ones(2)
    one, two, three = compiled(function)(x)
    one.zero_()
    two.zero_()
    assert x.tolist() == [1, 1]
    assert three.tolist() == [2, 2]


def test_dynamic_shapes() -> None:
    function = torch.compile(
        gate, backend="openreg", options={"debug": False}, dynamic=True, fullgraph=True
    )
    for size in (2, 5, 9):
        x = torch.randn(size, 3)
        torch.testing.assert_close(outcome(function, x), outcome(gate, x))


def test_checkpointing() -> None:
    def function(x: Tensor) -> Tensor:
        result: Tensor = checkpoint(gate, x, use_reentrant=False)
        return result

    x = torch.randn(5)
    torch.testing.assert_close(outcome(compiled(function), x), outcome(gate, x))


def test_dropout_is_the_same_in_backward() -> None:
    def function(x: Tensor) -> Tensor:
        return F.dropout(gate(x), 0.5)

    x = torch.ones(200)
    result, gradient = outcome(compiled(function), x)
    assert torch.equal(result != 0, gradient != 0)
    assert 50 < (result != 0).sum() < 150


def test_graph_breaks() -> None:
    def function(x: Tensor) -> Tensor:
        x = gate(x)
        torch._dynamo.graph_break()
        return gate(x)

    x = torch.randn(3)
    options: dict[str, Any] = {"passes": ["silu"]}
    broken = torch.compile(function, backend="openreg", options=options)
    torch.testing.assert_close(outcome(broken, x), outcome(function, x))


def test_transforms_of_functions() -> None:
    def function(x: Tensor) -> Tensor:
        result: Tensor = torch.func.vmap(torch.func.grad(lambda y: gate(y).sum()))(x)
        return result

    x = torch.randn(3, 2)
    torch.testing.assert_close(compiled(function)(x), function(x))


@pytest.mark.parametrize("backward", [False, True])
def test_then_inductor(
    backward: bool, caplog: pytest.LogCaptureFixture, lines: list[str], tmp_path: Path
) -> None:
    """Runs on the CPU, which Inductor supports, and needs a C++ compiler, as the build does."""
    x = torch.randn(3, 4)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
        function = compiled(gate, then="inductor")
        if backward:
            torch.testing.assert_close(outcome(function, x), outcome(gate, x))
        else:
            torch.testing.assert_close(function(x), gate(x))
    done = [line.split(":")[0] for line in caplog.messages if " -> " in line]
    assert done[0] == "silu"
    assert "fold" in done


def test_inductor_caches_distinguish_passes(tmp_path: Path) -> None:
    x = torch.tensor([1e8])  # float32 cannot represent 1e8 + 1: the next value is 1e8 + 8
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
        for inexact, expected in ((False, 1e8), (True, 1e8 + 8)):
            torch._dynamo.reset()
            function = compiled(lambda x: x + 4 + 4, then="inductor", inexact=inexact)
            assert function(x).item() == expected


def test_inductor_also_runs_the_programs_passes(tmp_path: Path) -> None:
    seen: list[torch.fx.Graph] = []
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
        settings = {"post_grad_custom_pre_pass": seen.append, "force_disable_caches": True}
        with torch._inductor.config.patch(settings):
            compiled(gate, then="inductor")(torch.ones(3))
    assert len(seen) == 1


def test_errors_of_the_program_propagate() -> None:
    function = compiled(lambda x, i: gate(x)[i])
    x = torch.randn(3)
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        function(x, torch.tensor([7]))
    torch.testing.assert_close(function(x, torch.tensor([2])), gate(x)[2:])
