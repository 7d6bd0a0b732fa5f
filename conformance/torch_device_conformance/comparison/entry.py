# SPDX-License-Identifier: BSD-3-Clause
"""Defines a database entry, something that runs on any device, and runs its samples.

Samples are created once, on the CPU. Each run gets its own copies, so a run cannot observe what
another run has written.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.testing._comparison import default_tolerances
from torch.testing._internal.common_device_type import precisionOverride, toleranceOverride
from torch.testing._internal.opinfo.core import DecorateInfo
from torch_device_conformance.comparison.seeding import seed_generators

CPU = torch.device("cpu")

T = TypeVar("T")

# A part of torch's message for a device whose guard does not implement synchronizeDevice.
NO_SYNCHRONIZATION = "Backend doesn't support synchronizing"


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
