# SPDX-License-Identifier: BSD-3-Clause
"""Compares two runs of a sample.

Forward results must agree in structure, device, layout, dtype, shape, strides and values. Gradients
must agree in all of these except strides.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import check_significant_strides
from torch.testing import assert_close
from torch_device_conformance.comparison.entry import Run
from torch_device_conformance.comparison.evidence import (
    ACCEPTS,
    LATE,
    RAISES,
    WRONG,
)
from torch_device_conformance.comparison.wording import wording


class Difference(Exception):
    """The device behaves differently from the CPU.

    Attributes:
        kind: WRONG (results differ), RAISES (only the device raises an error), ACCEPTS (only the
            CPU raises an error) or LATE (the device raises its error after the call).
        largest: the largest absolute difference between values, if values differ.
    """

    def __init__(self, message: str, kind: str = WRONG, largest: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.largest = largest


def check_metadata(what: str, actual: Any, expected: Any, device: torch.device) -> None:
    """Checks a leaf's type, device, layout, dtype, shape and requires_grad.

    Raises:
        Difference: one of these properties differs.
    """
    if isinstance(expected, Tensor) != isinstance(actual, Tensor):
        raise Difference(
            f"{what} is a {type(actual).__name__}, expected a {type(expected).__name__}"
        )
    if not isinstance(expected, Tensor):
        return
    pairs: list[tuple[str, Any, Any]] = [
        ("device", actual.device.type, device.type),
        ("layout", actual.layout, expected.layout),
        ("dtype", actual.dtype, expected.dtype),
        ("shape", tuple(actual.shape), tuple(expected.shape)),
        ("requires_grad", actual.requires_grad, expected.requires_grad),
    ]
    for name, found, wanted in pairs:
        if found != wanted:
            raise Difference(f"{what}: {name} is {found}, expected {wanted}")


def check_strides(what: str, actual: Any, expected: Any) -> None:
    """Checks the strides of dimensions with more than one element. Other strides do not matter.

    Raises:
        Difference: the strides differ.
    """
    if isinstance(expected, Tensor) and expected.layout == torch.strided:
        same, _ = check_significant_strides(actual, expected, only_cuda=False)
        if not same:
            raise Difference(f"{what}: strides are {actual.stride()}, expected {expected.stride()}")


def check_values(what: str, actual: Any, expected: Any, rtol: float, atol: float) -> None:
    """Checks that values agree within the tolerances. Integers must be equal. NaN equals NaN.

    Raises:
        Difference: values differ by more than the tolerances allow.
    """
    if isinstance(expected, Tensor):
        actual, expected = actual.detach().cpu(), expected.detach()
        if not (expected.is_floating_point() or expected.is_complex()):
            rtol = atol = 0
    elif not isinstance(expected, (bool, int, float, complex)):
        if actual != expected:
            raise Difference(f"{what} is {actual!r}, expected {expected!r}")
        return
    try:
        assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
    except AssertionError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise Difference(
            f"{what}: {' '.join(lines[:3])}", largest=largest_difference(actual, expected)
        ) from None


def largest_difference(actual: Any, expected: Any) -> float | None:
    """Returns the largest absolute difference between two values, or None if it is undefined."""
    try:
        wide = [torch.as_tensor(value).detach().cpu().to_dense() for value in (actual, expected)]
        kind = torch.complex128 if any(value.is_complex() for value in wide) else torch.float64
        gap = (wide[0].to(kind) - wide[1].to(kind)).abs()
        return gap.nan_to_num(nan=math.inf).max().item() if gap.numel() else None
    except RuntimeError:  # the shapes differ, or the tensors are quantized or nested
        return None


def check_errors(actual: Exception | None, expected: Exception | None) -> None:
    """Checks that either both runs raised an exception or neither did.

    If the wording rules of this process require it, the types and the texts must be equal, too.
    Only the first lines of the texts are compared, without the text that the device adds.

    Raises:
        Difference: the exceptions differ.
    """
    if actual is None and expected is None:
        return
    if actual is None or expected is None:
        kind = ACCEPTS if actual is None else RAISES
        raise Difference(f"raises {describe(actual)}, expected {describe(expected)}", kind)
    rules = wording()
    if not rules.compared:
        return
    if type(actual) is not type(expected):
        raise Difference(f"raises {describe(actual)}, expected {describe(expected)}", RAISES)
    found, wanted = (
        rules.addition.sub("", str(error).split("\n")[0]) for error in (actual, expected)
    )
    if "cpu" in found.lower() and "cpu" not in wanted.lower():
        raise Difference(
            f"the error message mentions the CPU: got {found!r}, expected {wanted!r}", RAISES
        )
    if found != wanted and not (rules.device.search(found) or rules.device.search(wanted)):
        raise Difference(f"the error message is {found!r}, expected {wanted!r}", RAISES)


def describe(error: Exception | None) -> str:
    """Returns the type and the first line of an exception as text, or "no error" for None."""
    if error is None:
        return "no error"
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def compare(
    actual: Run, expected: Run, device: torch.device, rtol: float, atol: float, values: bool = True
) -> None:
    """Compares two runs of a sample.

    Args:
        actual: the run on the device.
        expected: the run on the CPU.
        device: the device on which the results of `actual` must be.
        rtol: relative tolerance.
        atol: absolute tolerance.
        values: whether to compare values in addition to metadata.

    Raises:
        Difference: the runs differ. The exception describes the first difference.
    """
    check_errors(actual.error, expected.error)
    if actual.complaint:
        raise Difference(actual.complaint, LATE)
    for part, plural, found, wanted in (
        ("forward", "outputs", actual.outputs, expected.outputs),
        ("backward", "gradients", actual.gradients, expected.gradients),
    ):
        if found.keys() != wanted.keys():
            others = ", ".join(found.keys() ^ wanted.keys())
            raise Difference(
                f"{len(found)} {plural}, expected {len(wanted)}; only one side has {others}"
            )
        for name, wanted_leaf in wanted.items():
            what = f"{part}: {name}"
            check_metadata(what, found[name], wanted_leaf, device)
            if part == "forward":
                check_strides(what, found[name], wanted_leaf)
            if values:
                check_values(what, found[name], wanted_leaf, rtol, atol)
