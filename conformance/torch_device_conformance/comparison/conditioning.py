# SPDX-License-Identifier: BSD-3-Clause
"""Compares values with a double-precision result, for ill-conditioned samples.

A device's kernels may add numbers in a different order than the CPU's, and therefore round
differently. Some samples amplify the rounding errors beyond every tolerance, for example a division
by a number near zero, or the steps of an optimizer with a line search. For such a sample, the CPU's
result is as inaccurate as the device's. Therefore a difference counts only if the device is less
accurate than the CPU.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

# The error of an accurate device is at most this multiple of the CPU's error. Two orders of
# addition may produce amplified rounding errors that differ by such a factor.
MOST_ERROR = 8.0


def widened(tree: Any) -> Any:
    """Returns a copy of a tree of leaf tensors in which single precision is widened to double."""
    wide = {torch.float32: torch.float64, torch.complex64: torch.complex128}

    def widen(x: Tensor) -> Tensor:
        if x.dtype not in wide:
            return x
        return x.detach().to(wide[x.dtype]).requires_grad_(x.requires_grad)

    return tree_map_only(Tensor, widen, tree)


def is_accurate(actual: Any, expected: Any, exact: Any) -> bool:
    """Returns whether the device's value is about as close to the exact value as the CPU's.

    Args:
        actual: the device's value.
        expected: the CPU's value in the same dtype.
        exact: the CPU's value in double precision.
    """
    if isinstance(exact, float):
        actual, expected, exact = (
            torch.tensor(x, dtype=torch.float64) for x in (actual, expected, exact)
        )
    if not isinstance(exact, Tensor) or not (exact.is_floating_point() or exact.is_complex()):
        return bool(_plain(actual) == _plain(expected))
    if exact.layout != torch.strided or exact.is_nested or exact.shape != expected.shape:
        return False
    found, wanted = (x.detach().cpu().to(exact.dtype) for x in (actual, expected))
    exact = exact.detach()
    finite = exact.isfinite() & wanted.isfinite()
    if not torch.equal(found[~finite].nan_to_num(), wanted[~finite].nan_to_num()):
        return False
    mine, cpus = ((x - exact)[finite].abs() for x in (found, wanted))
    return not mine.numel() or bool(mine.max() <= MOST_ERROR * cpus.max())


def _plain(value: Any) -> Any:
    """Returns the value in a form that == compares as a whole."""
    return value.detach().cpu().tolist() if isinstance(value, Tensor) else value
