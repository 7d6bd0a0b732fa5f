# SPDX-License-Identifier: BSD-3-Clause
"""Entries of torch's operator database, op_db: operators and their variants."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map_only
from torch_device_conformance.comparison.conditioning import widened
from torch_device_conformance.comparison.entry import (
    CPU,
    Entry,
    Run,
    gradients,
    settle,
    synchronize,
    tolerances,
)
from torch_device_conformance.comparison.seeding import seed_generators
from torch_device_conformance.comparison.transfer import transfer

# Operators that return uninitialized memory.
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

# Operators that create a tensor from numbers. The tensor is on the CPU unless the sample names a
# device.
FACTORIES = frozenset({"arange", "linspace", "logspace"})

# All arguments of these operators except the first must be on the CPU, because the host reads them.
STEERED_BY_CPU_TENSORS = frozenset({"tensor_split"})


class Operator(Entry):
    """An operator as an entry. Gradients are computed for all inputs that require them."""

    def __init__(self, op: OpInfo) -> None:
        self.op = op
        self.name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        self.uninitialized = op.name in UNINITIALIZED

    def supports(self, dtype: torch.dtype) -> bool:
        return bool(self.op.supports_dtype(dtype, "cpu"))

    def tolerances(self, dtype: torch.dtype) -> tuple[float, float]:
        return tolerances(self.op.decorators, dtype)

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        return list(self.op.sample_inputs("cpu", dtype, requires_grad=self.backward(dtype)))

    def label(self, sample: SampleInput) -> str:
        return sample.name

    def widened(self, sample: Any) -> Any:
        if not isinstance(sample, SampleInput):
            return None
        first, args, kwargs = widened((sample.input, tuple(sample.args), sample.kwargs))
        return with_arguments(sample, first, args, kwargs)

    def place(self, sample: SampleInput, device: torch.device) -> torch.device:
        unnamed = self.op.name in FACTORIES and "device" not in sample.kwargs
        return CPU if unnamed else device

    def run(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        sample = self.copy(sample, device)
        inputs = differentiable(sample)
        with self.around(device):
            outputs = self.call(sample, seed, self.function(device))
        slopes = self.gradients(outputs, inputs)
        return Run(
            {f"output {number}": leaf for number, leaf in enumerate(outputs)},
            {f"gradient {number}": leaf for number, leaf in enumerate(slopes)},
        )

    def function(self, device: torch.device) -> Callable[..., Any]:
        """Returns the function to call with the arguments of a sample."""
        return self.op

    def around(self, device: torch.device) -> AbstractContextManager[Any]:
        """Returns the context in which the forward call runs. Backward runs outside of it."""
        return nullcontext()

    def backward(self, dtype: torch.dtype) -> bool:
        """Returns whether the operator has a derivative for the dtype on the CPU."""
        return self.op.supports_autograd and dtype in self.op.supported_backward_dtypes("cpu")

    def copy(self, sample: SampleInput, device: torch.device) -> SampleInput:
        """Copies a sample to a device."""
        return copy_to(sample, device, self.op.name in STEERED_BY_CPU_TENSORS)

    def call(
        self, sample: SampleInput, seed: int, function: Callable[..., Any] | None = None
    ) -> list[Any]:
        """Calls the operator.

        Args:
            sample: the arguments, which are not copied.
            seed: seed for random numbers.
            function: function to call instead of the operator.

        Returns:
            The leaves of the results.
        """
        with seeded(seed):
            output = self.apply(function or self.op, sample)
        return tree_leaves(sample.output_process_fn_grad(output))

    def raw(self, sample: SampleInput, seed: int, **more: Any) -> Any:
        """Calls the operator with additional keyword arguments. Returns its result unchanged."""
        with seeded(seed):
            return self.apply(self.op, sample, **more)

    def apply(self, function: Callable[..., Any], sample: SampleInput, **more: Any) -> Any:
        """Calls a function with the arguments of a sample and additional keyword arguments."""
        return function(sample.input, *sample.args, **sample.kwargs, **more)

    def gradients(self, outputs: list[Any], inputs: list[Tensor]) -> list[Tensor | None]:
        """Backpropagates random gradients from the outputs to the inputs."""
        return gradients(outputs, inputs)


class Attempt(Operator):
    """Base class for ways to call an operator in which an error is a valid result."""

    drawn = False

    def run(self, sample: Any, device: torch.device, seed: int) -> Run:
        try:
            result = self.attempt(sample, device, seed)
            synchronize(device)
        except Exception as error:
            settle(device)  # a kernel of the call may also have failed
            return Run({}, {}, error.with_traceback(None))
        return result

    def attempt(self, sample: Any, device: torch.device, seed: int) -> Run:
        """Runs a copy of a sample. May raise any error."""
        return super().run(sample, device, seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds random numbers. Prevents entries from setting a constant seed."""
    seed_generators(seed)
    with mock.patch.object(common_methods_invocations, "wrapper_set_seed", call):
        yield


def tensors(sample: SampleInput) -> list[Tensor]:
    """Returns the tensors of a sample."""
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def differentiable(sample: SampleInput) -> list[Tensor]:
    """Returns the tensors of a sample that require gradients."""
    return [leaf for leaf in tensors(sample) if leaf.requires_grad]


def with_arguments(
    sample: SampleInput, first: Any, args: Sequence[Any], kwargs: dict[str, Any], name: str = ""
) -> SampleInput:
    """Returns a copy of `sample` with these arguments, and with the name `name` if given."""
    return SampleInput(
        first,
        args=tuple(args),
        kwargs=kwargs,
        output_process_fn_grad=sample.output_process_fn_grad,
        broadcasts_input=sample.broadcasts_input,
        name=name or sample.name,
    )


def named(sample: SampleInput, name: str) -> SampleInput:
    """Returns a copy of `sample` named `name`."""
    return with_arguments(sample, sample.input, sample.args, sample.kwargs, name)


def changed_tensors(
    sample: SampleInput, change: Callable[[Tensor], Tensor], name: str = ""
) -> SampleInput:
    """Returns a copy of `sample` with `change` applied to every tensor, and a name if given."""
    arguments = sample.input, tuple(sample.args), sample.kwargs
    first, args, kwargs = tree_map_only(Tensor, change, arguments)
    return with_arguments(sample, first, args, kwargs, name)


def operators(check: type[Operator]) -> Iterable[Entry]:
    """Returns the entries of torch's operator database, each as an instance of `check`."""
    return map(check, common_methods_invocations.op_db)


def copy_to(sample: SampleInput, device: torch.device, only_input: bool = False) -> SampleInput:
    """Copies a sample of CPU tensors to a device, which may be the CPU itself.

    Args:
        sample: sample to copy.
        device: target device.
        only_input: whether the arguments after the first stay on the CPU.
    """
    move = transfer(device)
    first = move(sample.input)
    if only_input:
        return with_arguments(sample, first, sample.args, sample.kwargs)
    return with_arguments(sample, first, move(tuple(sample.args)), move(sample.kwargs))


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function. Replaces torch's wrapper_set_seed, which also sets a constant seed."""
    return function(*args, **kwargs)
