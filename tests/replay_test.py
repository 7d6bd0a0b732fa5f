# SPDX-License-Identifier: BSD-3-Clause
"""Compiled functions return the same results with and without replays of captured graphs."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache
from torch.testing import assert_close

from tests.kernel_cache import own_cache as own_cache
from tests.replay_compiler import PLAIN, WAYS, captures, random
from tests.replay_compiler import calls as calls
from tests.replay_compiler import fresh_compiler as fresh_compiler
from tests.replay_compiler import replaying as replaying


def test_a_call_is_a_replay(replaying: Callable[[Any], Any], calls: list[int]) -> None:
    compiled = replaying(lambda x, y: (torch.ops.replay_test.count(x * 2) + y).relu())
    for number in range(8):
        x, y = random(5, 7), random(7)
        result = compiled(x, y)
        assert_close(result, (x * 2 + y).relu())
        # The host runs the operator in three calls: in the first, which is not captured, and in two
        # captures. The second capture is necessary because the previous result is still held.
        assert len(calls) == min(number + 1, 3)
    assert captures() == 2


def test_results_stay_as_long_as_they_are_held(replaying: Callable[[Any], Any]) -> None:
    compiled = replaying(lambda x: (x + 1, x.sum()))
    inputs = [random(40) for _ in range(20)]
    results = [compiled(x) for x in inputs]
    for x, (plus, total) in zip(inputs, results, strict=True):
        assert_close(plus, x + 1)
        assert_close(total, x.sum())
    # After the maximum number of captures, further calls run without graphs, with a warning.
    assert captures() == 8
    assert counters["inductor"]["cudagraph_skips"] > 0


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["call", "feed", "write", "drop"]), st.integers(0, 5)),
        max_size=30,
    ),
    st.sampled_from(sorted(WAYS)),
)
def test_any_program_agrees(steps: list[tuple[str, int]], way: str) -> None:
    """A random program keeps and drops results, writes to them and uses them as inputs."""

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = (x * 2 + y.cumsum(0)) % 997
        return z, (z * y).cumsum(0) % 997

    compiled = torch.compile(function, **WAYS[way])
    held: list[tuple[Tensor, Tensor]] = []  # pairs of the device's result and the expected result

    def call(x: tuple[Tensor, Tensor], y: tuple[Tensor, Tensor]) -> None:
        held.extend(zip(compiled(x[0], y[0]), function(x[1], y[1]), strict=True))

    def fresh() -> tuple[Tensor, Tensor]:
        x = torch.randint(-9, 9, (6,))  # integers stay exact in repeated calls
        return x.to("openreg"), x

    for action, place in steps:
        chosen = held[place % len(held)] if held else fresh()
        if action == "call":
            call(fresh(), fresh())
        elif action == "feed":
            call(chosen, held[-1] if held else fresh())
        elif action == "write":
            for tensor in chosen:
                tensor.add_(1)
        elif held:
            held.pop(place % len(held))
        del chosen
        for ours, theirs in held:
            assert_close(ours.cpu(), theirs)


def test_a_result_that_is_fed_back(replaying: Callable[[Any], Any]) -> None:
    cell = nn.RNNCell(8, 8).to("openreg")
    compiled = replaying(cell)
    state = expected = torch.zeros(2, 8, device="openreg")
    with torch.no_grad():
        for _ in range(10):
            x = random(2, 8)
            state, expected = compiled(x, state), cell(x, expected)
            assert_close(state, expected)
    assert captures() == 2


class Trained(nn.Module):
    """A module with parameters, random numbers, and a buffer that it writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.dropout = nn.Dropout(0.0)
        self.second = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.second(self.dropout(self.norm(self.first(x)).relu()))
        return result


def test_training(replaying: Callable[[Any], Any]) -> None:
    """Gradients accumulate over two batches. The second forward runs before the first backward."""
    model, expected = Trained().to("openreg"), Trained().to("openreg")
    expected.load_state_dict(model.state_dict())
    compiled = replaying(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (model, expected)]
    for _ in range(6):
        a, b = random(4, 8), random(4, 8)
        for function, optimizer in zip((compiled, expected), optimizers, strict=True):
            optimizer.zero_grad()
            one, two = function(a), function(b)
            one.square().mean().backward()
            two.sum().backward()
            optimizer.step()
        assert_close(model.state_dict(), expected.state_dict())
    assert captures() >= 2
    before = captures()
    for _ in range(3):
        optimizers[0].zero_grad()
        compiled(random(4, 8)).sum().backward()
    assert captures() <= before + 1


