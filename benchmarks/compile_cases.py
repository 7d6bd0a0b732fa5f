# SPDX-License-Identifier: BSD-3-Clause
"""The cases of the compile benchmark: functions that create a step.

A step runs on a device, compiled or not. The argument ``compiled`` is ``torch.compile`` or the
identity function. It is applied to the part of the step that a program would compile.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.cases import Step, large_mlp, random, small_mlp, transformer_layer

Compiler = Callable[[Any], Any]


@dataclass(frozen=True)
class CompileCase:
    """One row in the table.

    Attributes:
        name: the row's unique name.
        make: creates the step for a device and a compiler.
        small: why launch overhead dominates, so that replaying a graph must be faster; otherwise
            empty.
        gate: a check in torch that favors the device name "cpu"; empty if there is none.
    """

    name: str
    make: Callable[[torch.device, Compiler], Step]
    small: str = ""
    gate: str = ""

    @property
    def bound(self) -> float:
        """The bound for the ratio of the device's time to the CPU's time, both compiled."""
        return 1.40 if self.gate else 1.10

    @property
    def replay_bound(self) -> float | None:
        """The bound for the ratio of the device's time with replay to the CPU's without replay."""
        return 0.90 if self.small else None


def pointwise(device: torch.device, compiled: Compiler) -> Step:
    """Makes a step that applies eight pointwise operations to a million values."""
    x, y = random(2, 1_000_000).to(device)
    function = compiled(lambda x, y: ((x * y + 1).relu() - 0.5 * x) / (y.abs() + 1) + x)
    return lambda: function(x, y)


def softmax(device: torch.device, compiled: Compiler) -> Step:
    """Makes a step that computes a softmax of rows between pointwise operations."""
    x = random(1024, 512).to(device)
    function = compiled(lambda x: torch.softmax(x * 2 + 1, -1) * x + 1)
    return lambda: function(x)


def gelu_mlp(device: torch.device, compiled: Compiler) -> Step:
    """Makes a step that runs three wide linear layers without gradients."""
    return inference(large_mlp, (64, 512), device, compiled)


def inference(
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    device: torch.device,
    compiled: Compiler,
) -> Step:
    """Makes a step that runs a module without gradients."""
    torch.manual_seed(0)
    model = compiled(make().to(device).eval())
    x = random(*shape).to(device)

    def step() -> Tensor:
        with torch.no_grad():
            result: Tensor = model(x)
        return result

    return step


def transformer_inference(device: torch.device, compiled: Compiler) -> Step:
    """Makes a step that runs an encoder layer on 8 x 64 tokens, without torch's fused operator."""
    torch.backends.mha.set_fastpath_enabled(False)
    return inference(transformer_layer, (8, 64, 128), device, compiled)


def transformer_training(device: torch.device, compiled: Compiler) -> Step:
    """Makes a step that trains an encoder layer, without an optimizer, which is a separate case."""
    torch.manual_seed(0)
    layer = transformer_layer().to(device)
    model = compiled(layer)
    x = random(8, 64, 128).to(device)

    def step() -> Tensor:
        layer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        gradient = layer.linear1.weight.grad
        assert gradient is not None
        return gradient

    return step


class Decoder(nn.Module):
    """A layer that computes one new token from the keys and values of 128 earlier tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(256)
        self.projection = nn.Linear(256, 3 * 256)
        self.output = nn.Linear(256, 256)
        self.past: Tensor
        self.register_buffer("past", torch.randn(2, 1, 4, 128, 64))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the layer's result for a token of shape (1, 1, 256)."""
        query, key, value = self.projection(self.norm(x)).view(1, 1, 3, 4, 64).unbind(2)
        keys = torch.cat([self.past[0], key.transpose(1, 2)], 2)
        values = torch.cat([self.past[1], value.transpose(1, 2)], 2)
        read = F.scaled_dot_product_attention(query.transpose(1, 2), keys, values)
        result: Tensor = F.gelu(self.output(read.transpose(1, 2).reshape(1, 1, 256)))
        return x + result


def decoder_step(device: torch.device, compiled: Compiler) -> Step:
    """Makes a step that computes one new token for one sequence."""
    return inference(Decoder, (1, 1, 256), device, compiled)


def lstm_cell(device: torch.device, compiled: Compiler) -> Step:
    """Makes a step that runs an LSTM cell of width 64, written in Python, on a batch of 8."""
    torch.manual_seed(0)
    linear = nn.Linear(128, 256).to(device)
    x, hidden, state = random(3, 8, 64).to(device)

    def cell(x: Tensor, hidden: Tensor, state: Tensor) -> Tensor:
        read, keep, fresh, show = linear(torch.cat([x, hidden], 1)).chunk(4, 1)
        state = keep.sigmoid() * state + read.sigmoid() * fresh.tanh()
        result: Tensor = show.sigmoid() * state.tanh()
        return result

    function = compiled(cell)

    def step() -> Tensor:
        with torch.no_grad():
            result: Tensor = function(x, hidden, state)
        return result

    return step


def convolution_block(device: torch.device, compiled: Compiler) -> Step:
    """Makes a step that runs convolution, batch norm and ReLU on 8 images."""

    def make() -> nn.Module:
        return nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())

    return inference(make, (8, 16, 32, 32), device, compiled)


def optimizer_step(device: torch.device, compiled: Compiler) -> Step:
    """Makes a step that runs AdamW on the weights of three small linear layers."""
    torch.manual_seed(0)
    model = small_mlp().to(device)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    update = compiled(lambda: optimizer.step())
    first = next(model.parameters())

    def step() -> Tensor:
        update()
        return first.detach()

    return step


COMPILE_CASES = (
    CompileCase("pointwise chain 1M", pointwise),
    CompileCase("softmax chain", softmax),
    CompileCase("GELU MLP", gelu_mlp),
    CompileCase("transformer layer inference", transformer_inference),
    CompileCase("transformer layer training", transformer_training),
    CompileCase("decoder step, batch 1", decoder_step, small="one token: each product has one row"),
    CompileCase("LSTM cell", lstm_cell, small="three kernels on 8 rows"),
    CompileCase(
        "conv-bn-relu block",
        convolution_block,
        gate="graph.decide_layout_opt: channels last on cpu and xpu",
    ),
    CompileCase("optimizer step", optimizer_step, small="six weights, 26,000 elements in total"),
)


def case_named(name: str) -> CompileCase:
    """Returns the case with the given name."""
    (case,) = (case for case in COMPILE_CASES if case.name == name)
    return case
