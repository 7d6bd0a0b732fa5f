# SPDX-License-Identifier: BSD-3-Clause
"""Entries of torch's optimizer database, optim_db: all implementations of all optimizers."""

import copy
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn.functional import embedding
from torch.optim import Optimizer
from torch.testing._internal.common_optimizers import OptimizerInfo, optim_db
from torch.utils._pytree import keystr, tree_flatten_with_path
from torch_device_conformance.comparison.conditioning import widened
from torch_device_conformance.comparison.entry import Entry, Run, gradients, tolerances
from torch_device_conformance.comparison.transfer import transfer

STEPS = 4

# optim_db is read for this device, because it lists capturable arguments only for CUDA.
CAPTURABLE_DEVICE = "cuda"

MATRICES_ONLY = frozenset({"Muon"})
CONTIGUOUS_ONLY = frozenset({"LBFGS"})

# An LBFGS step runs up to 20 iterations. Further steps would amplify rounding errors until a
# comparison is pointless. LBFGS also computes the lists in AMPLIFIED as quotients of small
# differences.
ONE_STEP = frozenset({"LBFGS"})
AMPLIFIED = frozenset({"['al']", "['ro']"})


@dataclass(frozen=True)
class Training:
    """A sample: several steps of an optimizer on a small network.

    Attributes:
        parameters: two matrices and, optionally, a vector on the CPU.
        batch: the network's input and target, or indices into the first matrix, on the CPU.
        arguments: the optimizer's keyword arguments.
    """

    parameters: list[Tensor]
    batch: list[Tensor]
    arguments: dict[str, Any]


class OptimizerWay(Entry):
    """An optimizer in one of its implementations.

    The entry trains a small network. It compares the parameters and the state after the last step.
    For the differentiable implementation, it compares a single step and its derivatives.

    Args:
        info: the database entry of the optimizer.
        way: one of the flags foreach, fused and differentiable; "for_loop" for none of them;
            "sparse" for sparse gradients; or "" for torch's own choice.
        capturable: whether the step must be capturable.
    """

    def __init__(self, info: OptimizerInfo, way: str, capturable: bool) -> None:
        self._info = info
        self._way = way
        self._capturable = capturable
        variant = "_".join(filter(None, ("capturable" if capturable else "", way)))
        self.name = f"{info.name}.{variant}" if variant else info.name

    def supports(self, dtype: torch.dtype) -> bool:
        return dtype.is_floating_point or (dtype.is_complex and self._info.supports_complex)

    def tolerances(self, dtype: torch.dtype) -> tuple[float, float]:
        return tolerances(self._info.decorators, dtype)

    def samples(self, dtype: torch.dtype, device: torch.device) -> Sequence[Training]:
        # The second matrix is transposed, in order to check that the optimizer respects strides.
        parameters = [torch.randn(10, 5, dtype=dtype), torch.randn(3, 5, dtype=dtype).t()]
        if self._info.name in CONTIGUOUS_ONLY:
            parameters[1] = parameters[1].contiguous()
        if self._info.name not in MATRICES_ONLY:
            parameters.append(torch.randn(3, dtype=dtype))
        batch = [torch.randn(8, 10, dtype=dtype), torch.randn(8, 3, dtype=dtype)]
        if self._sparse:
            parameters, batch = parameters[:1], [torch.tensor([[1, 7, 3], [7, 7, 0]])]
        return [Training(parameters, batch, arguments) for arguments in self._arguments()]

    def widened(self, sample: Training) -> Training:
        return replace(sample, parameters=widened(sample.parameters), batch=widened(sample.batch))

    def run(self, sample: Training, device: torch.device, seed: int) -> Run:
        with named_as_backend(device):
            return self._train(sample, device)

    @property
    def _sparse(self) -> bool:
        return self._way == "sparse" or self._info.only_supports_sparse_grads

    def _train(self, sample: Training, device: torch.device) -> Run:
        arguments = copy.deepcopy(sample.arguments)
        parameters, batch = transfer(device)((sample.parameters, sample.batch))
        if self._way == "differentiable":
            return self._differentiate(parameters, arguments)
        for parameter in parameters:
            parameter.requires_grad_()
        optimizer = self._optimizer(parameters, arguments)

        def closure() -> Any:
            optimizer.zero_grad()
            value = self._loss(parameters, batch)
            value.backward()
            return value

        once = self._info.name in ONE_STEP
        for _ in range(1 if once else STEPS):
            optimizer.step(closure)
        return Run(results(optimizer, parameters, AMPLIFIED if once else frozenset()), {})

    def _arguments(self) -> list[dict[str, Any]]:
        if self._way == "sparse":
            return [self._info.metadata_for_sparse[0]]
        found = [
            made.kwargs
            for made in self._info.optim_inputs_func(device=CAPTURABLE_DEVICE)
            if made.kwargs.get("capturable", False) == self._capturable
        ]
        if self._way:
            flags = {flag: flag == self._way for flag in self._info.supported_impls}
            found = [{**arguments, **flags} for arguments in found]
        return found

    def _optimizer(self, parameters: list[Tensor], arguments: dict[str, Any]) -> Optimizer:
        make: Any = self._info.optim_cls
        made: Optimizer = make(parameters, **arguments)
        return made

    def _loss(self, parameters: list[Tensor], batch: list[Tensor]) -> Tensor:
        if self._sparse:
            return embedding(batch[0], parameters[0], sparse=True).pow(2).sum()
        bias = parameters[2] if len(parameters) > 2 else 0
        difference = (batch[0] @ parameters[0]).tanh() @ parameters[1] + bias - batch[1]
        if difference.is_complex():
            difference = torch.view_as_real(difference)
        return difference.pow(2).mean()

    def _differentiate(self, leaves: list[Tensor], arguments: dict[str, Any]) -> Run:
        generator = torch.Generator().manual_seed(1)
        slopes = [
            torch.randn(leaf.shape, dtype=leaf.dtype, generator=generator).to(leaf.device)
            for leaf in leaves
        ]
        inputs = {}
        parameters = []
        for number, (leaf, slope) in enumerate(zip(leaves, slopes, strict=True)):
            inputs[f"parameter {number}"] = leaf.requires_grad_()
            inputs[f"gradient of parameter {number}"] = slope.requires_grad_()
            parameter = leaf.clone()
            parameter.grad = slope.clone()
            parameters.append(parameter)
        optimizer = self._optimizer(parameters, arguments)
        optimizer.step()
        outputs = results(optimizer, parameters)
        found = gradients(outputs.values(), list(inputs.values()))
        return Run(outputs, dict(zip(inputs, found, strict=False)))


