# SPDX-License-Identifier: BSD-3-Clause
"""Determines how operators run: in the subject's kernels, composed of others, or on the CPU.

There are three kinds of evidence. If they differ, the worst one counts:

- The dispatch table shows what torch calls for an operator and the subject's dispatch key. If it
  calls the key's boxed fallback, the operator runs on the CPU.
- An operator that is not itself a copy may copy more than one element to the host. It then has a
  registered kernel that computes on the CPU.
- The backend may have its own fallback counter.

torch's execution trace lists the operators that ran on the subject, with the device of each
argument. It covers all threads, and also the operators that kernels and the autograd engine call.
The trace is recorded in a separate run, so it does not affect the runs that are compared. Copies
that a kernel makes through its driver are not detected, because they bypass torch's dispatcher.
"""

import functools
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._C._profiler import (
    _add_execution_trace_observer,
    _disable_execution_trace_observer,
    _enable_execution_trace_observer,
    _remove_execution_trace_observer,
)
from torch.utils._pytree import tree_leaves
from torch_device_conformance.comparison.transfer import LABEL
from torch_device_conformance.subject.subject import Subject, object_at
from torch_device_conformance.verdict.verdict import COMPOSITE, FALLBACK, MISSING, NATIVE

# torch's execution trace reads the strides of each tensor. Tensors with these layouts have none, so
# torch raises an error. In a backward pass, this error sometimes crashes the process.
UNTRACEABLE = frozenset({torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})

# The purpose of these operators includes copying values to the host.
COPIES = frozenset(
    "aten::" + name
    for name in (
        "_copy_from",
        "_copy_from_and_resize",
        "_local_scalar_dense",
        "_to_copy",
        "_to_cpu",
        "copy_",
        "item",
        "pin_memory",
        "_pin_memory",
        "to",
    )
)

# A kernel may copy this many elements to the host, because many kernels read a scalar. A larger
# copy indicates a fallback.
SCALAR = 1


# In torch's dispatch table, a line ends with the origin of the kernel. Maps the origin to the
# route.
_SOURCES = {
    "kernel]": NATIVE,
    "backend fallback]": FALLBACK,
    "math kernel]": COMPOSITE,
    "default backend kernel]": COMPOSITE,
    "autograd kernel]": COMPOSITE,
}


@functools.cache
def route(name: str, key: str) -> str:
    """Returns the route of an operator for a dispatch key: NATIVE, COMPOSITE, FALLBACK or MISSING.

    Args:
        name: the overload, such as "aten::add.Tensor".
        key: the dispatch key, such as "PrivateUse1".
    """
    try:
        table = torch._C._dispatch_dump_table(name)
    except RuntimeError:
        return MISSING
    line = next((line for line in table.splitlines() if line.startswith(f"{key}: ")), "")
    return _SOURCES.get(line.rpartition(" [")[2], MISSING)


def overloads() -> list[str]:
    """Returns all overloads of aten operators in the installed torch, as a fixed denominator."""
    return sorted(n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::"))


def dispatch_key(device: torch.device) -> str:
    """Returns the dispatch key of strided tensors on a device.

    Raises:
        ValueError: torch has no dispatch key for the device.
    """
    if device.type == torch._C._get_privateuse1_backend_name():
        return "PrivateUse1"
    if device.type.upper() not in torch._C.DispatchKey.__members__:
        raise ValueError(
            f"cannot observe device {device.type}: torch has no dispatch key {device.type.upper()}"
        )
    return device.type.upper()


@dataclass(frozen=True)
class Call:
    """An operator call in a trace.

    Attributes:
        name: the overload, such as "aten::add.Tensor".
        parent: number of the enclosing call.
        tensors: (device, elements, bytes per element) of each tensor argument and result.
        on_subject: whether a tensor or a device argument refers to the subject's device.
        dtypes: dtypes of the tensor arguments, as in the trace.
    """

    name: str
    parent: int
    tensors: tuple[tuple[str, int, int], ...]
    on_subject: bool
    dtypes: tuple[str, ...] = ()

    @property
    def packet(self) -> str:
        """The operator's name without the overload."""
        return self.name.partition(".")[0]

    @property
    def is_copy(self) -> bool:
        """Whether the purpose of the operator includes copying values to the host."""
        return self.packet in COPIES


@dataclass
class Trace:
    """A run's operator calls by number, and the backend's new fallbacks by operator."""

    calls: dict[int, Call] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)

    def on_subject(self) -> Iterator[Call]:
        """Yields the calls that involve the subject."""
        return (call for call in self.calls.values() if call.on_subject)

    def outermost(self) -> Iterator[Call]:
        """Yields the calls on the subject that were not made by another operator."""
        return (c for c in self.on_subject() if c.parent not in self.calls)

    def host_copies(self, device: torch.device) -> dict[str, int]:
        """Returns the size in bytes of the largest copy to the host that each overload made.

        Contains only overloads that are not themselves copies but copied more than a scalar.
        """
        found: dict[str, int] = {}
        if device.type == "cpu":
            return found
        for call in self.calls.values():
            if not call.is_copy or not copies_to_host(call, device.type):
                continue
            caller = self._caller(call)
            if caller is not None:
                size = max(n * item for _, n, item in call.tensors)
                found[caller.name] = max(found.get(caller.name, 0), size)
        return found

    def _caller(self, call: Call) -> Call | None:
        """Returns the innermost call around `call` that involves the subject and is not a copy."""
        above = self.calls.get(call.parent)
        while above is not None and (above.is_copy or not above.on_subject):
            above = self.calls.get(above.parent)
        return above


