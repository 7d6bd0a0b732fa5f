# SPDX-License-Identifier: BSD-3-Clause
"""Tracks the external tensors that a graph uses, so that a replay fails if one was freed.

A graph stores addresses. The graph owns the memory that was allocated during the capture, and
pinned memory. Other device tensors belong to the program. If the program frees such a tensor, a
replay accesses memory that another tensor may use by then. A ``GraphInputs`` object belongs to one
graph, and only the capturing thread calls it. Kernels that do not use torch's dispatcher (compiled
kernels) are not tracked.
"""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_openreg import _C
from torch_openreg.name import DEVICE_TYPE
from torch_openreg.openreg.memory_history import memory_snapshot

#: The maximum number of freed tensors that an error message describes.
_DESCRIBED = 5


class _Input:
    """The memory of an external tensor, and the first operator that used it."""

    def __init__(self, tensor: torch.Tensor, operator: str) -> None:
        storage = tensor.untyped_storage()
        self.address = storage.data_ptr()
        self.device = tensor.device
        self.words = (
            f"{tuple(tensor.shape)}, {tensor.dtype}, at {self.address:#x} on {tensor.device}, "
            f"used by {operator}"
        )
        self._storage = weakref.ref(storage)

    def lives(self) -> bool:
        """Return whether the storage still exists and has not been reallocated."""
        storage = self._storage()
        return storage is not None and storage.data_ptr() == self.address


class _Follow(TorchDispatchMode):
    """Reports each operator on a captured stream to GraphInputs, with its arguments and results."""

    def __init__(self, inputs: "GraphInputs") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._inputs = inputs

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if _C.is_current_stream_capturing():
            self._inputs.add(str(func), (args, kwargs), result)
        return result


class GraphInputs:
    """The external tensors used by the operators of one capture."""

    def __init__(self) -> None:
        self._outside: dict[int, _Input] = {}
        self._inside: set[int] = set()
        self._mode: _Follow | None = None

    def follow(self) -> None:
        """Start tracking the operators of this thread and of its backward passes."""
        self._mode = _Follow(self)
        self._mode.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Stop tracking."""
        if self._mode is not None:
            mode, self._mode = self._mode, None
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def add(self, operator: str, arguments: Any, results: Any) -> None:
        """Record the memory that a captured operator uses and allocates."""
        for tensor in filter(_is_in_memory, tree_leaves(arguments)):
            address = tensor.untyped_storage().data_ptr()
            if address not in self._inside and address not in self._outside:
                self._outside[address] = _Input(tensor, operator)
        for tensor in filter(_is_in_memory, tree_leaves(results)):
            address = tensor.untyped_storage().data_ptr()
            if address not in self._outside:
                self._inside.add(address)

    def require(self, pool: tuple[int, int]) -> None:
        """Raise an error if an external tensor of the graph was freed.

        Args:
            pool: the graph's pool. Freed tensors in the pool are not an error, because they belong
                to another graph that shares the pool.

        Raises:
            RuntimeError: if a tensor was freed; the message describes the freed tensors.
        """
        gone = [entry for entry in self._outside.values() if not entry.lives()]
        if gone:
            kept = _segments(pool)
            gone = [entry for entry in gone if not _is_in(entry, kept)]
        if not gone:
            return
        described = "".join(f"\n  {entry.words}" for entry in gone[:_DESCRIBED])
        more = f"\n  and {len(gone) - _DESCRIBED} more" if len(gone) > _DESCRIBED else ""
        raise RuntimeError(
            f"the graph cannot be replayed: {len(gone)} of the external tensors that it uses were "
            f"freed, and other tensors may use their memory:{described}{more}\n"
            "Keep the tensors alive as long as the graph, and change their values in place."
        )


def _is_in_memory(value: object) -> bool:
    """Return whether ``value`` is a tensor with device memory."""
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == DEVICE_TYPE
        and value.layout == torch.strided
        and value.untyped_storage().data_ptr() != 0
    )


def _segments(pool: tuple[int, int]) -> list[tuple[int, int, int]]:
    return [
        (entry["device"], entry["address"], entry["address"] + entry["total_size"])
        for entry in memory_snapshot(pool)
    ]


def _is_in(entry: _Input, segments: list[tuple[int, int, int]]) -> bool:
    return any(
        device == entry.device.index and begin <= entry.address < end
        for device, begin, end in segments
    )