def test_an_optimizer(replaying: Callable[[Any], Any]) -> None:
    models = [nn.Linear(6, 3).to("openreg") for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01, capturable=True) for m in models]
    step = replaying(optimizers[0].step)
    for _ in range(8):
        x = random(5, 6)
        for model in models:
            model.zero_grad()
            model(x).square().sum().backward()
        step()
        optimizers[1].step()
        assert_close(models[0].state_dict(), models[1].state_dict())
    assert captures() >= 1


@pytest.mark.parametrize("way", WAYS)
def test_random_numbers(way: str) -> None:
    """Like calls without graphs, replays continue the sequence of random numbers."""

    def function(x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    x = torch.ones(1000, device="openreg")

    def draw(arguments: dict[str, Any]) -> list[Tensor]:
        torch._dynamo.reset()
        compiled = torch.compile(function, **arguments)
        torch.manual_seed(3)
        return [compiled(x).cpu() for _ in range(6)]

    plain, replayed = draw(PLAIN[way]), draw(WAYS[way])
    assert captures() == 1
    assert len({tuple(each.tolist()) for each in replayed}) == 6
    for ours, theirs in zip(replayed, plain, strict=True):
        assert 350 < (ours >= 2).sum() < 650
        assert_close(ours, theirs)


def test_dropout_in_training(replaying: Callable[[Any], Any]) -> None:
    """Each backward pass uses the mask of its own forward pass."""
    compiled = replaying(lambda x: nn.functional.dropout(x, 0.5) * 3)
    masks = set()
    for _ in range(6):
        x = torch.ones(64, device="openreg", requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        assert x.grad is not None
        assert_close(x.grad, y.detach())
        masks.add(tuple(y.tolist()))
    assert len(masks) == 6
    assert captures() >= 2


def test_dynamic_sizes(replaying: Callable[[Any], Any]) -> None:
    compiled = replaying(lambda x: torch.softmax(x * 2, -1).sum(0))
    for repetition in range(4):
        for size in (3, 5, 9, 5, 3):
            x = random(size, 4)
            assert_close(compiled(x), torch.softmax(x * 2, -1).sum(0))
        if repetition == 2:
            before = captures()
    assert captures() == before  # earlier repetitions have captured every size
    assert captures() >= 3


def test_inputs_that_are_written_to(replaying: Callable[[Any], Any]) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        y[1:].add_(x.sum())
        return x + 1

    compiled = replaying(function)
    for _ in range(5):
        x, y = random(3, 4), random(6)
        kept = x.clone(), y.clone()
        result = compiled(x, y)
        assert_close(result, function(*kept))
        assert_close((x, y), kept)
    assert captures() > 0


LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "transposed": lambda: random(4, 6).t(),
    "sliced": lambda: random(6, 9)[:, 1:5],
    "expanded": lambda: random(6, 1).expand(6, 4),
    "windows": lambda: random(9).as_strided((6, 4), (1, 1)),
    "scalar": lambda: random(1)[0],
    "empty": lambda: random(6, 0),
    "permuted": lambda: random(2, 4, 3).permute(2, 0, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_of_every_layout(replaying: Callable[[Any], Any], layout: str) -> None:
    compiled = replaying(lambda x: (x * 2).sum(-1) if x.dim() else x * 2)
    for _ in range(4):
        x = LAYOUTS[layout]()
        assert_close(compiled(x), (x * 2).sum(-1) if x.dim() else x * 2)
    assert captures() > 0


def test_results_that_are_inputs_or_parts_of_them(replaying: Callable[[Any], Any]) -> None:
    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Tensor, weight: Tensor) -> Tensor:
            context.save_for_backward(x, x.view(-1)[2:], weight.t())
            return x @ weight

        @staticmethod
        def backward(context: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, part, weight = context.saved_tensors
            return grad @ weight * part.sum(), x.t() @ grad

    apply: Callable[..., Any] = Backward.apply
    weight = random(4, 3).requires_grad_()
    compiled = replaying(lambda x: (apply(x, weight) * 2, x, x[1:]))
    for _ in range(4):
        pairs = []
        for _ in range(2):  # the second forward runs before the first backward
            x = random(5, 4).requires_grad_()
            y, same, rows = compiled(x)
            assert same.data_ptr() == x.data_ptr()
            assert rows.data_ptr() == x[1:].data_ptr()
            pairs.append((x, y))
        for x, y in pairs:
            weight.grad = None
            y.sum().backward()
            grad = torch.full((5, 3), 2.0, device="openreg")
            assert_close(x.grad, (grad @ weight.t() * x.view(-1)[2:].sum()).detach())
            assert_close(weight.grad, (x.t() @ grad).detach())
    assert captures() > 0


def test_parameters_that_move(replaying: Callable[[Any], Any]) -> None:
    model = nn.Linear(4, 4).to("openreg")
    compiled = replaying(model)
    with torch.no_grad():
        for _ in range(12):
            for parameter in model.parameters():
                parameter.data = random(*parameter.shape)
            x = random(2, 4)
            assert_close(compiled(x), model(x))
    # The function is captured with three sets of parameter addresses. The fourth capture copies the
    # parameters.
    assert captures() == 4
    before = captures()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data = random(*parameter.shape)
        x = random(2, 4)
        assert_close(compiled(x), model(x))
    assert captures() == before


def test_inference_mode_and_then_training(replaying: Callable[[Any], Any]) -> None:
    compiled = replaying(lambda x: x * 2)
    x = random(5)
    with torch.inference_mode():
        for _ in range(3):
            compiled(x)
    y = x.clone().requires_grad_()
    for _ in range(3):
        result = compiled(y)
        result.sum().backward()
        result = compiled(x)
        result.add_(1)
        assert_close(result, x * 2 + 1)


def test_memory_is_released_with_the_function(replaying: Callable[[Any], Any]) -> None:
    def use() -> None:
        compiled = replaying(lambda x: (x @ x).relu() @ x)
        for _ in range(4):
            result = compiled(random(64, 64))
        torch._dynamo.reset()
        assert result.isfinite().all()  # the program still owns the result

    use()
    gc.collect()
    torch.openreg.synchronize()
    before = torch.openreg.memory_allocated()
    use()
    gc.collect()
    torch.openreg.synchronize()
    assert captures() == 4
    assert torch.openreg.memory_allocated() == before


def test_with_cpp_wrapper() -> None:
    """Graphs work with cpp_wrapper, except if torch may partition graphs: it then disables them."""
    with torch._inductor.config.patch(cpp_wrapper=True, graph_partition=False):
        compiled = torch.compile(lambda x: (x * 2).softmax(0) @ x, mode="reduce-overhead")
        for _ in range(4):
            x = random(6, 6)
            assert_close(compiled(x), (x * 2).softmax(0) @ x)
    assert captures() == 1


def test_after_passes() -> None:
    options: dict[str, Any] = {"passes": ["silu"], "then": "graph"}
    compiled = torch.compile(lambda x: x * torch.sigmoid(x), backend="openreg", options=options)
    for _ in range(4):
        x = random(8).requires_grad_()
        result = compiled(x)
        result.sum().backward()
        expected = nn.functional.silu(x)
        assert_close(result, expected)
        assert_close(x.grad, torch.autograd.grad(expected.sum(), x)[0])
    assert captures() >= 2


def test_cached_code_is_replayed_too() -> None:
    """Code from torch's caches is also replayed, because loading it sets up the replays."""

    def function(x: Tensor) -> Tensor:
        return (x * 11).tanh()

    with fresh_cache():
        for _ in range(2):
            torch._dynamo.reset()
            compiled = torch.compile(function, mode="reduce-overhead")
            for _ in range(3):
                x = random(4)
                assert_close(compiled(x), function(x))
    assert counters["aot_autograd"]["autograd_cache_hit"] == 1
    assert captures() == 2


def test_marks_of_steps_are_not_needed_and_do_no_harm(replaying: Callable[[Any], Any]) -> None:
    compiled = replaying(lambda x: x * 13)
    kept = []
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        x = random(4)
        kept.append((compiled(x), x))
    for result, x in kept:
        assert_close(result, x * 13)
    assert captures() == 3
