# SPDX-License-Identifier: BSD-3-Clause
"""Checks backward passes in which some of the results or inputs have no gradient.

If a result has no gradient, torch passes an undefined tensor to the backward function. An undefined
tensor owns no memory, so a kernel that reads it as a tensor of zeros crashes.
"""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch_device_conformance.comparison.difference import describe
from torch_device_conformance.comparison.entry import CPU, Run, random_like, settle, spread
from torch_device_conformance.comparison.transfer import transfer
from torch_device_conformance.comparison.wording import wording
from torch_device_conformance.database.operators import Attempt, differentiable, tensors
from torch_device_conformance.mode.derivatives import PASSES

# Samples with at least this many elements are skipped, because each sample is differentiated many
# times.
LARGE = 1 << 18

# Matches an operator's name in torch's error texts. The name may differ between devices.
OPERATOR = re.compile(r"aten::\w+")


class Undefined(Attempt):
    """Takes first and second derivatives of some of the results for some of the inputs."""

    def tolerances(self, dtype: torch.dtype) -> tuple[float, float]:
        rtol, atol = super().tolerances(dtype)
        return PASSES * rtol, PASSES * atol

    def supports(self, dtype: torch.dtype) -> bool:
        return super().supports(dtype) and self.backward(dtype)

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        made = super().samples(dtype, device)
        small = [sample for sample in made if sum(x.numel() for x in tensors(sample)) < LARGE]
        return spread([sample for sample in small if differentiable(sample)], 8)

    def attempt(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        sample = self.copy(sample, device)
        inputs = differentiable(sample)
        outputs = self.call(sample, seed)
        roots = [leaf for leaf in outputs if isinstance(leaf, Tensor) and leaf.requires_grad]
        collected = Collected(device)
        collected.differentiate("", roots, inputs)
        if self.op.supports_gradgrad and roots:
            first = [weight.requires_grad_() for weight in weights(roots)]
            slopes = torch.autograd.grad(roots, inputs, first, create_graph=True, allow_unused=True)
            curved = [slope for slope in slopes if slope is not None and slope.requires_grad]
            collected.differentiate("second ", curved, inputs + first)
        return collected.run()


class Collected:
    """Collects the gradients and errors of many backward passes over one graph."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._values: dict[str, Any] = {}
        self._errors: dict[str, Any] = {}

    def run(self) -> Run:
        """Returns the collected gradients and errors as one run."""
        return Run(self._errors, self._values)

    def differentiate(self, order: str, roots: list[Tensor], inputs: list[Tensor]) -> None:
        """Collects gradients for each subset of the roots, and for each subset of the inputs."""
        if not roots or not inputs:
            return
        slopes = weights(roots)
        for chosen in subsets(len(roots)):
            self.add(
                f"{order}gradient of {chosen}",
                functools.partial(
                    torch.autograd.grad,
                    [roots[n] for n in chosen],
                    inputs,
                    [slopes[n] for n in chosen],
                    retain_graph=True,
                    allow_unused=True,
                ),
            )
        for chosen in subsets(len(inputs)):
            self.add(
                f"{order}gradient for {chosen}",
                functools.partial(
                    torch.autograd.grad,
                    roots,
                    [inputs[n] for n in chosen],
                    slopes,
                    retain_graph=True,
                    allow_unused=True,
                ),
            )
        undefined = [torch._C._functions.UndefinedGrad()(root) for root in roots]
        self.add(
            f"{order}gradient of nothing",
            functools.partial(
                torch.autograd.grad,
                undefined,
                inputs,
                slopes,
                retain_graph=True,
                allow_unused=True,
            ),
        )

    def add(self, what: str, compute: Callable[[], Any]) -> None:
        """Calls a function. Collects its results, or the text of its error."""
        try:
            found = tree_leaves(compute(), is_leaf=lambda leaf: leaf is None)
            if self._device.type != "cpu":
                torch.accelerator.synchronize(self._device)
        except Exception as error:
            settle(self._device)
            rules = wording()
            words = OPERATOR.sub("aten::", rules.addition.sub("", describe(error)))
            self._errors[what] = type(error).__name__ if rules.device.search(words) else words
        else:
            self._values |= {f"{what}, {number}": leaf for number, leaf in enumerate(found)}


def weights(roots: Sequence[Tensor]) -> list[Tensor]:
    """Returns random gradients for the roots. They are the same on every device."""
    generator = torch.Generator().manual_seed(0)
    return [random_like(root, generator) for root in roots]


def subsets(count: int) -> list[tuple[int, ...]]:
    """Returns subsets of `count` indices: all, each of the first eight, and all except each."""
    everything = tuple(range(count))
    chosen = [everything]
    for number in everything[:8]:
        chosen += [(number,), tuple(n for n in everything if n != number)]
    return sorted({subset for subset in chosen if subset})


class Optional(Attempt):
    """Calls backward operators without the gradients that are optional in their schemas.

    Also requests only some of the results, through the output mask.
    """

    def supports(self, dtype: torch.dtype) -> bool:
        return super().supports(dtype) and self.backward(dtype)

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[Any]:
        calls: list[Any] = []
        for sample in spread(super().samples(dtype, device), 5):
            if not differentiable(sample):
                continue
            recorder = Recorder()
            try:
                copy = self.copy(sample, CPU)
                outputs = self.call(copy, 0)
                roots = [leaf for leaf in outputs if isinstance(leaf, Tensor)]
                roots = [leaf for leaf in roots if leaf.requires_grad]
                with recorder:
                    torch.autograd.grad(
                        roots, differentiable(copy), weights(roots), allow_unused=True
                    )
            except Exception:  # skip samples that the CPU cannot run
                continue
            calls += recorder.calls
        return calls

    def label(self, sample: Any) -> str:
        return str(sample[0])

    def attempt(self, sample: Any, device: torch.device, seed: int) -> Run:
        operator, values = sample
        collected = Collected(device)
        for what, changed, wanted in variants(operator, values):
            arguments = transfer(device)(changed)
            collected.add(what, functools.partial(call_by_schema, operator, arguments, wanted))
        return collected.run()


class Recorder(TorchDispatchMode):
    """Records the first call to each backward operator that has variants."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seen = [operator for operator, _ in self.calls]
        if func.namespace == "aten" and "backward" in func._opname and func not in seen:
            named = kwargs or {}
            values = [
                args[place]
                if place < len(args)
                else named.get(argument.name, argument.default_value)
                for place, argument in enumerate(func._schema.arguments)
            ]
            copy = tree_map_only(Tensor, lambda leaf: leaf.detach().clone(), values)
            if any(True for _ in variants(func, copy)):
                self.calls.append((func, copy))
        return func(*args, **(kwargs or {}))


def variants(operator: Any, values: list[Any]) -> Iterator[tuple[str, list[Any], Any]]:
    """Yields calls to an operator with fewer gradients, or for fewer results.

    Yields:
        The part that is omitted, the arguments, and the requested results (None for all).
    """
    for place, argument in enumerate(operator._schema.arguments):
        kind = str(argument.type)
        before, after = values[:place], values[place + 1 :]
        if kind == "Optional[Tensor]" and argument.name.startswith("grad"):
            if values[place] is not None:
                yield f"without {argument.name}", [*before, None, *after], None
        elif kind == "List[bool]" and "mask" in argument.name:
            asked = [n for n, wanted in enumerate(values[place]) if wanted]
            for chosen in subsets(len(asked)):
                wanted = [asked[n] for n in chosen]
                mask = [n in wanted for n in range(len(values[place]))]
                yield f"for results {wanted}", [*before, mask, *after], wanted


def call_by_schema(operator: Any, values: list[Any], wanted: list[int] | None) -> Any:
    """Calls an operator and returns the requested results.

    Args:
        operator: an operator overload.
        values: all arguments, in the order of the schema.
        wanted: indices of the requested results, or None for all.
    """
    arguments = operator._schema.arguments
    named = {a.name: v for a, v in zip(arguments, values, strict=True) if a.kwarg_only}
    placed = [v for a, v in zip(arguments, values, strict=True) if not a.kwarg_only]
    results = operator(*placed, **named)
    return results if wanted is None else [results[n] for n in wanted]
