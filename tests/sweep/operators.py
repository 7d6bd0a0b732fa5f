# SPDX-License-Identifier: BSD-3-Clause
"""Entries of torch's operator database, op_db: operators and variants of them."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_flatten

from tests.sweep.comparison import CPU, Entry, Run, gradients, tolerances
from tests.sweep.transfer import transfer

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


class Operator(Entry):
    """An operator; gradients are taken for all inputs that require them."""

    def __init__(self, op: OpInfo) -> None:
        self._op = op
        self.name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        self.uninitialized = op.name in UNINITIALIZED

    def supports(self, dtype: torch.dtype) -> bool:
        return bool(self._op.supports_dtype(dtype, "cpu"))

    def tolerances(self, dtype: torch.dtype) -> tuple[float, float]:
        return tolerances(self._op.decorators, dtype)

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        return list(self._op.sample_inputs("cpu", dtype, requires_grad=self._backward(dtype)))

    def place(self, sample: SampleInput, device: torch.device) -> torch.device:
        unnamed = self._op.name in FACTORIES and "device" not in sample.kwargs
        return CPU if unnamed else device

    def run(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        sample = copy_to(sample, device, self._op.name in STEERED_BY_CPU_TENSORS)
        inputs = [
            leaf
            for leaf in tree_flatten((sample.input, sample.args, sample.kwargs))[0]
            if isinstance(leaf, Tensor) and leaf.requires_grad
        ]
        torch.manual_seed(seed)
        # Many random entries seed themselves, always alike: here the seed is the caller's.
        with mock.patch.object(common_methods_invocations, "wrapper_set_seed", call):
            output = self._op(sample.input, *sample.args, **sample.kwargs)
        outputs = tree_flatten(sample.output_process_fn_grad(output))[0]
        return Run(
            {f"output {number}": leaf for number, leaf in enumerate(outputs)},
            {f"gradient {number}": leaf for number, leaf in enumerate(gradients(outputs, inputs))},
        )

    def _backward(self, dtype: torch.dtype) -> bool:
        return self._op.supports_autograd and dtype in self._op.supported_backward_dtypes("cpu")


def operators() -> dict[str, Entry]:
    """torch's operator database by name."""
    entries = map(Operator, common_methods_invocations.op_db)
    return {entry.name: entry for entry in entries}


def copy_to(sample: SampleInput, device: torch.device, only_input: bool = False) -> SampleInput:
    """Copies a sample of CPU tensors to a device (also to the CPU itself).

    Args:
        sample: what to copy.
        device: where to.
        only_input: leaves the arguments after the first where they are.
    """
    move = transfer(device)
    return SampleInput(
        move(sample.input),
        args=sample.args if only_input else move(sample.args),
        kwargs=sample.kwargs if only_input else move(sample.kwargs),
        output_process_fn_grad=sample.output_process_fn_grad,
        broadcasts_input=sample.broadcasts_input,
        name=sample.name,
    )


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function."""
    return function(*args, **kwargs)
