# SPDX-License-Identifier: BSD-3-Clause
"""Tests results and gradients after the passes of torch.compile(backend="openreg")."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import spellings
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from openreg_graph import log
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_openreg_compile.passes.order import REWRITES

DEVICE = "openreg"

# Tolerances for comparisons with float64. Eager mode's own error is added to them.
TOLERANCES = {
    torch.float64: 1e-9,
    torch.float32: 5e-5,
    torch.float16: 2e-2,
    torch.bfloat16: 1.5e-1,
}


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch._dynamo.reset()


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def logged() -> Iterator[list[str]]:
    """Collects the log messages about graphs. A pass logs one message for each change."""
    handler = _Lines()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield handler.lines
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


def compile_with(function: Callable[..., Tensor], **options: Any) -> Callable[..., Tensor]:
    """Compiles a function with all passes, or with those named in `options`."""
    chosen = {"then": "eager", **options}
    compiled: Callable[..., Tensor] = torch.compile(
        function, backend="openreg", options=chosen, fullgraph=True
    )
    return compiled


def outcome(function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """Returns the result and the gradients of all inputs, as float64 on the CPU."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    result = function(*leaves)
    draw = torch.Generator().manual_seed(1)
    weights = torch.rand(result.shape, generator=draw, dtype=torch.float64) + 0.5
    weighted = (result * weights.to(result)).sum()
    gradients = torch.autograd.grad(weighted, leaves, allow_unused=True)
    return [
        torch.zeros(x.shape, dtype=torch.float64) if each is None else each.detach().cpu().double()
        for x, each in zip([result, *inputs], [result, *gradients], strict=True)
    ]


_SIZES = st.tuples(*(st.integers(1, 5) for _ in range(3)), st.integers(2, 6))


def _strided(x: Tensor, layout: str) -> Tensor:
    """Returns a tensor with the values of `x` and the strides of a layout."""
    if layout == "transposed":
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if layout == "gaps":
        return torch.stack([x, x], -1)[..., 0]
    return x


@pytest.mark.parametrize("rewrite", REWRITES)
@settings(max_examples=10, deadline=None)
@given(data=st.data(), sizes=_SIZES, dtype=st.sampled_from(list(TOLERANCES)))
def test_golden(
    rewrite: str, data: st.DataObject, sizes: Sequence[int], dtype: torch.dtype
) -> None:
    """For all variants of a pattern, results and gradients agree with those computed in float64."""
    torch._dynamo.reset()
    name = data.draw(st.sampled_from(sorted(spellings.SPELLINGS[rewrite])))
    layout = data.draw(st.sampled_from(["contiguous", "contiguous", "transposed", "gaps"]))
    draw = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    shapes = spellings.shapes(rewrite, sizes)
    exact = [torch.randn(shape, generator=draw).to(dtype).double() for shape in shapes]
    inputs = [x.to(dtype).to(DEVICE) for x in exact]
    inputs[0] = _strided(inputs[0], layout)
    function = spellings.SPELLINGS[rewrite][name]
    compiled = compile_with(function)
    with logged() as lines:
        ours = outcome(compiled, inputs)
    result, eager = compiled(*inputs), function(*inputs)
    assert result.dtype == eager.dtype
    assert result.stride() == eager.stride()
    rounded = dtype == torch.float64 and name in spellings.ROUNDED_CONSTANTS
    if layout == "contiguous":
        assert any(line.startswith(f"{rewrite}: ") for line in lines) != rounded
    tolerance = TOLERANCES[dtype]
    all_three = zip(ours, outcome(function, inputs), outcome(function, exact), strict=True)
    for mine, plain, reference in all_three:
        lost = float((plain - reference).abs().max())
        torch.testing.assert_close(mine, reference, rtol=tolerance, atol=tolerance + lost)


_NUMBERS = st.sampled_from([1, 1.0, 2, -2, 3, 4.0, 0.5, 0.1, 257])


