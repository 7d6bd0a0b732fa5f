# SPDX-License-Identifier: BSD-3-Clause
"""Compares one entry of torch's operator database on a device with the same entry on the CPU.

Sample inputs are made once, on the CPU. Each run gets copies of its own with the same strides,
offsets and shared storages, so that no run sees what another one wrote. Forward results must agree
in structure, device, dtype, shape, strides and values, gradients of all differentiable inputs in
dtype, shape and values.

A random operator draws other numbers on another device. It is recognized by itself: the CPU
disagrees with the CPU under another seed. Then metadata must agree, and over many draws the
distribution of the values.
"""

import itertools
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._prims_common import check_significant_strides
from torch.testing import assert_close
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_map

from tests.sweep.outcome import AGREES, CPU_FAILS, DIFFERS, UNSUPPORTED, Outcome

CPU = torch.device("cpu")

# What assert_close allows float32 (and what is computed from it), unless an entry asks for more.
RELATIVE, ABSOLUTE = 1.3e-6, 1e-5

DRAWS = 100
# Kolmogorov-Smirnov: over DRAWS independent draws on each side, equal distributions are further
# apart than this once in a million.
MOST_APART = math.sqrt(-math.log(1e-6 / 2) / 2) * math.sqrt(2 / DRAWS)

# Their values are whatever the memory held.
UNINITIALIZED = frozenset(
    {
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
    }
)


# They make a tensor from numbers, on the CPU where a sample names no other device.
FACTORIES = frozenset({"arange", "linspace", "logspace"})

# Their further arguments steer the host and must be on the CPU, on every device.
STEERED_BY_CPU_TENSORS = frozenset({"tensor_split"})


class Difference(Exception):
    """The device does not do what the CPU does."""


class ReferenceError_(Exception):
    """The CPU itself cannot run the sample."""


@dataclass(frozen=True)
class Run:
    """Results of one call: leaves of the output, and a gradient (or None) for each input."""

    outputs: list[Any]
    gradients: list[Tensor | None]


def entry_name(op: OpInfo) -> str:
    """The operator's name, and its variant's."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def entries() -> dict[str, OpInfo]:
    """torch's operator database by name."""
    return {entry_name(op): op for op in common_methods_invocations.op_db}


def tolerances(op: OpInfo, dtype: torch.dtype) -> tuple[float, float]:
    """Relative and absolute tolerance: the widest that the entry asks of any test for the dtype."""
    rtol, atol = RELATIVE, ABSOLUTE
    for info in op.decorators:
        if not isinstance(info, DecorateInfo) or info.active_if is False:
            continue
        for decorator in info.decorators:
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                rtol = max(rtol, decorator.d[dtype].rtol)
                atol = max(atol, decorator.d[dtype].atol)
    return rtol, atol


def copy_to(sample: SampleInput, device: torch.device, only_input: bool = False) -> SampleInput:
    """Copies a sample of CPU tensors to a device (also to the CPU itself).

    Tensors keep strides and offset, and share a storage where they did.

    Args:
        sample: what to copy.
        device: where to.
        only_input: leaves the arguments after the first where they are.
    """
    if only_input:
        first = copy_to(SampleInput(sample.input), device).input
        return SampleInput(
            first,
            args=sample.args,
            kwargs=sample.kwargs,
            output_process_fn_grad=sample.output_process_fn_grad,
        )
    storages: dict[int, Tensor] = {}

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.device):
            return device if leaf.type == "cpu" else leaf
        if not isinstance(leaf, Tensor):
            return leaf
        with torch.no_grad():
            copy = move_tensor(leaf.detach())
        return copy.requires_grad_(leaf.requires_grad)

    def move_tensor(tensor: Tensor) -> Tensor:
        if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
            return tensor.to(device, copy=True)
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in storages:
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)
            storages[key] = whole.to(device, copy=True)
        view = torch.empty(0, dtype=tensor.dtype, device=device)
        result: Tensor = view.set_(
            storages[key].untyped_storage(),
            tensor.storage_offset(),
            tensor.size(),
            tensor.stride(),
        )
        return result

    moved = [move_names(tree_map(move, part), device) for part in (sample.input, *sample.args)]
    kwargs = {key: move_names(tree_map(move, part), device) for key, part in sample.kwargs.items()}
    return SampleInput(
        moved[0],
        args=tuple(moved[1:]),
        kwargs=kwargs,
        output_process_fn_grad=sample.output_process_fn_grad,
        broadcasts_input=sample.broadcasts_input,
        name=sample.name,
    )


