# SPDX-License-Identifier: BSD-3-Clause
"""Times quantized and float32 linear layers on one device, in an MLP and a transformer layer.

The variants run their windows in turn, so that a drift of the machine affects them equally. The
report also contains the size of the weights and the error of the results relative to float32.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from benchmarks.eager import machine
from examples.digits.quantization import Int8Linear, quantize_rows
from tools.flags.flags import Flags, device, output, whole_number

WIDTH = 1024
HEADS = 16
GROUP = 64  # the number of columns of a 4-bit weight that share a scale
TILES = 8
WINDOW = 0.1  # seconds


class Int8Weight(nn.Module):
    """A linear layer with an int8 weight and a floating-point product."""

    weight: Tensor
    scales: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight, scales = quantize_rows(linear.weight.detach())
        self.register_buffer("weight", weight)
        self.register_buffer("scales", scales.flatten())
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """Maps (..., in) to (..., out)."""
        out = torch._weight_int8pack_mm(x.reshape(-1, x.shape[-1]), self.weight, self.scales)
        return (out + self.bias).view(*x.shape[:-1], -1)


class Int4Weight(nn.Module):
    """A linear layer with a 4-bit weight, which has a scale and a zero point for each group."""

    weight: Tensor
    scales_and_zeros: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        groups = linear.weight.detach().unflatten(1, (-1, GROUP))
        low, high = groups.amin(2, keepdim=True), groups.amax(2, keepdim=True)
        scales = (high - low).clamp(min=1e-9) / 15
        numbers = ((groups - low) / scales).round().clamp(0, 15).flatten(1).to(torch.uint8)
        pairs = numbers[:, ::2] << 4 | numbers[:, 1::2]
        self.register_buffer("weight", torch._convert_weight_to_int4pack(pairs, TILES))
        # The value 8 represents the zero point.
        pair = torch.cat([scales, low + 8 * scales], 2).transpose(0, 1).contiguous()
        self.register_buffer("scales_and_zeros", pair)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """Maps (..., in) to (..., out)."""
        rows = x.reshape(-1, x.shape[-1])
        out = torch._weight_int4pack_mm(rows, self.weight, GROUP, self.scales_and_zeros)
        return (out + self.bias).view(*x.shape[:-1], -1)


class Layer(nn.Module):
    """A transformer layer: attention and an MLP, each with a norm and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.project_in, self.project_out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (batch, positions, WIDTH) to the same shape."""
        inner = self.project_in(self.norms[0](x)).unflatten(-1, (3, HEADS, -1))
        query, key, value = inner.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        x = x + self.project_out(mixed.transpose(1, 2).flatten(2))
        out: Tensor = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return out


def mlp() -> nn.Module:
    """Returns three linear layers with ReLU between them."""
    return nn.Sequential(
        nn.Linear(WIDTH, 4 * WIDTH),
        nn.ReLU(),
        nn.Linear(4 * WIDTH, 4 * WIDTH),
        nn.ReLU(),
        nn.Linear(4 * WIDTH, WIDTH),
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[int, ...]]]] = {
    "MLP": (mlp, lambda rows: (rows, WIDTH)),
    "transformer layer": (Layer, lambda rows: (1, rows, WIDTH)),
}
WAYS: dict[str, Callable[[nn.Linear], nn.Module]] = {
    "float32": lambda linear: linear,
    "int8 weights": Int8Weight,
    "int8 weights and inputs": Int8Linear,
    "int4 weights": Int4Weight,
}


@dataclass(frozen=True)
class Row:
    """The results of one model in one variant, for one number of input rows.

    Attributes:
        microseconds: the median time of a call over the rounds.
        ratio: the median, over the rounds, of the ratio of the time to float32's time.
        megabytes: the size of the linear layers' weights, including scales and biases.
        error: the relative error of the result, as a vector, compared with float32's result.
    """

    model: str
    rows: int
    way: str
    microseconds: float
    ratio: float
    megabytes: float
    error: float


def replaced(model: nn.Module, way: str) -> nn.Module:
    """Replaces the linear layers of a model in place and returns the model. Biases are shared."""
    for name, child in model.named_children():
        if isinstance(child, nn.Linear):
            setattr(model, name, WAYS[way](child))
        else:
            replaced(child, way)
    return model


def megabytes(model: nn.Module) -> float:
    """Returns the size of all parameters and buffers of linear layers of all variants."""
    layers = [
        m for m in model.modules() if type(m) in (nn.Linear, Int8Weight, Int8Linear, Int4Weight)
    ]
    tensors = [t for layer in layers for t in layer.state_dict().values()]
    size: float = sum(t.numel() * t.itemsize for t in tensors) / 1e6
    return size


def measure(where: torch.device, name: str, rows: int, rounds: int) -> list[Row]:
    """Times all variants of a model for inputs with the given number of rows."""
    make, shape = MODELS[name]
    models = {}
    for way in WAYS:
        torch.manual_seed(0)
        models[way] = replaced(make().eval().to(where), way)
    x = torch.randn(shape(rows)).to(where)

    def seconds(model: nn.Module, calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            model(x)
        torch.accelerator.synchronize(where)
        return time.perf_counter() - start

    exact = models["float32"](x)
    errors = {
        way: ((model(x) - exact).norm() / exact.norm()).item() for way, model in models.items()
    }
    calls = {way: 1 + int(WINDOW / seconds(model, 3) * 3) for way, model in models.items()}
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, model in models.items():
            seconds(model, calls[way] // 4 + 1)
            times[way].append(seconds(model, calls[way]) / calls[way])
    ratios = {
        way: [a / b for a, b in zip(times[way], times["float32"], strict=True)] for way in WAYS
    }
    return [
        Row(
            name,
            rows,
            way,
            1e6 * statistics.median(times[way]),
            statistics.median(ratios[way]),
            megabytes(models[way]),
            errors[way],
        )
        for way in WAYS
    ]


def table(rows: Sequence[Row]) -> str:
    """Formats the rows as a Markdown table."""
    lines = [
        "| model | rows | weights | us | ratio | MB | error |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.model} | {row.rows} | {row.way} | {row.microseconds:,.0f} | {row.ratio:.2f} | "
        f"{row.megabytes:.1f} | {row.error:.1%} |"
        for row in rows
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark and prints the table."""
    parser = Flags("quantized", __doc__)
    parser.add_argument("--device", type=device, default="openreg", help="device to compute on")
    parser.add_argument("--rounds", type=whole_number(1), default=9, help="windows of each variant")
    parser.add_argument(
        "--threads", type=whole_number(1), help="threads for kernels; by default torch's choice"
    )
    parser.add_argument("--json", type=output, metavar="FILE", help="write the figures to FILE")
    flags = parser.parse_args(argv)
    if flags.threads:
        torch.set_num_threads(flags.threads)
    found: list[Row] = []
    with torch.inference_mode(), tqdm(total=4, disable=None) as bar:
        for name in MODELS:
            for rows in (1, 128):
                found += measure(flags.device, name, rows, flags.rounds)
                bar.update()
    print(table(found))
    if flags.json:
        figures: dict[str, Any] = {"machine": machine(), "rows": [asdict(row) for row in found]}
        flags.json.write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
