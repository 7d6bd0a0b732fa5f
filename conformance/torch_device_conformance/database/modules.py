# SPDX-License-Identifier: BSD-3-Clause
"""Entries of torch's module database, module_db, which lists the classes of torch.nn."""

import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.testing._internal.common_modules import FunctionInput, ModuleInfo, module_db
from torch.utils._pytree import tree_flatten
from torch_device_conformance.comparison.conditioning import widened
from torch_device_conformance.comparison.entry import Entry, Run, gradients, tolerances
from torch_device_conformance.comparison.seeding import seed_generators
from torch_device_conformance.comparison.transfer import transfer


@dataclass(frozen=True)
class Call:
    """One call to a module.

    Attributes:
        make: function that creates the module on a device, with the same weights in each call.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.
        backward: whether to compute gradients.
    """

    make: Callable[[torch.device], nn.Module]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    backward: bool


class Module(Entry):
    """A module class as an entry.

    If the module behaves differently in training and in evaluation, both modes are run. Evaluation
    is also run without gradients, because some modules then use a fast path. The results are the
    outputs, and the buffers after the call. Gradients are computed for the inputs and the
    parameters.
    """

    def __init__(self, info: ModuleInfo) -> None:
        self._info = info
        self.name = info.name

    def supports(self, dtype: torch.dtype) -> bool:
        return dtype in self._info.supported_dtypes("cpu")

    def tolerances(self, dtype: torch.dtype) -> tuple[float, float]:
        return tolerances(self._info.decorators, dtype)

    def samples(self, dtype: torch.dtype, device: torch.device) -> Sequence[Call]:
        result = self._calls(dtype, train=True)
        if self._info.train_and_eval_differ:
            result += self._calls(dtype, train=False)
            result += self._calls(dtype, train=False, backward=False)
        return result

    def widened(self, sample: Call) -> Call:
        args, kwargs = widened((sample.args, sample.kwargs))
        return replace(
            sample, make=lambda device: sample.make(device).double(), args=args, kwargs=kwargs
        )

    def run(self, sample: Call, device: torch.device, seed: int) -> Run:
        move = transfer(device)
        args, kwargs = move((sample.args, sample.kwargs))
        module = sample.make(device)
        seed_generators(seed)
        with nullcontext() if sample.backward else torch.no_grad():
            outputs = flatten(module(*args, **kwargs))
        # Read the parameters after the call, because the call creates those of a lazy module.
        parameters = dict(module.named_parameters())
        inputs = {
            f"input {number}": leaf
            for number, leaf in enumerate(flatten((args, kwargs)))
            if isinstance(leaf, Tensor) and leaf.requires_grad
        }
        wanted = {**inputs, **parameters} if sample.backward else {}
        found = gradients(outputs, list(wanted.values()))
        results = {f"output {number}": leaf for number, leaf in enumerate(outputs)}
        buffers = dict(module.named_buffers())
        return Run({**results, **buffers}, dict(zip(wanted, found, strict=False)))

    def _calls(self, dtype: torch.dtype, train: bool, backward: bool = True) -> list[Call]:
        # Without gradients, use the training samples, because only these can use the fast paths.
        inputs = self._info.module_inputs_func(
            self._info,
            device="cpu",
            dtype=dtype,
            requires_grad=backward,
            training=train or not backward,
        )
        return [
            Call(
                self._maker(made.constructor_input, dtype, train),
                tuple(made.forward_input.args) if made.forward_input else (),
                dict(made.forward_input.kwargs) if made.forward_input else {},
                backward,
            )
            for made in inputs
        ]

    def _maker(
        self, arguments: FunctionInput, dtype: torch.dtype, train: bool
    ) -> Callable[[torch.device], nn.Module]:
        make = partial(self._info.module_cls, *arguments.args, **arguments.kwargs)
        module = make().to(dtype).train(train)
        return lambda device: copy.deepcopy(module).to(device)


def modules() -> Iterable[Entry]:
    """Returns the entries of torch's module database."""
    return map(Module, module_db)


def flatten(tree: Any) -> list[Any]:
    """Returns a tree's leaves. Those of a packed sequence are its data, sizes and indices."""
    leaves = []
    for leaf in tree_flatten(tree, is_leaf=lambda x: isinstance(x, PackedSequence))[0]:
        if isinstance(leaf, PackedSequence):
            leaves += [leaf.data, *leaf.batch_sizes.tolist(), leaf.sorted_indices]
        else:
            leaves.append(leaf)
    return leaves
