# SPDX-License-Identifier: BSD-3-Clause
"""Arguments, except 0-dim tensors, that may be on the CPU if the others are on a device.

Arguments are named as in a SampleInput: "input" is the first argument, "args[0]" is the next one,
and "kwargs['weight']" is a keyword argument.
"""

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_unflatten
from torch_device_conformance.comparison.transfer import transfer
from torch_device_conformance.database.operators import with_arguments


@dataclass(frozen=True)
class HostArgument:
    """Arguments that may be on the CPU.

    Attributes:
        entries: regular expression that matches the whole name of an entry.
        arguments: regular expression that matches the whole name of an argument.
        reason: why the argument may be on the CPU.
    """

    entries: str
    arguments: str
    reason: str


# Arguments that the host reads, or that are only copied. CUDA also accepts them on the CPU.
HOST_ARGUMENTS: tuple[HostArgument, ...] = (
    HostArgument(
        r"__getitem__|index_put",
        r"args\[0\].*",
        "torch copies indices to the device of the tensor that they index",
    ),
    HostArgument(
        r"_unsafe_masked_index(_put_accumulate)?", r"args\[1\].*", "indices, as for index_put"
    ),
    HostArgument(
        r"nn\.functional\.ctc_loss",
        r"input|args\[[012]\]",
        "the host reads lengths; torch copies targets to the device of the probabilities",
    ),
    HostArgument(r"tensor_split", r"args\[0\]", "the host reads the indices"),
    HostArgument(r"narrow", r"input", "the host reads the start"),
    HostArgument(
        r"expand_as|reshape_as|resize_as_|view_as|broadcast_tensors|atleast_[123]d",
        r"input.*|args\[\d\]",
        "the result is a view of one tensor; only the sizes of the others are read",
    ),
    HostArgument(
        r"(as_strided|diagonal|select|slice)_scatter",
        r"input|args\[0\]",
        "a copy works between any two devices",
    ),
    HostArgument(r"to", r"input|args\[0\]", "only device and dtype of the other tensor are read"),
)


def is_host_argument(entry: str, argument: str) -> bool:
    """Returns whether an argument of an entry may be on the CPU."""
    return any(
        re.fullmatch(known.entries, entry) and re.fullmatch(known.arguments, argument)
        for known in HOST_ARGUMENTS
    )


def positions(sample: SampleInput) -> dict[str, Tensor]:
    """Returns the tensors of a sample, by argument name."""
    leaves, _ = tree_flatten_with_path(arguments_of(sample))
    return {keystr(path)[1:]: leaf for path, leaf in leaves if isinstance(leaf, Tensor)}


def placed(sample: SampleInput, device: torch.device, on_host: set[str]) -> SampleInput:
    """Copies a sample to a device. The arguments in `on_host` stay on the CPU."""
    here, there = transfer(torch.device("cpu")), transfer(device)
    leaves, form = tree_flatten_with_path(arguments_of(sample))
    moved = [(here if keystr(path)[1:] in on_host else there)(leaf) for path, leaf in leaves]
    made = tree_unflatten(moved, form)
    return with_arguments(sample, made.input, made.args, made.kwargs)


@dataclass
class Arguments:
    """The arguments of a sample as a tree. Paths in the tree start with the arguments' names."""

    input: Any
    args: list[Any]
    kwargs: dict[str, Any]


torch.utils._pytree.register_dataclass(Arguments)


def arguments_of(sample: SampleInput) -> Arguments:
    """Returns the arguments of a sample as a tree."""
    return Arguments(sample.input, list(sample.args), dict(sample.kwargs))
