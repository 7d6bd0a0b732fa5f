# SPDX-License-Identifier: BSD-3-Clause
"""Checks operators on lists of tensors: torch's foreach operators, and fused optimizers.

A kernel of an in-place foreach operator returns nothing, so it must itself increase the versions of
its tensors. Versions, identities, and autograd's errors for changed tensors must be the same as on
the CPU.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.testing._comparison import default_tolerances
from torch.testing._internal import common_methods_invocations as databases
from torch.testing._internal.opinfo.core import ForeachFuncInfo, SampleInput
from torch.utils._pytree import tree_leaves
from torch_device_conformance.comparison.entry import Entry, Run, gradients, spread
from torch_device_conformance.comparison.transfer import transfer
from torch_device_conformance.database.operators import (
    Attempt,
    changed_tensors,
    differentiable,
    seeded,
)

from tests.sweep.versions import refusal

# The maximum number of samples per entry, of which torch has hundreds.
MOST = 40


class Foreach(Attempt):
    """Runs a functional foreach operator forward and backward. Also compares argument versions."""

    op: ForeachFuncInfo

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        made = spread(super().samples(dtype, device), MOST)
        return made + [changed_tensors(sample, Tensor.detach) for sample in made]

    def attempt(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        sample = self.copy(sample, device)
        arguments = [leaf for leaf in tree_leaves(sample_of(sample)) if isinstance(leaf, Tensor)]
        before = [leaf._version for leaf in arguments]
        outputs = self.call(sample, seed)
        found: dict[str, Any] = {f"output {n}": leaf for n, leaf in enumerate(outputs)}
        found |= writes(arguments, before)
        for number, leaf in enumerate(outputs):
            if isinstance(leaf, Tensor):
                found[f"version of output {number}"] = leaf._version
        slopes = gradients(outputs, differentiable(sample))
        return Run(found, {f"gradient {number}": leaf for number, leaf in enumerate(slopes)})


class ForeachInPlace(Foreach):
    """Runs an in-place foreach operator, which writes to the tensors in its first argument."""

    def supports(self, dtype: torch.dtype) -> bool:
        return super().supports(dtype) and self.op.inplace_variant is not None

    def attempt(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        sample = self.copy(sample, device)
        inputs = differentiable(sample)
        targets = sample.input = [leaf * 1 if leaf.requires_grad else leaf for leaf in sample.input]
        arguments = [leaf for leaf in tree_leaves(sample_of(sample)) if isinstance(leaf, Tensor)]
        before = [leaf._version for leaf in arguments]
        pointers = [leaf.data_ptr() for leaf in targets]
        # A product saves its factors for backward. If they change afterwards, backward must raise
        # an error.
        products = [leaf * leaf for leaf in targets if leaf.requires_grad]
        with seeded(seed):
            result = self.op.inplace_variant(targets, *sample.args, **sample.kwargs)
        found: dict[str, Any] = {f"output {n}": leaf for n, leaf in enumerate(targets)}
        found |= writes(arguments, before)
        found["results are given"] = [a is b for a, b in zip(result, targets, strict=True)]
        found["memory kept"] = [leaf.data_ptr() for leaf in targets] == pointers
        if products:
            found["backward of what was saved before"] = refusal(
                lambda: gradients(products, inputs)
            )
        slopes = gradients(targets, inputs)
        return Run(found, {f"gradient {number}": leaf for number, leaf in enumerate(slopes)})


def sample_of(sample: SampleInput) -> tuple[Any, ...]:
    """Returns the arguments of a sample."""
    return (sample.input, sample.args, sample.kwargs)


def writes(tensors: Iterable[Tensor], before: Iterable[int]) -> dict[str, int]:
    """Returns how many times each tensor was written to since it had its version in `before`."""
    return {
        f"version of argument {number}": leaf._version - version
        for number, (leaf, version) in enumerate(zip(tensors, before, strict=True))
    }


def foreach_operators(kind: type[Foreach]) -> Iterable[Entry]:
    """Yields the entries of torch's foreach databases, as instances of `kind`."""
    infos = [
        *databases.foreach_unary_op_db,
        *databases.foreach_binary_op_db,
        *databases.foreach_pointwise_op_db,
        *databases.foreach_reduce_op_db,
        *databases.foreach_other_op_db,
    ]
    return map(kind, infos)


# The operator of each fused optimizer. The first item lists the tensors that it changes in addition
# to parameters and gradients. The second contains the values of its flags and factors.
FUSED: dict[str, tuple[tuple[str, ...], dict[str, tuple[Any, ...]]]] = {
    "_fused_adam_": (
        ("exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"),
        {"beta1": (0.9,), "beta2": (0.99,), "eps": (1e-8,), "amsgrad": (False, True)},
    ),
    "_fused_adamw_": (
        ("exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"),
        {"beta1": (0.9,), "beta2": (0.99,), "eps": (1e-8,), "amsgrad": (False, True)},
    ),
    "_fused_sgd_": (
        ("momentum_buffer_list",),
        {
            "momentum": (0.9,),
            "dampening": (0.0,),
            "nesterov": (False, True),
            "is_first_step": (False,),
        },
    ),
    "_fused_adagrad_": (("state_sums",), {"lr_decay": (0.0,), "eps": (1e-8,)}),
}


class Fused(Entry):
    """An entry for a fused optimizer's operator. The results are the tensors that it changes."""

    def __init__(self, name: str) -> None:
        self.name = name

    def supports(self, dtype: torch.dtype) -> bool:
        return dtype in (torch.float32, torch.float64)

    def tolerances(self, dtype: torch.dtype) -> tuple[float, float]:
        return default_tolerances(dtype)

    def samples(self, dtype: torch.dtype, device: torch.device) -> Sequence[Any]:
        lists, flags = FUSED[self.name]
        common = {"lr": (0.1,), "weight_decay": (0.0, 0.1), "maximize": (False, True)}
        options = {**flags, **common}
        made = []
        for scaled, *values in product((False, True), *options.values()):
            chosen: dict[str, Any] = dict(zip(options, values, strict=True))
            state = [[torch.rand(4, 3, dtype=dtype), torch.rand(5, dtype=dtype)] for _ in lists]
            if not chosen.get("amsgrad", True):
                state[-1] = []
            if self.name != "_fused_sgd_":
                state.append([torch.ones(()), torch.ones(())])
            if scaled:
                chosen |= {"grad_scale": torch.tensor(2.0), "found_inf": torch.tensor(0.0)}
            weights, slopes = (
                [torch.randn(4, 3, dtype=dtype), torch.randn(5, dtype=dtype)] for _ in range(2)
            )
            made.append((weights, slopes, state, chosen))
        return made

    def run(self, sample: Any, device: torch.device, seed: int) -> Run:
        weights, slopes, state, options = transfer(device)(sample)
        for weight in weights:
            weight.requires_grad_()
        arguments = [leaf for leaf in tree_leaves((weights, slopes, state)) if leaf is not None]
        before = [leaf._version for leaf in arguments]
        products = [weight * weight for weight in weights]
        with torch.no_grad():
            result = getattr(torch, self.name)(weights, slopes, *state, **options)
        found: dict[str, Any] = {f"output {n}": leaf for n, leaf in enumerate(arguments)}
        found |= writes(arguments, before)
        found["returns nothing"] = result is None
        found["backward of what was saved before"] = refusal(lambda: gradients(products, weights))
        return Run(found, {})


def fused_optimizers() -> Iterable[Entry]:
    """Yields the entries for the operators of fused optimizers."""
    return map(Fused, FUSED)
