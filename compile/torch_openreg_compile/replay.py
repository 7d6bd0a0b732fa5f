# SPDX-License-Identifier: BSD-3-Clause
"""Compiled functions whose calls are replays of captured graphs.

The first call for each tuple of integers (the sizes that are dynamic) runs the function as it is;
the second captures it, and from then on a call copies its inputs and replays. Parameters and what
else torch calls static are not copied: they are read where they were. Results are memory of the
graph. Those of an earlier call are not overwritten while somebody holds them: the function is
captured once more then, into other memory. What cannot be captured runs as it is, and the log says
why (``TORCH_LOGS=cudagraphs``).

docs/compile.md, "Replaying graphs", has the rules.
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

#: Recordings of one function for one tuple of integers, and for all of them.
MOST_ALIKE = 8
MOST = 64

#: Tuples of integers that are remembered until they come again.
MOST_SIZES = 1024

#: How many addresses of a static input are recorded before it is copied like the others.
MOST_ADDRESSES = 3

_CAPTURING = threading.Lock()  # one capture at a time: they share streams


@cache
def _capture_stream(device: int) -> torch.Stream:
    stream: torch.Stream = torch.get_device_module(DEVICE_TYPE).Stream(device)
    return stream


def skip(reason: str) -> None:
    """Tell in torch's way that something runs without a graph; raises if torch is told to."""
    log_cudagraph_skip_and_bump_counter(format_default_skip_message(reason))


class _Sizes:
    """What was recorded of a function for one tuple of integers."""

    def __init__(self, copied: set[int]) -> None:
        self.recordings: list[Any] = []
        self.copied = copied
        self.moves: Counter[int] = Counter()

    def learn(self, inputs: list[Any]) -> None:
        """Remember static inputs that are not where any recording has them; copy what moves on."""
        moved = [recording.moved(inputs) for recording in self.recordings]
        known = [set(indices) for indices in moved if indices is not None]
        if not known or not all(known):
            return
        self.moves.update(set.union(*known))
        moving = {i for i, moves in self.moves.items() if moves >= MOST_ADDRESSES}
        if not moving <= self.copied:
            self.copied |= moving
            self.recordings.clear()  # they would wait for addresses that do not come again


class Replay:
    """A function of tensors of one device and of integers, which replays what it captured.

    Args:
        function: takes a list of inputs, which it may clear, and returns a list or a tuple. Its
            kernels and copies are all that it does: no host code counts.
        device: index of the device of all tensors.
        static: places of inputs that tend to stay where they are.
        written: places of inputs that the function writes to.

    A call takes a list of inputs and clears it. Any thread may call.
    """

    def __init__(
        self, function: Function, device: int, static: Sequence[int], written: Sequence[int]
    ) -> None:
        self._boxed_call = True  # AOTAutograd's mark for a function that clears its inputs
        self._function = function
        self._device = device
        self._static = frozenset(static)
        self._written = tuple(written)
        self._module = torch.get_device_module(DEVICE_TYPE)
        self._integers: tuple[int, ...] | None = None  # places of what is no tensor
        self._sizes: dict[tuple[Any, ...], _Sizes] = {}
        self._refused = False
        self._skips_dynamic = config.triton.cudagraph_skip_dynamic_graphs

    def __call__(self, inputs: list[Any]) -> Any:
        """Call the function: by a replay if one fits."""
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
                f"{count} captures of one function, of which {len(sizes.recordings)} for these "
                "sizes: too many of its results are held at a time, its parameters move, or its "
                "sizes change with each call"
            )
            return None
        try:
            recording = self._capture(inputs, sizes.copied)
        except Exception as error:  # whatever the function meets in a capture: it runs without one
            self._refuse(f"what a graph cannot hold: {error}")
            return None
        sizes.recordings.append(recording)
        counters[DEVICE_TYPE]["graph_captures"] += 1
        return recording

    def _capture(self, inputs: list[Any], copied: set[int]) -> Any:
        # What is made here outlives the modes of this call.
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
                    with suppress(RuntimeError):  # the same reason
                        graph.capture_end()
                    raise
                graph.capture_end()
            written = [i for i in self._written if i in copied]
            return self._module._Recording(
                graph, self._device, given, sorted(copied), written, results
            )
