# SPDX-License-Identifier: BSD-3-Clause
"""The cases of the eager benchmark: a table of small functions that take a device.

A function creates its inputs on the CPU from a fixed seed, moves them to the device, and returns
the step to time. A step returns a tensor, so that a test can compare the results of the devices. A
step waits for the device only where a typical program does.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from examples.digits.model import DigitClassifier
from examples.digits.training import BATCH
from examples.digits.training import new_optimizer as new_digits_optimizer
from examples.digits.training import step as digits_step

Step = Callable[[], Tensor]


@dataclass(frozen=True)
class Case:
    """One row in the table.

    Attributes:
        group: the name of a group of cases whose times are dominated by the same cost.
        name: the row's unique name.
        make: creates the step for a device.
        bound: the maximum ratio to the CPU's time; None means the benchmark's bound.
        deterministic: whether all devices must return the same values.
        tolerance: the absolute tolerance of the results; the relative tolerance is a tenth of it.
    """

    group: str
    name: str
    make: Callable[[torch.device], Step]
    bound: float | None = None
    deterministic: bool = True
    tolerance: float = 1e-3


def random(*shape: int) -> Tensor:
    """Returns normally distributed float32 values on the CPU, which are the same in each call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def unary(
    operator: Callable[[Tensor], Tensor], shape: tuple[int, ...], device: torch.device
) -> Step:
    """Makes a step that calls an operator with one tensor argument."""
    x = random(*shape).to(device)
    return lambda: operator(x)


def binary(
    operator: Callable[[Tensor, Tensor], Tensor], shape: tuple[int, ...], device: torch.device
) -> Step:
    """Makes a step that calls an operator with two tensor arguments of the same shape."""
    x, y = random(2, *shape).to(device)
    return lambda: operator(x, y)


def views(device: torch.device) -> Step:
    """Makes a step that creates a chain of views, without computation."""
    x = random(32, 64).to(device)

    def step() -> Tensor:
        y = x.view(8, 4, 64).transpose(0, 1)[1:].unsqueeze(0)
        return y.expand(2, -1, -1, -1).permute(3, 2, 1, 0)

    return step


def softmax_layer_norm(device: torch.device) -> Step:
    """Makes a step that computes a softmax and a layer norm."""
    x = random(256, 512).to(device)
    return lambda: F.layer_norm(x.softmax(-1), (512,))


def convolution(device: torch.device) -> Step:
    """Makes a step that applies a 3 x 3 convolution to 8 images."""
    x, weight = random(8, 16, 32, 32).to(device), random(32, 16, 3, 3).to(device)
    return lambda: F.conv2d(x, weight, padding=1)


def embedding(device: torch.device) -> Step:
    """Makes a step that looks up 4,096 rows in a table of 10,000."""
    table = random(10_000, 64).to(device)
    index = (torch.arange(4096) * 7919 % 10_000).to(device)
    return lambda: F.embedding(index, table)


def indexing(device: torch.device) -> Step:
    """Makes a step that indexes with two index tensors (advanced indexing)."""
    x = random(512, 512).to(device)
    rows = (torch.arange(16_384) * 7919 % 512).to(device)
    columns = (torch.arange(16_384) * 104_729 % 512).to(device)
    return lambda: x[rows, columns]


def distances(device: torch.device) -> Step:
    """Makes a step that computes the Euclidean distances between two sets of 256 points."""
    x, y = random(2, 256, 64).to(device)
    return lambda: torch.cdist(x, y)


def allocation(size: int, device: torch.device) -> Step:
    """Makes a step that allocates a tensor and frees it immediately."""
    return lambda: torch.empty(size, device=device)


def copy_in(size: int, pinned: bool, device: torch.device) -> Step:
    """Makes a step that copies from the host to the device; on the CPU, a plain copy."""
    x = random(size)
    if pinned and device.type != "cpu":
        x = x.pin_memory()
    return lambda: x.to(device, copy=True, non_blocking=pinned)


def copy_out(size: int, device: torch.device) -> Step:
    """Makes a step that copies from the device to the host and waits; on the CPU, a plain copy."""
    x = random(size).to(device)
    return lambda: x.to("cpu", copy=True)