def named_as_backend(device: torch.device) -> AbstractContextManager[Any]:
    """Makes torch treat `device` as the registered backend, even if it is the CPU.

    torch uses the backend's name to decide whether steps can be capturable and whether foreach is
    the default. The CPU must use the same implementation as the device, because implementations
    round differently.
    """
    return mock.patch.object(torch._C, "_get_privateuse1_backend_name", return_value=device.type)


def results(
    optimizer: Optimizer, parameters: list[Tensor], left_out: Collection[str] = ()
) -> dict[str, Any]:
    """Returns parameters and state by name. Omits the state whose path starts with `left_out`.

    A 0-dim tensor in the state is returned as a number, because torch may keep it on the CPU.
    """
    found: dict[str, Any] = {}
    for index, parameter in enumerate(parameters):
        found[f"parameter {index}"] = parameter
        found[f"version of parameter {index}"] = parameter._version
        for path, leaf in tree_flatten_with_path(optimizer.state[parameter])[0]:
            if keystr(path[:1]) in left_out:
                continue
            number = isinstance(leaf, Tensor) and leaf.dim() == 0
            found[f"state {keystr(path)} of parameter {index}"] = leaf.item() if number else leaf
            if isinstance(leaf, Tensor) and not number:
                found[f"version of {keystr(path)} of parameter {index}"] = leaf._version
    return found


def optimizers() -> list[Entry]:
    """Returns the entries of torch's optimizer database. Each implementation is an entry."""
    entries: list[Entry] = []
    for info in optim_db:
        ways = ["", *(["for_loop"] if info.supported_impls else []), *info.supported_impls]
        entries += [OptimizerWay(info, way, capturable=False) for way in ways]
        if info.supports_sparse:
            entries.append(OptimizerWay(info, "sparse", capturable=False))
        if info.has_capturable_arg:
            entries += [OptimizerWay(info, way, capturable=True) for way in ways]
    return entries
