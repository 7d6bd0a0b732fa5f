# SPDX-License-Identifier: BSD-3-Clause
"""Compares a database entry on a device with the same entry on the CPU.

An entry is random if two CPU runs with different seeds disagree. Every device draws different
numbers, so the values of a random entry are not compared one by one. Instead, the metadata must
agree, and so must the distributions of values over many draws. Two CPU runs may also be equal by
chance if they draw few values. Therefore more seeds are tried before a difference in values is
reported.

A difference in values is not reported if the device is about as accurate as the CPU
(conditioning.py).
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch_device_conformance.comparison.conditioning import is_accurate
from torch_device_conformance.comparison.difference import Difference, compare, describe
from torch_device_conformance.comparison.entry import (
    CPU,
    Entry,
    ReferenceError_,
    Run,
    reference,
    run,
    samples,
    settle,
    spread,
)
from torch_device_conformance.comparison.evidence import (
    AGREES,
    CPU_FAILS,
    DIFFERS,
    RAISES,
    Evidence,
)

# The number of seeds to try on the CPU before an entry counts as not random.
SEEDS = 16

# The number of draws per device for a comparison of distributions.
DRAWS = 100

# The largest accepted Kolmogorov-Smirnov distance between DRAWS independent draws on each device.
# If the distributions are equal, the distance exceeds this about once in a million comparisons.
MOST_APART = math.sqrt(-math.log(1e-6 / 2) / 2) * math.sqrt(2 / DRAWS)


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
