# SPDX-License-Identifier: BSD-3-Clause
"""Runs a function on the CPU and on the device, and compares everything that a caller can observe.

For a successful call, these are values, dtypes, sizes, strides and gradients. For a failed call,
these are the exception and its text.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

DEVICE = torch.device("openreg")

# Relative and absolute tolerances. The device's kernels may use more or fewer threads than the
# CPU's and therefore add numbers in a different order.
TOLERANCES = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (1e-4, 1e-4),
    torch.complex64: (1e-4, 1e-4),
    torch.bfloat16: (2e-2, 2e-2),
    torch.float16: (4e-3, 4e-3),
}

Function = Callable[..., Any]


def to_device(tensor: Tensor) -> Tensor:
    """Returns a device leaf with the same storage contents, strides, offset and requires_grad."""
    flat = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    with torch.no_grad():
        copy = flat.to(DEVICE).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
    return copy.detach().requires_grad_(tensor.requires_grad)


def _strides(tensor: Tensor) -> list[int]:
    """Returns the strides of dimensions with more than one element, or [] for an empty tensor."""
    if tensor.numel() == 0:
        return []
    return [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]


def _tolerance(dtypes: Iterable[torch.dtype]) -> tuple[float, float]:
    """Returns relative and absolute tolerances for the least precise dtype (0 for integers)."""
    return max((TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes), default=(0.0, 0.0))


def assert_same(
    actual: Any,
    expected: Any,
    *,
    exact_strides: bool = True,
    computed_in: Iterable[torch.dtype] = (),
) -> None:
    """Checks that ``actual`` on the device equals ``expected`` on the CPU. Both may be nested.

    ``computed_in`` lists the operands' dtypes, which may be less precise than the result's dtype.
    """
    actual_leaves = tree_leaves(actual)
    expected_leaves = tree_leaves(expected)
    assert len(actual_leaves) == len(expected_leaves)
    for ours, theirs in zip(actual_leaves, expected_leaves, strict=True):
        if not isinstance(theirs, Tensor):
            assert ours == theirs
            continue
        assert ours.device.type == DEVICE.type
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if exact_strides:
            assert _strides(ours) == _strides(theirs)
        rtol, atol = (
            _tolerance([theirs.dtype, *computed_in])
            if theirs.dtype.is_floating_point
            else _tolerance([theirs.dtype])
        )
        if theirs.dtype.itemsize == 1:
            rtol, atol = 0.0, 0.0  # float8, which torch compares bitwise
        assert_close(ours.detach().cpu(), theirs.detach(), rtol=rtol, atol=atol, equal_nan=True)


def _copy(tensor: Tensor) -> Tensor:
    """Copies a CPU tensor in the same way as to_device, so that a function can change the copy."""
    storage = tensor.untyped_storage().clone()
    copy = torch.empty(0, dtype=tensor.dtype).set_(
        storage, tensor.storage_offset(), tensor.size(), tensor.stride()
    )
    return copy.requires_grad_(tensor.requires_grad)


def check(function: Function, *tensors: Any, strides: bool = True, backward: bool = True) -> None:
    """Compares results, arguments that were changed in place, and gradients.

    ``tensors`` are CPU tensors and other arguments. The device gets copies with the same strides.
    Gradients are computed for all differentiable results, from random output gradients.
    """
    theirs = [_copy(a) if isinstance(a, Tensor) else a for a in tensors]
    ours = [to_device(a) if isinstance(a, Tensor) else a for a in tensors]
    expected = function(*theirs)
    actual = function(*ours)
    computed_in = {a.dtype for a in tensors if isinstance(a, Tensor)}
    assert_same(actual, expected, exact_strides=strides, computed_in=computed_in)
    changed = [i for i, a in enumerate(tensors) if isinstance(a, Tensor)]
    assert_same([ours[i] for i in changed], [theirs[i] for i in changed], computed_in=computed_in)
    leaves = [i for i in changed if tensors[i].requires_grad]
    pairs = [
        (ours_out, theirs_out)
        for ours_out, theirs_out in zip(tree_leaves(actual), tree_leaves(expected), strict=True)
        if isinstance(theirs_out, Tensor) and theirs_out.requires_grad
    ]
    if not backward or not leaves or not pairs:
        return
    gradients = [torch.randn_like(theirs_out) for _, theirs_out in pairs]
    expected_gradients = torch.autograd.grad(
        [theirs_out for _, theirs_out in pairs],
        [theirs[i] for i in leaves],
        gradients,
        allow_unused=True,
    )
    actual_gradients = torch.autograd.grad(
        [ours_out for ours_out, _ in pairs],
        [ours[i] for i in leaves],
        [to_device(gradient) for gradient in gradients],
        allow_unused=True,
    )
    for got, wanted in zip(actual_gradients, expected_gradients, strict=True):
        assert (got is None) == (wanted is None)
    assert_same(
        [g for g in actual_gradients if g is not None],
        [g for g in expected_gradients if g is not None],
        exact_strides=strides,
        computed_in=computed_in,
    )


def check_error(function: Function, *tensors: Any, words: str | None = None) -> None:
    """Checks that a call raises the same exception with the same first line on both sides.

    If ``words`` is specified, both messages must contain it instead. Messages that name a tensor's
    type also name its device, and therefore differ.
    """
    failures = []
    for arguments in (tensors, [to_device(a) if isinstance(a, Tensor) else a for a in tensors]):
        try:
            function(*arguments)
        except Exception as error:
            failures.append(error)
        else:
            raise AssertionError(
                f"the call raised no error on {'the device' if failures else 'the CPU'}"
            )
    theirs, ours = failures
    assert type(ours) is type(theirs), f"the device raised {ours!r}, the CPU {theirs!r}"
    if words is None:
        # The message of a kernel error is torch's text, followed by the kernel's name.
        words = str(theirs).split("\n")[0]
        first = str(ours).split("\n")[0]
        assert first == words or first.startswith(f"{words} (openreg: kernel ")
    else:
        assert words in str(theirs)
        assert words in str(ours)


def is_queued(function: Function, *tensors: Tensor) -> bool:
    """Returns whether a call returns before its kernel runs. Also checks the call's results."""
    ours: Sequence[Tensor] = [to_device(tensor) for tensor in tensors]
    function(*ours)  # warm-up: the first call may wait
    torch.openreg.synchronize()
    torch.openreg._sleep(200_000_000)
    actual = function(*ours)
    queued = not torch.openreg.current_stream().query()
    assert_same(actual, function(*tensors))
    return queued
