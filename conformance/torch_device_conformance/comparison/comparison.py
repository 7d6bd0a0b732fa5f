# SPDX-License-Identifier: BSD-3-Clause
"""Compares a database entry on a device with the same entry on the CPU.

Samples are created once, on the CPU. Each run gets its own copies, so a run cannot observe what
another run has written. Forward results must agree in structure, device, layout, dtype, shape,
strides and values. Gradients must agree in all of these except strides.

An entry is random if two CPU runs with different seeds disagree. Every device draws different
numbers, so the values of a random entry are not compared one by one. Instead, the metadata must
agree, and so must the distributions of values over many draws. Two CPU runs may also be equal by
chance if they draw few values. Therefore more seeds are tried before a difference in values is
reported.

A difference in values is not reported if the device is about as accurate as the CPU
(conditioning.py).
"""

import itertools
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._prims_common import check_significant_strides
from torch.testing import assert_close
from torch.testing._comparison import default_tolerances
from torch.testing._internal.common_device_type import precisionOverride, toleranceOverride
from torch.testing._internal.opinfo.core import DecorateInfo
from torch.utils._pytree import tree_leaves
from torch_device_conformance.comparison.conditioning import is_accurate
from torch_device_conformance.comparison.evidence import (
    ACCEPTS,
    AGREES,
    CPU_FAILS,
    DIFFERS,
    LATE,
    RAISES,
    WRONG,
    Evidence,
)
from torch_device_conformance.comparison.seeding import seed_generators
from torch_device_conformance.comparison.wording import wording

CPU = torch.device("cpu")

T = TypeVar("T")

# A part of torch's message for a device whose guard does not implement synchronizeDevice.
NO_SYNCHRONIZATION = "Backend doesn't support synchronizing"

# The number of seeds to try on the CPU before an entry counts as not random.
SEEDS = 16

# The number of draws per device for a comparison of distributions.
DRAWS = 100
# The largest accepted Kolmogorov-Smirnov distance between DRAWS independent draws on each device.
# If the distributions are equal, the distance exceeds this about once in a million comparisons.
MOST_APART = math.sqrt(-math.log(1e-6 / 2) / 2) * math.sqrt(2 / DRAWS)


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


class ReferenceError_(Exception):
    """The CPU cannot run the sample, so there is nothing to compare with."""


@dataclass(frozen=True)
class Run:
    """The outcome of running one sample on one device.

    Attributes:
        outputs: leaves of the results, and other observations, by name.
        gradients: gradients by input name, or None for an input without a gradient.
        error: the exception, if one was raised.
        complaint: what is wrong with the time or the text of the error, if anything.
    """

    outputs: dict[str, Any]
    gradients: dict[str, Tensor | None]
    error: Exception | None = None
    complaint: str = ""


class Entry(ABC):
    """A database entry: something that runs on any device, such as an operator, with samples.

    Attributes:
        name: name of the entry, unique in its database.
        uninitialized: whether the result's values are undefined, like those of new memory.
        drawn: whether to compare the distributions of random values, which takes a long time.
        raises: whether the entry counts even if the CPU raises an error for every sample.
    """

    name: str
    uninitialized: bool = False
    drawn: bool = True
    raises: bool = False

    @abstractmethod
    def supports(self, dtype: torch.dtype) -> bool:
        """Returns whether the entry has samples of this dtype that can be compared."""

    @abstractmethod
    def tolerances(self, dtype: torch.dtype) -> tuple[float, float]:
        """Returns the relative and the absolute tolerance for the dtype."""

    @abstractmethod
    def samples(self, dtype: torch.dtype, device: torch.device) -> Sequence[Any]:
        """Returns the samples, whose tensors are on the CPU. Equal seeds yield equal samples.

        Args:
            dtype: dtype of the tensors.
            device: the device to compare with the CPU. Some samples apply only to some devices.
        """

    @abstractmethod
    def run(self, sample: Any, device: torch.device, seed: int) -> Run:
        """Runs a copy of a sample on a device: forward and, if possible, backward.

        Raises:
            ReferenceError_: torch does not support the sample on any device.
        """

    def label(self, sample: Any) -> str:
        """Returns a name that identifies the sample in messages."""
        return ""

    def widened(self, sample: Any) -> Any:
        """Returns the sample in double precision, or None if that is not possible."""
        return None

    def alternative(self, sample: Any, seed: int) -> Run | None:
        """Runs the sample on the CPU in another way whose result is correct as well, if any."""
        return None

    def place(self, sample: Any, device: torch.device) -> torch.device:
        """Returns the device on which the results must be if the sample runs on `device`."""
        return device