@settings(max_examples=10, deadline=None)
@given(
    numbers=st.lists(_NUMBERS, min_size=1, max_size=4),
    sizes=_SIZES,
    dtype=st.sampled_from(list(TOLERANCES)),
    seed=st.integers(0, 99),
)
def test_simplifications_keep_every_bit(
    numbers: Sequence[float], sizes: Sequence[int], dtype: torch.dtype, seed: int
) -> None:
    """Compares results and gradients bitwise. The passes also fold operations in backward."""
    torch._dynamo.reset()

    def function(x: Tensor) -> Tensor:
        y = x.sin() * 2 * 3
        for number in numbers:
            y = y * number - 0
        return y + x.sin() * y.cos()

    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(tuple(sizes), generator=draw).to(dtype).to(DEVICE)
    with logged() as lines:
        ours = outcome(compile_with(function, passes=["fold", "cse", "dead_code"]), [x])
    done = "\n".join(lines)
    assert done.count("fold: ") > 1
    assert "cse: " in done
    torch.testing.assert_close(ours, outcome(function, [x]), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("rewrite", "operators"),
    [
        ("silu", ["silu", "silu_backward"]),
        ("gelu", ["gelu", "gelu_backward"]),
        ("layer_norm", ["native_layer_norm", "native_layer_norm_backward"]),
        ("softmax", ["_softmax", "_softmax_backward_data"]),
        (
            "attention",
            [
                "_scaled_dot_product_fused_attention_overrideable",
                "_scaled_dot_product_fused_attention_overrideable_backward",
            ],
        ),
    ],
)
def test_kernels_of_the_device_run(rewrite: str, operators: list[str]) -> None:
    function = next(iter(spellings.SPELLINGS[rewrite].values()))
    inputs = [torch.randn(s, device=DEVICE) for s in spellings.shapes(rewrite, (2, 2, 3, 4))]
    compiled = compile_with(function, passes=[rewrite])
    with logged() as lines:
        outcome(compiled, inputs)
    for operator in operators:
        assert f"torch.ops.aten.{operator}.default(" in "\n".join(lines)