def precision(device: torch.device, amp: bool) -> AbstractContextManager[object]:
    """Returns an autocast region for bfloat16, or a context manager without effect."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if amp else nullcontext()


def training(
    model: Callable[[], nn.Module], shape: tuple[int, ...], device: torch.device, amp: bool = False
) -> Step:
    """Makes an AdamW training step: set the gradients to None, forward, backward, update."""
    torch.manual_seed(0)
    network = model().to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    x = random(*shape).to(device)
    y = torch.randn_like(network(x).detach(), device="cpu").to(device)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with precision(device, amp):
            loss = F.mse_loss(network(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def small_mlp() -> nn.Module:
    """Returns three small linear layers. Launch overhead dominates their time."""
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    )


def large_mlp() -> nn.Module:
    """Returns three linear layers of width 1024. Matrix products dominate their time."""
    return nn.Sequential(
        nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 512)
    )


def cnn() -> nn.Module:
    """Returns a small convolutional network with batch norm, for images of 3 x 32 x 32."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 8 * 8, 10),
    )  # fmt: skip


class Lstm(nn.LSTM):
    """An LSTM with one layer of width 64, which returns the sequence of outputs."""

    def __init__(self) -> None:
        super().__init__(32, 64, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Returns the outputs without the final states."""
        outputs: Tensor = super().forward(x)[0]
        return outputs


def transformer_layer() -> nn.TransformerEncoderLayer:
    """Returns an encoder layer of width 128 with 4 heads and no dropout."""
    return nn.TransformerEncoderLayer(
        d_model=128, nhead=4, dim_feedforward=512, dropout=0.0, batch_first=True
    )


def inference(model: Callable[[], nn.Module], shape: tuple[int, ...], device: torch.device) -> Step:
    """Makes a step that runs a forward pass without gradients, in autocast with cached weights."""
    torch.manual_seed(0)
    network = model().to(device).eval()
    x = random(*shape).to(device)

    @torch.inference_mode()
    def step() -> Tensor:
        with precision(device, amp=True):
            result: Tensor = network(x)
        return result

    return step


def digits_training(device: torch.device, amp: bool = False) -> Step:
    """Makes a training step from //examples/digits, including the copy of the batch."""
    torch.manual_seed(0)
    model = DigitClassifier().to(device)
    optimizer = new_digits_optimizer(model)
    scaler = torch.amp.GradScaler(device.type, enabled=amp)
    images, labels = random(BATCH, 1, 8, 8), torch.arange(BATCH) % 10
    if device.type != "cpu":
        images, labels = images.pin_memory(), labels.pin_memory()
    return lambda: digits_step(
        model,
        optimizer,
        scaler,
        images.to(device, non_blocking=True),
        labels.to(device, non_blocking=True),
    )


def transformer_pass(device: torch.device, amp: bool = False) -> Step:
    """Makes a step that runs four layers without gradients and returns the last position."""
    torch.manual_seed(0)
    layers = [transformer_layer() for _ in range(4)]
    model = nn.Sequential(*layers).to(device).eval()
    x = random(1, 32, 128).to(device)

    @torch.inference_mode()
    def step() -> Tensor:
        with precision(device, amp):
            last: Tensor = model(x)[:, -1]
        return last.float()

    return step


def read(make: Callable[[torch.device], Step], device: torch.device) -> Step:
    """Makes a step that copies another step's result to the host."""
    step = make(device)
    return lambda: step().cpu()


# These functions have names so that the lines of the table below are short.
def _add_in_place(x: Tensor, y: Tensor) -> Tensor:
    return x.add_(y)


def _sort(x: Tensor) -> Tensor:
    return x.sort(-1).values


def _topk(x: Tensor) -> Tensor:
    return x.topk(10, -1).values


CASES: tuple[Case, ...] = (
    Case("tiny", "add 16", partial(binary, torch.add, (16,))),
    Case("tiny", "add_ 16", partial(binary, _add_in_place, (16,))),
    Case("tiny", "mul 16", partial(binary, torch.mul, (16,))),
    Case("tiny", "mm 16x16", partial(binary, torch.mm, (16, 16))),
    Case("tiny", "add 64", partial(binary, torch.add, (64,))),
    Case("tiny", "add_ 64", partial(binary, _add_in_place, (64,))),
    Case("tiny", "mul 64", partial(binary, torch.mul, (64,))),
    Case("tiny", "sum 64", partial(unary, torch.sum, (64,))),
    Case("tiny", "views", views),
    Case("elementwise", "add 64k", partial(binary, torch.add, (65_536,))),
    Case("elementwise", "mul 64k", partial(binary, torch.mul, (65_536,))),
    Case("elementwise", "gelu 64k", partial(unary, F.gelu, (65_536,))),
    Case("elementwise", "add 16M", partial(binary, torch.add, (16_777_216,))),
    Case("elementwise", "exp 16M", partial(unary, torch.exp, (16_777_216,))),
    Case("reduction", "sum 64k", partial(unary, torch.sum, (65_536,))),
    Case("reduction", "mean of rows 64k", partial(unary, partial(torch.mean, dim=-1), (256, 256))),
    Case("reduction", "sum 16M", partial(unary, torch.sum, (16_777_216,))),
    Case("reduction", "max of rows 16M", partial(unary, partial(torch.amax, dim=-1), (4096, 4096))),
    Case("matmul", "mm 64x64", partial(binary, torch.mm, (64, 64))),
    Case("matmul", "mm 256x256", partial(binary, torch.mm, (256, 256))),
    Case("matmul", "mm 1024x1024", partial(binary, torch.mm, (1024, 1024))),
    Case("network", "softmax + layer_norm", softmax_layer_norm),
    Case("network", "conv2d", convolution),
    Case("network", "embedding", embedding),
    Case("index", "advanced indexing", indexing),
    Case("index", "topk 10 of 64 x 1000", partial(unary, _topk, (64, 1000))),
    Case("index", "sort 64 x 1000", partial(unary, _sort, (64, 1000))),
    Case("index", "cdist 256 x 256", distances),
    Case("memory", "allocate 1 KiB", partial(allocation, 256), deterministic=False),
    Case("memory", "allocate 16 MiB", partial(allocation, 4_194_304), deterministic=False),
    Case("copy", "in 64 KiB", partial(copy_in, 16_384, False)),
    Case("copy", "in 64 KiB, pinned", partial(copy_in, 16_384, True)),
    Case("copy", "in 64 MiB", partial(copy_in, 16_777_216, False)),
    Case("copy", "in 64 MiB, pinned", partial(copy_in, 16_777_216, True)),
    Case("copy", "out 64 KiB", partial(copy_out, 16_384)),
    Case("copy", "out 64 MiB", partial(copy_out, 16_777_216)),
    Case("training", "small MLP", partial(training, small_mlp, (32, 64))),
    Case("training", "large MLP", partial(training, large_mlp, (64, 512))),
    Case("training", "CNN", partial(training, cnn, (16, 3, 32, 32))),
    Case("training", "LSTM", partial(training, Lstm, (8, 20, 32))),
    Case("training", "digits example", digits_training),
    Case("training", "transformer layer", partial(training, transformer_layer, (16, 32, 128))),
    Case("inference", "4-layer transformer", partial(read, transformer_pass)),
    *(
        Case("autocast", name, make, tolerance=5e-2)
        for name, make in (
            ("linear 512 to 512", partial(inference, partial(nn.Linear, 512, 512), (64, 512))),
            ("MLP inference", partial(inference, large_mlp, (64, 512))),
            ("CNN inference", partial(inference, cnn, (16, 3, 32, 32))),
            ("transformer inference", partial(read, partial(transformer_pass, amp=True))),
            ("small MLP training", partial(training, small_mlp, (32, 64), amp=True)),
            ("large MLP training", partial(training, large_mlp, (64, 512), amp=True)),
            ("CNN training", partial(training, cnn, (16, 3, 32, 32), amp=True)),
            (
                "transformer training",
                partial(training, transformer_layer, (16, 32, 128), amp=True),
            ),
            ("digits example with GradScaler", partial(digits_training, amp=True)),
        )
    ),
)