def tolerances(decorators: Iterable[Any], dtype: torch.dtype) -> tuple[float, float]:
    """Returns the widest relative and absolute tolerances that torch's tests use for a dtype.

    Integer dtypes count as float32, which is the dtype of floating-point results of integers.

    Args:
        decorators: the test decorators of the database entry.
        dtype: dtype of the samples.
    """
    inexact = dtype.is_floating_point or dtype.is_complex
    rtol, atol = default_tolerances(dtype if inexact else torch.float32)
    for info in decorators:
        if not isinstance(info, DecorateInfo) or info.active_if is False:
            continue
        for decorator in info.decorators:
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                rtol = max(rtol, decorator.d[dtype].rtol)
                atol = max(atol, decorator.d[dtype].atol)
            if isinstance(decorator, precisionOverride) and dtype in decorator.d:
                atol = max(atol, decorator.d[dtype])
    return rtol, atol


def random_like(x: Tensor, generator: torch.Generator) -> Tensor:
    """Draws a tensor like `x` from a CPU generator.

    Its values are the same on every device and in every dtype: all are numbers of bfloat16. A run
    in double precision therefore computes the derivative of the same function.
    """
    parts = [
        torch.randn(x.shape, generator=generator).bfloat16().float()
        for _ in range(2 if x.is_complex() else 1)
    ]
    drawn = torch.complex(*parts) if x.is_complex() else parts[0]
    return drawn.to(x.device, x.dtype)


