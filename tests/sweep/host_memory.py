# SPDX-License-Identifier: BSD-3-Clause
"""Checks that a call does not read host memory after it has returned."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_leaves
from torch_device_conformance.comparison.entry import CPU, Run, settle, spread
from torch_device_conformance.database.host_arguments import is_host_argument, placed, positions
from torch_device_conformance.database.operators import (
    Attempt,
    changed_tensors,
    named,
    with_arguments,
)

# The maximum number of samples per entry. A sample runs once with each of its tensors as a 0-dim
# tensor.
MOST = 6

# The stream is kept busy for the first of these times (ns) during a call. If it is idle after the
# call, either the call waited or the host was slow. The call is then repeated with the second time.
BUSY = (2_000_000, 50_000_000)

NUMBERS = "numbers on the cpu"
HOST = "host arguments"
LISTS = "lists"
AS_NUMBER = " as a number"


class HostMemory(Attempt):
    """Calls an operator on a busy stream, and then overwrites its CPU tensors and lists.

    Several calls are made per sample. The tensors on the CPU are the 0-dim tensors in one call, the
    arguments in HOST_ARGUMENTS in another, and in further calls a single tensor, either whole or
    reduced to its first element. Calls that the device rejects are skipped, because the mode
    mixed_devices covers them.
    """

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        found = []
        for sample in spread(list(self.op.sample_inputs("cpu", dtype)), MOST):
            for made in self.derive(sample):
                try:
                    self.attempt(made, CPU, 0)
                    outputs = self.attempt(made, device, 0).outputs.values()
                except Exception:
                    settle(device)
                    continue
                # Skip calls that return a view or a copy on the CPU.
                if all(
                    leaf.device.type == device.type for leaf in outputs if isinstance(leaf, Tensor)
                ):
                    found.append(made)
        return found

    def derive(self, sample: SampleInput) -> Iterator[SampleInput]:
        """Derives samples. The name of a sample specifies which arguments are in host memory."""
        places = positions(sample)
        if not all(leaf.layout == torch.strided for leaf in places.values()):
            return
        if any(lists(sample)):
            yield named(sample, LISTS)
        if any(is_host_argument(self.name, place) for place in places):
            yield named(sample, HOST)
        if not any(leaf.dim() for leaf in places.values()):
            return
        if not all(leaf.dim() for leaf in places.values()):
            yield named(sample, NUMBERS)
        for place, leaf in places.items():
            if len(places) > 1:
                yield named(sample, place)
            if leaf.dim() and leaf.numel() and len(places) > 1:
                yield as_number(sample, place, leaf)

    def attempt(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        if device.type == "cpu":
            return self.overwrite(sample, device, seed)[0]
        backend = getattr(torch, device.type)
        for ns in BUSY:
            backend.synchronize()
            backend._sleep(ns)
            result, busy = self.overwrite(sample, device, seed)
            if busy:
                break
        return result

    def overwrite(self, sample: SampleInput, device: torch.device, seed: int) -> tuple[Run, bool]:
        """Makes a call, and then overwrites its host memory.

        Returns:
            The run, and whether the device was still busy after host memory had been overwritten.
        """
        on_host = self.on_host(sample)
        arguments = placed(sample, device, on_host)
        hosts = [leaf for place, leaf in positions(arguments).items() if place in on_host]
        arguments = with_arguments(
            arguments, arguments.input, [*map(copied, arguments.args)], arguments.kwargs
        )
        result = self.raw(arguments, seed)
        for leaf in hosts:
            leaf.copy_(torch.zeros_like(leaf) if leaf.any() else torch.ones_like(leaf))
        for numbers in lists(arguments):
            numbers.clear()
        busy = device.type != "cpu" and not getattr(torch, device.type).current_stream().query()
        outputs = tree_leaves(sample.output_process_fn_grad(result))
        return Run({f"output {number}": leaf for number, leaf in enumerate(outputs)}, {}), busy

    def on_host(self, sample: SampleInput) -> set[str]:
        """Returns the names of the arguments that are on the CPU."""
        places = positions(sample)
        if sample.name == LISTS:
            return set()
        if sample.name == HOST:
            return {place for place in places if is_host_argument(self.name, place)}
        if sample.name == NUMBERS:
            return {place for place, leaf in places.items() if not leaf.dim()}
        return {sample.name.removesuffix(AS_NUMBER)}


def as_number(sample: SampleInput, place: str, leaf: Tensor) -> SampleInput:
    """Returns a copy of `sample` in which one tensor is replaced by its first element."""
    number = leaf.flatten()[0].clone()
    return changed_tensors(sample, lambda x: number if x is leaf else x, place + AS_NUMBER)


def copied(argument: Any) -> Any:
    """Copies a list. Overwriting the copy does not change the sample."""
    return list(argument) if isinstance(argument, list) else argument


def lists(sample: SampleInput) -> list[list[Any]]:
    """Returns the lists of numbers among a sample's arguments."""
    return [
        argument
        for argument in (*sample.args, *sample.kwargs.values())
        if isinstance(argument, list) and argument and not any(map(is_tensor, argument))
    ]


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)