class Block(nn.Module):
    """A textbook transformer layer."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.gather = nn.Linear(width, width)
        self.grow = nn.Linear(width, 2 * width)
        self.shrink = nn.Linear(2 * width, width)
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.gain = nn.Parameter(torch.ones(width))

    def attend(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = (
            part.view(batch, tokens, self.heads, -1).transpose(1, 2)
            for part in self.project(x).chunk(3, -1)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        mixed = spellings.SPELLINGS["softmax"]["amax"](scores) @ v
        result: Tensor = self.gather(mixed.transpose(1, 2).contiguous().view(batch, tokens, width))
        return result

    def forward(self, x: Tensor) -> Tensor:
        normalize = spellings.SPELLINGS["layer_norm"]["variance"]
        x = x + self.attend(normalize(x, self.weight, self.bias))
        y = self.grow(spellings.SPELLINGS["rms_norm"]["power"](x, self.gain))
        y = self.shrink(spellings.SPELLINGS["gelu"]["power"](y))
        return x + spellings.SPELLINGS["silu"]["method"](y) * 2 * 3


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("device", ["openreg:0", "openreg:1"])
def test_a_block_trains_as_before(device: str, checkpointed: bool) -> None:
    torch.manual_seed(0)
    block = Block().to(device)
    x = torch.randn(2, 5, 16).to(device)

    def step(module: Callable[[Tensor], Tensor]) -> list[Tensor]:
        block.zero_grad()
        result = module(x)
        torch.autograd.backward(result.square().mean())
        gradients = [p.grad for p in block.parameters() if p.grad is not None]
        assert len(gradients) == len(list(block.parameters()))
        return [result.detach(), *gradients]

    def whole(x: Tensor) -> Tensor:
        result: Tensor = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
        return result

    compiled = compile_with(whole)
    with logged() as lines:
        ours = step(compiled)
    assert [line.split(":")[0] for line in lines if " -> " in line][:6] == list(REWRITES)
    torch.testing.assert_close(ours, step(block), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(step(compiled), step(block), rtol=1e-4, atol=1e-5)


def test_dynamic_shapes() -> None:
    """The graph is specialized only for the normalized size; the other size may change freely."""
    function = spellings.SPELLINGS["layer_norm"]["variance"]
    compiled = compile_with(function)
    inputs = [torch.randn(5, device=DEVICE) for _ in range(2)]
    with logged() as lines:
        for size in (2, 3, 7):
            x = torch.randn(size, 5, device=DEVICE)
            torch.testing.assert_close(compiled(x, *inputs), function(x, *inputs))
    assert len([line for line in lines if line.startswith("layer_norm: ")]) == 2


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("rewrite", ["gelu", "layer_norm", "softmax", "attention", "silu"])
def test_autocast(rewrite: str, inside: bool) -> None:
    """Inside autocast, a rewrite must not change the dtypes and the values of results."""
    program = next(iter(spellings.SPELLINGS[rewrite].values()))

    def within(*inputs: Tensor) -> Tensor:
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            return program(*inputs)

    function = within if inside else program
    compiled = compile_with(function)
    for dtype in (torch.float32, torch.bfloat16):
        shapes = spellings.shapes(rewrite, (2, 2, 3, 4))
        inputs = [torch.randn(shape, device=DEVICE, dtype=dtype) for shape in shapes]
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=not inside):
            result, expected = compiled(*inputs), function(*inputs)
        assert result.dtype == expected.dtype
        torch.testing.assert_close(result, expected, rtol=5e-2, atol=5e-2)


def test_tensors_of_the_cpu_and_the_device() -> None:
    def function(x: Tensor, host: Tensor) -> Tensor:
        return x * torch.sigmoid(x) * host.to(DEVICE) + (host * torch.sigmoid(host)).to(DEVICE)

    x, host = torch.randn(3, device=DEVICE), torch.randn(3)
    compiled = compile_with(function, passes=["silu"])
    with logged() as lines:
        torch.testing.assert_close(compiled(x, host), function(x, host))
    assert len([line for line in lines if line.startswith("silu: ")]) == 2


def test_dropout_between_rewrites() -> None:
    def function(x: Tensor) -> Tensor:
        return F.dropout(x * torch.sigmoid(x), 0.5) * 2 * 3

    compiled = compile_with(function)
    x = torch.ones(1000, device=DEVICE, requires_grad=True)
    result = compiled(x)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    assert torch.equal(gradient != 0, result != 0)
    assert 400 < (result != 0).sum().item() < 600


def test_debug_backend(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options: dict[str, Any] = {"dump": tmp_path}
    function = spellings.SPELLINGS["silu"]["method"]
    compiled = torch.compile(function, backend="openreg_debug", options=options)
    x = torch.randn(2, 3, device=DEVICE)
    torch.testing.assert_close(compiled(x), x * x.sigmoid())
    report = capfd.readouterr().err
    assert "silu_default: float32[2, 3]" in report
    assert "Graph: 1 ops, 0 fusable groups" in report
    assert len(list(tmp_path.glob("*.dot"))) == 4


def test_errors_of_the_device_propagate() -> None:
    def function(x: Tensor, i: Tensor) -> Tensor:
        return (x * torch.sigmoid(x))[i]

    compiled = compile_with(function)
    x = torch.randn(3, device=DEVICE)
    index = torch.tensor([1], device=DEVICE)
    torch.testing.assert_close(compiled(x, index), function(x, index))
    with pytest.raises((RuntimeError, IndexError), match="out of"):
        compiled(x, index + 7).cpu()
    torch.testing.assert_close(compiled(x, index), function(x, index))