def gradients(outputs: Iterable[Any], inputs: Sequence[Tensor]) -> list[Tensor | None]:
    """Backpropagates random gradients from all outputs that require gradients.

    Returns:
        The gradient of each input, or None for an unused input. The list is empty if there are no
        inputs, or if no output requires gradients.
    """
    roots = [leaf for leaf in outputs if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not roots or not inputs:
        return []
    generator = torch.Generator().manual_seed(0)
    weights = [random_like(root, generator) for root in roots]
    return list(torch.autograd.grad(roots, inputs, weights, allow_unused=True))


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


def differs(
    entry: Entry,
    sample: Any,
    expected: Run,
    tolerance: tuple[float, float],
    seeds: Iterable[int],
) -> bool:
    """Returns whether CPU runs with any of `seeds` differ from `expected`, another CPU run."""
    for seed in seeds:
        try:
            compare(reference(entry, sample, seed), expected, CPU, *tolerance)
        except Difference:
            return True
    return False


def is_as_accurate(entry: Entry, sample: Any, actual: Run, expected: Run, seed: int) -> bool:
    """Returns whether a run on the device is about as accurate as the run on the CPU.

    The errors of both are measured against a CPU run in double precision. Returns False if the
    entry does not support double precision.
    """
    wide = entry.widened(sample)
    if wide is None or actual.error is not None:
        return False
    try:
        exact = reference(entry, wide, seed)
    except ReferenceError_:
        return False
    return all(
        found.keys() == true.keys() and all(is_accurate(found[n], wanted[n], true[n]) for n in true)
        for found, wanted, true in (
            (actual.outputs, expected.outputs, exact.outputs),
            (actual.gradients, expected.gradients, exact.gradients),
        )
    )


def agrees_with_alternative(
    entry: Entry,
    sample: Any,
    actual: Run,
    device: torch.device,
    tolerance: tuple[float, float],
    seed: int,
) -> bool:
    """Returns whether a run on the device agrees with the entry's alternative on the CPU."""
    try:
        alternative = entry.alternative(sample, seed)
        if alternative is None:
            return False
        compare(actual, alternative, device, *tolerance)
    except Exception:
        return False
    return True


def numbers(run_: Run) -> list[Tensor]:
    """Returns the values of a run as real numbers on the CPU. Each tensor becomes a vector."""
    result = []
    for leaf in (*run_.outputs.values(), *run_.gradients.values()):
        if isinstance(leaf, Tensor):
            flat = leaf.detach().cpu().to_dense().resolve_conj().flatten()
            result.append(
                (torch.view_as_real(flat).flatten() if flat.is_complex() else flat).double()
            )
    return result


def apart(first: Tensor, second: Tensor) -> float:
    """Returns the Kolmogorov-Smirnov distance between the empirical distributions of two samples.

    The distance is the largest gap between their cumulative distribution functions.
    """
    if not first.numel() or not second.numel():
        return float(first.numel() != second.numel())
    # Do not ignore NaN: here it counts as the largest number.
    a, b = (
        x.nan_to_num(nan=math.inf, posinf=math.inf, neginf=-math.inf).sort().values
        for x in (first, second)
    )
    points = torch.cat([a, b])
    share_a = torch.searchsorted(a, points, right=True) / len(a)
    share_b = torch.searchsorted(b, points, right=True) / len(b)
    return (share_a - share_b).abs().max().item()


def compare_distributions(entry: Entry, sample: Any, device: torch.device) -> None:
    """Compares the distributions of many draws on the device and on the CPU.

    Raises:
        Difference: the distributions differ too much.
    """
    drawn = [
        [numbers(run(entry, sample, where, seed)) for seed in range(DRAWS)]
        for where in (device, CPU)
    ]
    pooled = [[torch.cat(draws) for draws in zip(*side, strict=True)] for side in drawn]
    for number, (a, e) in enumerate(zip(*pooled, strict=True)):
        distance = apart(a, e)
        if distance > MOST_APART:
            raise Difference(
                f"distribution: value {number} is at a Kolmogorov-Smirnov distance of "
                f"{distance:.2f} from the CPU; the limit is {MOST_APART:.2f}"
            )


@dataclass(frozen=True)
class Depth:
    """The settings that determine how thoroughly an entry is compared.

    Attributes:
        samples: maximum number of samples, selected evenly from first to last, or None for all.
        seed: seed for samples and random entries.
        distributions: whether to compare the distributions of random entries.
    """

    samples: int | None = None
    seed: int = 0
    distributions: bool = True


def judge(
    entry: Entry,
    dtype: torch.dtype,
    device: torch.device,
    depth: Depth | None = None,
    made: Sequence[Any] | None = None,
) -> Evidence:
    """Compares the results of an entry on the device with those on the CPU.

    Compares sample by sample, until samples differ.

    Args:
        entry: the entry to compare.
        dtype: dtype of the samples.
        device: the device to compare with the CPU.
        depth: how thoroughly to compare; the default is all samples and distributions.
        made: the entry's samples, if the caller has already created them.
    """
    start = time.perf_counter()
    depth = depth or Depth()
    tolerance = entry.tolerances(dtype)
    done, raised, status, message, label = 0, 0, AGREES, "", "no sample"
    unsupported = ""
    kind, error_name, culprit, largest = "", "", "", None
    compared = "metadata" if entry.uninitialized else "values"
    first, seeds = depth.seed, range(depth.seed + 2, depth.seed + SEEDS)
    sample: Any = None
    try:
        made = samples(entry, dtype, device, first) if made is None else made
        for sample in made if depth.samples is None else spread(made, depth.samples):
            label = f"sample {done} {entry.label(sample)}".strip()
            expected = reference(entry, sample, first)
            random = not entry.uninitialized and differs(
                entry, sample, expected, tolerance, [first + 1]
            )
            try:
                actual = run(entry, sample, device, first)
            except ReferenceError_ as error:
                unsupported = str(error)
                done, raised = done + 1, raised + 1
                continue
            where = entry.place(sample, device)
            compare(actual, expected, where, *tolerance, values=False)
            if not random and not entry.uninitialized:
                try:
                    compare(actual, expected, where, *tolerance)
                except Difference:
                    random = differs(entry, sample, expected, tolerance, seeds)
                    if not (
                        random
                        or is_as_accurate(entry, sample, actual, expected, first)
                        or agrees_with_alternative(entry, sample, actual, where, tolerance, first)
                    ):
                        raise
            if random:
                drawn = entry.drawn and depth.distributions
                compared = "distribution" if drawn else "metadata"
                if drawn:
                    compare_distributions(entry, sample, device)
            done += 1
            raised += expected.error is not None
        if raised == done and not (entry.raises and done):
            reason = describe(expected.error) if done else "the entry has no samples"
            status, message = CPU_FAILS, unsupported or reason
    except ReferenceError_ as error:
        status, message = CPU_FAILS, str(error)
    except Exception as error:
        status, message, culprit = DIFFERS, f"{error} [{label}]", shown(sample)
        if isinstance(error, Difference):
            kind, largest = error.kind, error.largest
        else:
            kind, error_name = RAISES, type(error).__name__
            message = f"{error_name}: {message}"
        settle(device)
    return Evidence(
        status,
        compared,
        message,
        done,
        time.perf_counter() - start,
        kind,
        error_name,
        culprit,
        largest,
    )


def shown(sample: Any) -> str:
    """Describes a sample's arguments. A tensor is described by dtype, shape and strides."""

    def leaf(value: Any) -> str:
        if not isinstance(value, Tensor):
            return repr(value)[:80]
        if value.layout != torch.strided:
            return f"{str(value.dtype)[6:]}{list(value.shape)} {value.layout}"
        strides = "" if value.is_contiguous() else f" strides {list(value.stride())}"
        return f"{str(value.dtype)[6:]}{list(value.shape)}{strides}"

    if sample is None:
        return ""
    parts = getattr(sample, "input", None), *getattr(sample, "args", ())
    named = getattr(sample, "kwargs", {})
    texts = [", ".join(map(leaf, tree_leaves(part))) for part in parts if part is not None]
    texts += [f"{key}={', '.join(map(leaf, tree_leaves(part)))}" for key, part in named.items()]
    return "; ".join(texts)[:600]


def spread(made: Sequence[T], most: int) -> list[T]:
    """Selects at most `most` samples, evenly from first to last."""
    if len(made) <= most:
        return list(made)
    if most == 1:
        return [made[0]]
    return [made[number * (len(made) - 1) // (most - 1)] for number in range(most)]


def samples(entry: Entry, dtype: torch.dtype, device: torch.device, seed: int = 0) -> Sequence[Any]:
    """Returns an entry's samples. Equal seeds yield equal samples.

    Raises:
        ReferenceError_: the samples cannot be created.
    """
    seed_generators(seed)
    try:
        return entry.samples(dtype, device)
    except Exception as error:
        raise ReferenceError_(
            f"making the samples raised {type(error).__name__}: {error}"
        ) from None


def run(entry: Entry, sample: Any, device: torch.device, seed: int) -> Run:
    """Runs a sample on a device and waits for it."""
    result = entry.run(sample, device, seed)
    synchronize(device)
    return result


def synchronize(device: torch.device) -> None:
    """Waits for all work on a device. Does nothing for the CPU."""
    if device.type == "cpu":
        return
    # Prefer the device's own function: torch.accelerator.synchronize prints kernel warnings to
    # stderr instead of issuing them as Python warnings.
    wait = getattr(getattr(torch, device.type, None), "synchronize", None)
    try:
        (wait or torch.accelerator.synchronize)(device)
    except RuntimeError as error:
        # A device without streams has nothing to wait for. A contract row already reports that
        # synchronizeDevice is missing, so operators must not fail because of it, too.
        if NO_SYNCHRONIZATION not in str(error):
            raise


def reference(entry: Entry, sample: Any, seed: int) -> Run:
    """Runs a sample on the CPU.

    Raises:
        ReferenceError_: the CPU cannot run the sample.
    """
    try:
        return run(entry, sample, CPU, seed)
    except Exception as error:
        raise ReferenceError_(f"{type(error).__name__}: {error}") from None


def settle(device: torch.device) -> None:
    """Clears the device's pending errors, so that they cannot affect the next entry."""
    if device.type != "cpu":
        for _ in itertools.repeat(None, 2):
            try:
                synchronize(device)
            except Exception:
                continue
            return
