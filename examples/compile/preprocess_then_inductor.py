# SPDX-License-Identifier: BSD-3-Clause
"""Runs passes before Inductor, which generates kernels for the rewritten graph.

    ./bazelw run //examples/compile:preprocess_then_inductor

The program also writes the graphs before and after the passes as Graphviz DOT files.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def normalized_gate(x: Tensor) -> Tensor:
    """Computes a layer norm and a SiLU from basic operators, and a chain of constants."""
    mean = x.mean(-1, keepdim=True)
    variance = x.var(-1, keepdim=True, unbiased=False)
    x = (x - mean) / torch.sqrt(variance + 1e-5)
    return x * torch.sigmoid(x) * 2 * 3


def main(folder: str | None = None) -> int:
    """Compiles the function and compares it with eager mode; writes graphs to `folder` if given."""
    dump = Path(folder or tempfile.mkdtemp(prefix="preprocess_"))
    options: dict[str, Any] = {
        "passes": ["layer_norm", "silu", "fold"],
        "then": "inductor",
        "debug": True,
        "dump": dump,
    }
    compiled = torch.compile(normalized_gate, backend="openreg", options=options)
    x = torch.randn(8, 32, device="openreg")
    result = compiled(x)
    same = torch.allclose(result, normalized_gate(x), atol=1e-5)
    for graph in sorted(dump.glob("*.dot")):
        print(graph)
    print(f"{result.device}: {'same' if same else 'different'} result as in eager mode")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:2]))
