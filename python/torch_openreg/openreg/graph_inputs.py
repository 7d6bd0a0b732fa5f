# SPDX-License-Identifier: BSD-3-Clause
"""Which tensors from outside a graph uses, so that a replay without one of them is an error.

A graph keeps addresses. The memory of what was allocated inside of the capture stays with the
graph, and so does pinned memory; a tensor of the device from outside belongs to the program, and
when that drops it, a replay reads and writes what has got its memory since. ``GraphInputs`` belongs
to a graph; the thread that captures calls it. Kernels that are launched past torch's dispatcher
(compiled ones) are not seen.
"""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_openreg import _C
from torch_openreg.name import DEVICE_TYPE
from torch_openreg.openreg.memory_history import memory_snapshot

#: How many of the tensors that are gone an error describes.
_DESCRIBED = 5


class _Input:
    """The memory of a tensor from outside, and what first used it."""

    def __init__(self, tensor: torch.Tensor, operator: str) -> None:
        storage = tensor.untyped_storage()
        self.address = storage.data_ptr()
        self.device = tensor.device
        self.words = (
            f"{tuple(tensor.shape)}, {tensor.dtype}, at {self.address:#x} on {tensor.device}, "
            f"which {operator} uses"
        )
        self._storage = weakref.ref(storage)

    def lives(self) -> bool:
        """Tell whether the storage is there, and has the memory that it had."""
        storage = self._storage()
        return storage is not None and storage.data_ptr() == self.address


class _Follow(TorchDispatchMode):
    """Hands each operator of the captured stream, its arguments and its results over."""

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
    """The tensors from outside that the operators of one capture use."""

    def __init__(self) -> None:
        self._outside: dict[int, _Input] = {}
        self._inside: set[int] = set()
        self._mode: _Follow | None = None

    def follow(self) -> None:
        """Look at the operators of this thread, and of its backward passes, from now on."""
        self._mode = _Follow(self)
        self._mode.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Look no longer."""
        if self._mode is not None:
            mode, self._mode = self._mode, None
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def add(self, operator: str, arguments: Any, results: Any) -> None:
        """Note the memory that a captured operator uses, and what it made."""
        for tensor in filter(_is_in_memory, tree_leaves(arguments)):
            address = tensor.untyped_storage().data_ptr()
            if address not in self._inside and address not in self._outside:
                self._outside[address] = _Input(tensor, operator)
        for tensor in filter(_is_in_memory, tree_leaves(results)):
            address = tensor.untyped_storage().data_ptr()
            if address not in self._outside:
                self._inside.add(address)

    def require(self, pool: tuple[int, int]) -> None:
        """Raise an error if a tensor from outside is gone.

        Args:
            pool: of the graph. What lies in it was left by another graph that shares it.

        Raises:
            RuntimeError: naming the tensors.
        """
        gone = [entry for entry in self._outside.values() if not entry.lives()]
        if gone:
            kept = _segments(pool)
            gone = [entry for entry in gone if not _lies_in(entry, kept)]
        if not gone:
            return
        described = "".join(f"\n  {entry.words}" for entry in gone[:_DESCRIBED])
        more = f"\n  and {len(gone) - _DESCRIBED} more" if len(gone) > _DESCRIBED else ""
        raise RuntimeError(
            f"the graph cannot be replayed: {len(gone)} of the tensors from outside that it was "
            f"captured with are gone, and others may have their memory:{described}{more}\n"
            "Keep the tensors as long as the graph, and change their values in place."
        )


def _is_in_memory(value: object) -> bool:
    """Tell whether it is a tensor with memory of the device."""
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


def _lies_in(entry: _Input, segments: list[tuple[int, int, int]]) -> bool:
    return any(
        device == entry.device.index and begin <= entry.address < end
        for device, begin, end in segments
    )