def move_names(value: Any, device: torch.device) -> Any:
    """A device may also be named by a string."""
    return str(device) if value == "cpu" else value


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function."""
    return function(*args, **kwargs)


def run(op: OpInfo, sample: SampleInput, device: torch.device, backward: bool, seed: int) -> Run:
    """Runs a copy of a sample on a device, forward and, if asked, backward, and waits for it."""
    sample = copy_to(sample, device, op.name in STEERED_BY_CPU_TENSORS)
    inputs = [
        leaf
        for leaf in tree_flatten((sample.input, sample.args, sample.kwargs))[0]
        if isinstance(leaf, Tensor) and leaf.requires_grad
    ]
    torch.manual_seed(seed)
    # Many random entries seed themselves, always alike: here the seed is the caller's.
    with mock.patch.object(common_methods_invocations, "wrapper_set_seed", call):
        output = op(sample.input, *sample.args, **sample.kwargs)
    output = sample.output_process_fn_grad(output)
    outputs = tree_flatten(output)[0]
    gradients: list[Tensor | None] = []
    if backward and inputs:
        roots = [leaf for leaf in outputs if isinstance(leaf, Tensor) and leaf.requires_grad]
        # Its own generator, on the CPU: the same on every device.
        generator = torch.Generator().manual_seed(0)
        weights = [
            torch.randn(root.shape, dtype=root.dtype, generator=generator).to(root.device)
            for root in roots
        ]
        if roots:
            gradients = list(torch.autograd.grad(roots, inputs, weights, allow_unused=True))
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return Run(outputs, gradients)


def check_metadata(what: str, actual: Any, expected: Any, device: torch.device) -> None:
    """Structure, device, layout, dtype, shape, strides.

    Raises:
        Difference: one of them differs.
    """
    if isinstance(expected, Tensor) != isinstance(actual, Tensor):
        raise Difference(f"{what} is a {type(actual).__name__}, not a {type(expected).__name__}")
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
            raise Difference(f"{what}: {name} is {found}, not {wanted}")


def check_strides(what: str, actual: Any, expected: Any) -> None:
    """Strides, where the shape gives them a meaning.

    Raises:
        Difference: they differ.
    """
    if isinstance(expected, Tensor) and expected.layout == torch.strided:
        same, _ = check_significant_strides(actual, expected, only_cuda=False)
        if not same:
            raise Difference(f"{what}: strides are {actual.stride()}, not {expected.stride()}")


def check_values(what: str, actual: Any, expected: Any, rtol: float, atol: float) -> None:
    """Values within the tolerances; NaN equals NaN.

    Raises:
        Difference: they are further apart.
    """
    if isinstance(expected, Tensor):
        actual, expected = actual.detach().cpu(), expected.detach()
    elif not isinstance(expected, (bool, int, float, complex)):
        return
    try:
        assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
    except AssertionError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise Difference(f"{what}: {' '.join(lines[:3])}") from None


def compare(
    actual: Run, expected: Run, device: torch.device, rtol: float, atol: float, values: bool = True
) -> None:
    """Compares two runs of a sample.

    Args:
        actual: the run on the device.
        expected: the run on the CPU.
        device: where actual ran.
        rtol: relative tolerance.
        atol: absolute tolerance.
        values: whether values must agree, too.

    Raises:
        Difference: the first difference.
    """
    if len(actual.outputs) != len(expected.outputs):
        raise Difference(f"{len(actual.outputs)} outputs, not {len(expected.outputs)}")
    for number, (a, e) in enumerate(zip(actual.outputs, expected.outputs, strict=True)):
        what = f"forward: output {number}"
        check_metadata(what, a, e, device)
        check_strides(what, a, e)
        if values:
            check_values(what, a, e, rtol, atol)
    if len(actual.gradients) != len(expected.gradients):
        raise Difference(f"{len(actual.gradients)} gradients, not {len(expected.gradients)}")
    for number, (a, e) in enumerate(zip(actual.gradients, expected.gradients, strict=True)):
        what = f"backward: gradient {number}"
        check_metadata(what, a, e, device)
        if values:
            check_values(what, a, e, rtol, atol)


def agree(actual: Run, expected: Run, rtol: float, atol: float) -> bool:
    """Whether two runs on the CPU agree."""
    try:
        compare(actual, expected, CPU, rtol, atol)
    except Difference:
        return False
    return True


def numbers(run_: Run) -> list[Tensor]:
    """All real values of a run, one vector for each tensor, on the CPU."""
    result = []
    for leaf in (*run_.outputs, *run_.gradients):
        if isinstance(leaf, Tensor):
            flat = leaf.detach().cpu().to_dense().resolve_conj().flatten()
            result.append(
                (torch.view_as_real(flat).flatten() if flat.is_complex() else flat).double()
            )
    return result


def apart(first: Tensor, second: Tensor) -> float:
    """The Kolmogorov-Smirnov distance of two samples: the largest gap of their distributions."""
    if not first.numel() or not second.numel():
        return float(first.numel() != second.numel())
    # Where a value is missing counts as well: NaN is the largest number here.
    a, b = (
        x.nan_to_num(nan=math.inf, posinf=math.inf, neginf=-math.inf).sort().values
        for x in (first, second)
    )
    points = torch.cat([a, b])
    share_a = torch.searchsorted(a, points, right=True) / len(a)
    share_b = torch.searchsorted(b, points, right=True) / len(b)
    return (share_a - share_b).abs().max().item()


def compare_distributions(
    op: OpInfo, sample: SampleInput, device: torch.device, backward: bool
) -> None:
    """Draws often on both devices and compares what was drawn.

    Raises:
        Difference: the distributions are too far apart.
    """
    drawn = [
        [numbers(run(op, sample, where, backward, seed)) for seed in range(DRAWS)]
        for where in (device, CPU)
    ]
    pooled = [[torch.cat(draws) for draws in zip(*side, strict=True)] for side in drawn]
    for number, (a, e) in enumerate(zip(*pooled, strict=True)):
        distance = apart(a, e)
        if distance > MOST_APART:
            raise Difference(
                f"distribution: value {number} is {distance:.2f} apart, more than {MOST_APART:.2f}"
            )


def evaluate(op: OpInfo, device: torch.device, dtype: torch.dtype) -> Outcome:
    """Compares all samples of an entry, up to the first difference."""
    name = entry_name(op)
    start = time.perf_counter()
    if not op.supports_dtype(dtype, "cpu"):
        return Outcome(name, UNSUPPORTED)
    differentiable = op.supported_backward_dtypes("cpu")
    backward = op.supports_autograd and dtype in differentiable
    rtol, atol = tolerances(op, dtype)
    compared, done, status, message = "values", 0, AGREES, ""
    if op.name in UNINITIALIZED:
        compared = "metadata"
    try:
        for sample in samples(op, dtype, backward):
            expected = reference(op, sample, backward, 0)
            random = compared != "metadata" and not agree(
                reference(op, sample, backward, 1), expected, rtol, atol
            )
            if random:
                compared = "distribution"
            actual = run(op, sample, device, backward, 0)
            unnamed = op.name in FACTORIES and "device" not in sample.kwargs
            where = CPU if unnamed else device
            compare(actual, expected, where, rtol, atol, not random and compared != "metadata")
            if random:
                compare_distributions(op, sample, device, backward)
            done += 1
        if not done:
            status, message = CPU_FAILS, "the entry has no sample"
    except ReferenceError_ as error:
        status, message = CPU_FAILS, str(error)
    except Exception as error:
        kind = "" if isinstance(error, Difference) else f"{type(error).__name__}: "
        status, message = DIFFERS, f"{kind}{error} [sample {done}]"
        settle(device)
    return Outcome(name, status, compared, message, done, time.perf_counter() - start)


def samples(op: OpInfo, dtype: torch.dtype, backward: bool) -> list[SampleInput]:
    """The samples of an entry, the same each time.

    Raises:
        ReferenceError_: they cannot be made.
    """
    torch.manual_seed(0)
    try:
        made = op.sample_inputs("cpu", dtype, requires_grad=backward)
        return list(made)
    except Exception as error:
        raise ReferenceError_(f"no samples: {type(error).__name__}: {error}") from None


def reference(op: OpInfo, sample: SampleInput, backward: bool, seed: int) -> Run:
    """Runs a sample on the CPU.

    Raises:
        ReferenceError_: the CPU cannot.
    """
    try:
        return run(op, sample, CPU, backward, seed)
    except Exception as error:
        raise ReferenceError_(f"{type(error).__name__}: {error}") from None


def settle(device: torch.device) -> None:
    """Takes what is left of a failure from the device, so that the next entry does not meet it."""
    if device.type != "cpu":
        for _ in itertools.repeat(None, 2):
            try:
                torch.accelerator.synchronize(device)
            except Exception:
                continue
            return


def prepare(device: str, dtype: str, threads: int) -> Callable[[str], Outcome]:
    """Makes the function that evaluates an entry by its name; runs in a worker."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    known = entries()
    return lambda name: evaluate(known[name], torch.device(device), getattr(torch, dtype))
