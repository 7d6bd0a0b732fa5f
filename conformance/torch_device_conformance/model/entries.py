# SPDX-License-Identifier: BSD-3-Clause
"""The entries for a recorded model: the whole model, and each overload that it calls.

Each entry runs the same samples on the device and on the CPU, and compares the results.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.testing import make_tensor
from torch.testing._comparison import default_tolerances
from torch.utils._pytree import tree_leaves, tree_map
from torch_device_conformance.comparison.entry import Entry, Run
from torch_device_conformance.comparison.seeding import seed_generators
from torch_device_conformance.comparison.transfer import transfer
from torch_device_conformance.execution.judge import Judge, Settings
from torch_device_conformance.model.recording import Argument, Recording, Signature, load, step
from torch_device_conformance.subject.subject import Subject
from torch_device_conformance.verdict.verdict import Case, Verdict

WHOLE = "whole"


def cases(recording: Recording) -> list[Case]:
    """Returns a recording's cases: the whole model, then each overload per phase and dtype."""
    whole = Case("model", WHOLE, "float32", recording.name)
    return [whole, *(Case("model", p, dtype, name) for p, name, dtype in recording.calls)]


class Recorded(Entry):
    """One overload of an operator. Its samples are the calls recorded from the model."""

    drawn = False

    def __init__(self, name: str, signatures: Sequence[Signature]) -> None:
        self.name = name
        self.signatures = signatures
        packet, _, overload = name.partition("::")[2].partition(".")
        self.operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
        self.uninitialized = packet.startswith(("empty", "new_empty"))

    def supports(self, dtype: torch.dtype) -> bool:
        return True

    def tolerances(self, dtype: torch.dtype) -> tuple[float, float]:
        inexact = dtype.is_floating_point or dtype.is_complex
        rtol, atol = default_tolerances(dtype if inexact else torch.float32)
        # A model has larger shapes than op_db, so it adds more numbers and accumulates more
        # rounding errors.
        return 10 * rtol, 10 * atol

    def samples(self, dtype: torch.dtype, device: torch.device) -> Sequence[Any]:
        return [fill(signature) for signature in self.signatures]

    def label(self, sample: Any) -> str:
        leaves = [leaf for leaf in tree_leaves(sample) if isinstance(leaf, Tensor)]
        return " ".join(f"{str(x.dtype)[6:]}{list(x.shape)}" for x in leaves)

    def run(self, sample: Any, device: torch.device, seed: int) -> Run:
        args, kwargs = transfer(device)(sample)
        seed_generators(seed)
        with torch.no_grad():
            result = self.operator(*args, **kwargs)
        found = {f"output {n}": leaf for n, leaf in enumerate(tree_leaves(result))}
        if self.operator._schema.is_mutable:
            tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            found |= {f"argument {n}": leaf for n, leaf in enumerate(tensors)}
        return Run(found, {})


def fill(signature: Signature) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a recorded call. Floating-point tensors have random values."""
    made: dict[int, Tensor] = {}

    def value(leaf: Any) -> Any:
        if isinstance(leaf, torch.device):
            return torch.device("cpu")
        if not isinstance(leaf, Argument):
            return leaf
        if id(leaf) not in made:
            made[id(leaf)] = tensor_of(leaf)
        return made[id(leaf)]

    filled: tuple[tuple[Any, ...], dict[str, Any]] = tree_map(
        value, (signature.args, signature.kwargs)
    )
    return filled


def tensor_of(argument: Argument) -> Tensor:
    """Returns a tensor with the recorded shape, strides and dtype.

    If no values were recorded, an integer tensor contains zeros. A floating-point tensor contains
    random values in [0.1, 1), which are valid even for operators such as log and sqrt.
    """
    result = torch.empty_strided(argument.shape, argument.strides, dtype=argument.dtype)
    if argument.values is not None:
        source = argument.values
    elif argument.dtype.is_floating_point or argument.dtype.is_complex:
        source = make_tensor(argument.shape, dtype=argument.dtype, device="cpu", low=0.1, high=1)
    else:
        source = torch.zeros(argument.shape, dtype=argument.dtype)
    if 0 in argument.strides:  # an expanded tensor
        base = source
        for dim, stride in enumerate(argument.strides):
            base = base.narrow(dim, 0, min(1, base.shape[dim])) if stride == 0 else base
        return base.contiguous().expand(argument.shape)
    return result.copy_(source)


class Whole(Entry):
    """One training step of the whole model as an entry."""

    drawn = False

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self.model = load(path)

    def supports(self, dtype: torch.dtype) -> bool:
        return True

    def tolerances(self, dtype: torch.dtype) -> tuple[float, float]:
        return 1e-3, 1e-4

    def samples(self, dtype: torch.dtype, device: torch.device) -> Sequence[Any]:
        return [None]

    def run(self, sample: Any, device: torch.device, seed: int) -> Run:
        torch.manual_seed(0)  # the weights must not depend on the seed
        found = step(self.model, device, lambda phase: seeded(phase, seed))
        return Run(found, {})


def seeded(phase: str, seed: int) -> None:
    """Seeds random numbers when the forward phase starts, after the weights have been created."""
    if phase == "forward":
        seed_generators(seed)


def prepare(
    subject: Subject, settings: Settings, recording: Recording, path: Path
) -> Callable[[Case], Iterator[Verdict]]:
    """Returns the function that judges a recording's cases in a worker."""
    judge = Judge(subject, settings)

    def evaluate(case: Case) -> Iterator[Verdict]:
        entry: Entry = (
            Whole(path)
            if case.mode == WHOLE
            else Recorded(case.name, recording.calls[case.mode, case.name, case.dtype])
        )
        yield from judge.entry(case, entry)

    return evaluate