def copies_to_host(call: Call, device: str) -> bool:
    """Returns whether a copy moves more than a scalar from the device to the host."""
    places = [place.partition(":")[0] for place, _, _ in call.tensors]
    if device not in places or "cpu" not in places:
        return False
    # The source is the first argument of _copy_from, and the second argument of copy_.
    source = places[1] if call.packet == "aten::copy_" and len(places) > 1 else places[0]
    return source == device and max(n for _, n, _ in call.tensors) > SCALAR


def tensors_of(value: Any) -> Iterator[tuple[str, int, int]]:
    """Yields device, number of elements and bytes per element of each tensor in a trace value."""
    if not isinstance(value, list):
        return
    if len(value) == 6 and isinstance(value[5], str) and isinstance(value[3], int):
        yield value[5], value[3], value[4]
        return
    for element in value:
        yield from tensors_of(element)


def calls_of(nodes: Iterable[Mapping[str, Any]], device: torch.device) -> dict[int, Call]:
    """Maps numbers to the operator calls in a trace, except those that only copy the samples."""
    found = {}
    nodes = list(nodes)
    parents = {node["id"]: node["ctrl_deps"] for node in nodes}
    labels = {node["id"] for node in nodes if node["name"] == LABEL}

    def is_labeled(number: int) -> bool:
        while number in parents and number != parents[number]:
            if number in labels:
                return True
            number = parents[number]
        return False

    for node in nodes:
        if labels and is_labeled(node["id"]):
            continue
        attributes = {item["name"]: item["value"] for item in node["attrs"]}
        schema = attributes.get("op_schema", "")
        if not schema or not node["name"].startswith("aten::"):
            continue
        inputs, outputs = node["inputs"], node["outputs"]
        tensors = [*tensors_of(inputs["values"]), *tensors_of(outputs["values"])]
        named = [value for value in inputs["values"] if isinstance(value, str)]
        places = [place for place, _, _ in tensors] + named
        found[node["id"]] = Call(
            schema.partition("(")[0],
            node["ctrl_deps"],
            tuple(tensors),
            any(place.partition(":")[0] == device.type for place in places),
            tuple(kind for kind in inputs["types"] if kind.startswith("Tensor")),
        )
    return found


def is_traceable(arguments: Any) -> bool:
    """Returns whether torch can trace a call with these arguments, a tree of tensors and others."""
    return not any(
        leaf in UNTRACEABLE
        if isinstance(leaf, torch.layout)
        else isinstance(leaf, Tensor) and leaf.layout in UNTRACEABLE
        for leaf in tree_leaves(arguments)
    )


class Observer:
    """Observes how operators reach the device.

    Args:
        subject: the loaded subject.
        device: the subject's device.
    """

    def __init__(self, subject: Subject, device: torch.device) -> None:
        self.device = device
        self._key = dispatch_key(device)
        counter = subject.fallback_counter
        self._counter: Callable[[], dict[str, Any]] | None = object_at(counter) if counter else None

    def routes(self, function: Callable[[], Any]) -> tuple[str, dict[str, str]]:
        """Runs a function. Returns its route to the device, and the routes of its operators."""
        trace = self.trace(function)
        found = {call.name: route(call.name, self._key) for call in trace.on_subject()}
        # The key may have no kernel for an operator that ran. In this case, torch decomposed the
        # operator at an earlier key.
        found = {name: COMPOSITE if way == MISSING else way for name, way in found.items()}
        for name in trace.host_copies(self.device):
            found[name] = FALLBACK
        for name in trace.counted:
            found[name] = FALLBACK
        if FALLBACK in found.values():
            return FALLBACK, found
        outermost = {found[call.name] for call in trace.outermost()}
        return (NATIVE if NATIVE in outermost else COMPOSITE), found

    def outermost(self, function: Callable[[], Any]) -> dict[str, str]:
        """Runs a function. Returns the routes of the operators that it called directly."""
        return {call.name: route(call.name, self._key) for call in self.trace(function).outermost()}

    def fallbacks(self, function: Callable[[], Any]) -> dict[str, int]:
        """Runs a function. Returns the backend's new fallbacks by operator, without a trace.

        Ignores an error of the function, which the comparison has judged.
        """
        before = self._counts()
        with suppress(Exception):
            function()
        now = self._counts()
        return {name: n - before.get(name, 0) for name, n in now.items() if n > before.get(name, 0)}

    def trace(self, function: Callable[[], Any]) -> Trace:
        """Runs a function under a trace. Ignores its error, which the comparison has judged."""
        with tempfile.TemporaryDirectory(prefix="trace-") as folder:
            file = os.path.join(folder, "trace.json")
            if not _add_execution_trace_observer(file):
                raise RuntimeError(
                    "cannot trace operators: another observer is using torch's execution trace; "
                    "stop it first"
                )
            try:
                _enable_execution_trace_observer()
                counted = self.fallbacks(function)
            finally:
                _disable_execution_trace_observer()
                _remove_execution_trace_observer()
            with open(file) as stream:
                nodes = json.load(stream)["nodes"]
        return Trace(calls_of(nodes, self.device), counted)

    def _counts(self) -> dict[str, int]:
        if self._counter is None:
            return {}
        return {name: getattr(n, "calls", n) for name, n in self._counter().items()}
