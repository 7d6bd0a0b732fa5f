# SPDX-License-Identifier: BSD-3-Clause
"""A torch.compile backend that folds constants: x * 2 * 3 becomes x * 6.

    ./bazelw run //examples/compile:const_fold

The pass runs on AOTAutograd's forward and backward graphs. It is simple, because these graphs have
no in-place writes. It also folds constants in the gradient. Some chains cannot be folded. For
example, x * 0.1 * 0.3 differs from x * 0.03 for some x, because each product is rounded.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from functorch.compile import make_boxed_func
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch_openreg_compile.passes.folding import fold

#: Descriptions of the folded chains, one line per step.
folded: list[str] = []


def _fold_and_run(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    folded.extend(fold(gm))
    return cast(Callable[..., Any], make_boxed_func(gm.forward))


const_fold = aot_autograd(fw_compiler=_fold_and_run)


def scale(x: Tensor) -> Tensor:
    """Computes two chains of products. The first can be folded, and the second cannot."""
    return x * 2 * 3 + x * 0.1 * 0.3


def main() -> int:
    """Compiles the function and compares the result with eager mode, bit by bit."""
    x = torch.randn(1000, device="openreg", requires_grad=True)
    result, expected = torch.compile(scale, backend=const_fold)(x), scale(x)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), x)
    print(*folded, sep="\n")
    same = torch.equal(result, expected) and torch.equal(gradient, expected_gradient)
    print("the same bits as in eager mode" if same else "different bits than in eager mode")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
