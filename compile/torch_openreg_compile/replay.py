# SPDX-License-Identifier: BSD-3-Clause
"""Replays captured graphs instead of calling compiled functions.

The first call for each tuple of integers (the dynamic sizes) runs the function directly. The second
call captures it. Later calls copy their inputs into the graph's memory and replay the graph.
Parameters and other inputs that torch considers static are not copied, because the graph reads them
at the captured address.

Results are in the graph's memory. If a result of an earlier call is still referenced, it is not
overwritten. Instead, the function is captured again into other memory. A function that cannot be
captured runs directly, and the log states the reason (``TORCH_LOGS=cudagraphs``).

docs/compile.md, "Replaying graphs", explains the rules.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch._inductor import config
from torch._inductor.cudagraph_utils import (
    format_default_skip_message,
    log_cudagraph_skip_and_bump_counter,
)

from torch_openreg_compile.name import DEVICE_TYPE

Function = Callable[[list[Any]], Any]

#: Maximum number of recordings of a function: per tuple of integers, and in total.
MOST_ALIKE = 8
MOST = 64

#: Maximum number of tuples of integers that are stored.
MOST_SIZES = 1024

#: A static input that has had this many addresses is copied like other inputs.
MOST_ADDRESSES = 3

_CAPTURING = threading.Lock()  # captures share streams, so only one runs at a time


@cache
def _capture_stream(device: int) -> torch.Stream:
    stream: torch.Stream = torch.get_device_module(DEVICE_TYPE).Stream(device)
    return stream


def skip(reason: str) -> None:
    """Report to torch that a function runs without a graph. Some settings make torch raise."""
    log_cudagraph_skip_and_bump_counter(format_default_skip_message(reason))


class _Sizes:
    """A function's recordings for one tuple of integers."""

    def __init__(self, copied: set[int]) -> None:
        self.recordings: list[Any] = []
        self.copied = copied
        self.moves: Counter[int] = Counter()

    def learn(self, inputs: list[Any]) -> None:
        """Count static inputs at new addresses, and copy those that move repeatedly."""
        moved = [recording.moved(inputs) for recording in self.recordings]
        known = [set(indices) for indices in moved if indices is not None]
        if not known or not all(known):
            return
        self.moves.update(set.union(*known))
        moving = {i for i, moves in self.moves.items() if moves >= MOST_ADDRESSES}
        if not moving <= self.copied:
            self.copied |= moving
            self.recordings.clear()  # the recordings expect addresses that will not recur


class Replay:
    """Captures and replays a function whose inputs are integers and tensors on one device.

    Args:
        function: takes a list of inputs, which it may clear, and returns a list or a tuple. Its
            only effects must be kernels and copies, because host code is not replayed.
        device: the index of the device that has all tensors.
        static: indices of inputs whose addresses usually do not change.
        written: indices of inputs that the function writes to.

    A call of the object takes a list of inputs and clears the list. Any thread may call the object.
    """

    def __init__(
        self, function: Function, device: int, static: Sequence[int], written: Sequence[int]
    ) -> None:
        self._boxed_call = True  # tells AOTAutograd that the function clears its inputs
        self._function = function
        self._device = device
        self._static = frozenset(static)
        self._written = tuple(written)
        self._module = torch.get_device_module(DEVICE_TYPE)
        self._integers: tuple[int, ...] | None = None  # indices of the inputs that are not tensors
        self._sizes: dict[tuple[Any, ...], _Sizes] = {}
        self._refused = False
        self._skips_dynamic = config.triton.cudagraph_skip_dynamic_graphs

    def __call__(self, inputs: list[Any]) -> Any:
        """Replay a recording if one fits; otherwise run the function or capture it."""
        if self._integers is None:
            self._integers = tuple(
                i for i, value in enumerate(inputs) if not isinstance(value, torch.Tensor)
            )
        sizes = self._sizes.get(tuple([inputs[i] for i in self._integers]))
        if sizes is not None:
            for recording in sizes.recordings:
                results = recording.run(inputs)
                if results is not None:
                    return results
        return self._run_or_record(inputs, sizes)

    def _refuse(self, reason: str) -> None:
        self._refused = True
        skip(reason)

    def _run_or_record(self, inputs: list[Any], sizes: _Sizes | None) -> Any:
        with self._module.device(self._device):
            captured = self._module.is_current_stream_capturing()
        if self._refused or captured:
            return self._function(inputs)
        if sizes is None:
            assert self._integers is not None
            if self._integers and self._skips_dynamic:
                self._refuse("dynamic sizes and triton.cudagraph_skip_dynamic_graphs=True")
                return self._function(inputs)
            if len(self._sizes) == MOST_SIZES:
                self._refuse(f"{MOST_SIZES} different sizes")
                return self._function(inputs)
            numbers = tuple([inputs[i] for i in self._integers])
            self._sizes[numbers] = _Sizes(
                set(range(len(inputs))) - self._static - set(self._integers)
            )
            return self._function(inputs)
        with _CAPTURING:
            recording = self._record(inputs, sizes)
        results = None if recording is None else recording.run(inputs)
        return self._function(inputs) if results is None else results

    def _record(self, inputs: list[Any], sizes: _Sizes) -> Any:
        sizes.learn(inputs)
        count = sum(len(each.recordings) for each in self._sizes.values())
        if len(sizes.recordings) >= MOST_ALIKE or count >= MOST:
            self._refuse(
                f"{count} captures of one function, {len(sizes.recordings)} of them for these "
                "sizes: too many of its results are referenced at the same time, its parameters "
                "move, or its sizes change with each call"
            )
            return None
        try:
            recording = self._capture(inputs, sizes.copied)
        except Exception as error:  # after any error in a capture, run without a graph
            self._refuse(f"the function cannot be captured: {error}")
            return None
        sizes.recordings.append(recording)
        counters[DEVICE_TYPE]["graph_captures"] += 1
        return recording

    def _capture(self, inputs: list[Any], copied: set[int]) -> Any:
        # The tensors created here are used after this call, so the caller's modes must not apply to
        # them.
        with torch.inference_mode(False), torch.no_grad():
            given = [
                torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)
                if i in copied
                else x
                for i, x in enumerate(inputs)
            ]
            graph = self._module.OpenRegGraph()
            stream = _capture_stream(self._device)
            with self._module.device(self._device), self._module.stream(stream):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    results = list(self._function(list(given)))
                except BaseException:
                    with suppress(RuntimeError):  # this fails for the same reason
                        graph.capture_end()
                    raise
                graph.capture_end()
            written = [i for i in self._written if i in copied]
            return self._module._Recording(
                graph, self._device, given, sorted(copied), written, results
            )
