# SPDX-License-Identifier: BSD-3-Clause
"""Memory history and snapshots: the call sites that allocated device memory, and past events.

The names and the format are those of ``torch.cuda.memory``, so ``torch.cuda._memory_viz`` and the
viewer at pytorch.org/memory_viz can read the snapshots. See docs/memory_debugging.md.
"""

import os
import pickle
import sys
from collections.abc import Sequence
from typing import Any, Literal, get_args

from torch._utils import _augment_memory_snapshot_stack_traces

from torch_openreg import _C
from torch_openreg.openreg._utils import DeviceLike, resolve

_Enabled = Literal["state", "all"]
_Stacks = Literal["python", "all"]

#: The levels, in the order of ContextLevel in runtime/allocator/history.h.
_CONTEXTS = (None, "state", "alloc", "all")

#: The actions, in the order of Action in runtime/allocator/observer.h.
_ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "oom",
    "snapshot",
)


def _require(name: str, value: object, known: Sequence[object]) -> None:
    if isinstance(value, bool) or value not in known:
        raise ValueError(
            f"{name} is {value!r}: expected one of {', '.join(repr(word) for word in known)}"
        )


def _record_memory_history(
    enabled: _Enabled | None = "all",
    context: Literal["state", "alloc", "all"] | None = "all",
    stacks: _Stacks = "python",
    max_entries: int = sys.maxsize,
    *,
    clear_history: bool = False,
    skip_actions: Sequence[str] | None = None,
) -> None:
    """Start recording the events of all device allocators, with call stacks.

    Args:
        enabled: ``"all"``: record every event and the memory in use. ``"state"``: record only the
            memory in use. None: stop recording and clear the records.
        context: which call stacks are kept. ``"state"``: the stacks of memory in use. ``"alloc"``:
            also the stacks of past allocations. ``"all"``: also the stacks of frees. None: no
            stacks.
        stacks: ``"python"``, or ``"all"`` to add C++ frames. C++ frames take longer to record and
            much longer to convert to text.
        max_entries: the number of events kept per device; the oldest events are dropped. An event
            uses 75 bytes, and a stack uses 200 to 700 bytes.
        clear_history: if True, clear earlier events first.
        skip_actions: events that are not recorded: ``"alloc"``, ``"free_requested"``,
            ``"free_completed"``, ``"segment_alloc"``, ``"segment_free"``, ``"oom"``,
            ``"snapshot"``.

    Raises:
        ValueError: for any other value, or a negative number.
    """
    _require("enabled", enabled, (None, *get_args(_Enabled)))
    _require("context", context, _CONTEXTS)
    _require("stacks", stacks, get_args(_Stacks))
    for action in skip_actions or ():
        _require("an action of skip_actions", action, _ACTIONS)
    if max_entries < 0:
        raise ValueError(f"max_entries is {max_entries}: expected 0 or more")
    if enabled is None:
        _C.stop_memory_history()
        return
    _C.start_memory_history(
        events=enabled == "all",
        contexts=_CONTEXTS.index(context),
        cpp=stacks == "all",
        capacity=max_entries,
        clear=clear_history,
        skipped=[_ACTIONS.index(action) for action in skip_actions or ()],
    )


def _snapshot(device: DeviceLike = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Return the segments of all allocators and the recorded events.

    Args:
        device: the device; None means all devices.
        augment_with_fx_traces: if True, add the model's source line to frames of generated code.

    Returns:
        A dict with these keys:

        - ``"segments"``: a list of segments. Each has ``device``, ``address``, ``total_size``,
          ``allocated_size``, ``active_size`` (including freed blocks that other streams still use),
          ``requested_size``, ``stream`` (0 is the default stream), ``segment_type`` (``"small"`` or
          ``"large"``), ``segment_pool_id``, ``frames``, and ``blocks`` in address order. A block
          has ``address``, ``size``, ``requested_size``, ``state`` (``"active_allocated"``,
          ``"active_awaiting_free"`` or ``"inactive"``) and ``frames``. Sizes are in bytes.
        - ``"device_traces"``: for each device a list of its events, oldest first. An event has
          ``action``, ``addr`` (``device_free`` if the action is ``"oom"``), ``size``, ``stream``,
          ``pool_id``, ``time_us`` (Unix time) and ``frames``.
        - ``"allocator_settings"``.
        - ``"external_annotations"``, which is empty.

        ``frames`` is a call stack; the innermost call comes first. A frame has ``filename``,
        ``line`` and ``name``.

    Raises:
        ValueError: for a device that is not openreg.
        RuntimeError: for an index that is out of range.
    """
    found: dict[str, Any] = {**_C.memory_snapshot(events=True)}
    if device is not None:
        index = resolve(device)
        found["segments"] = [entry for entry in found["segments"] if entry["device"] == index]
        found["device_traces"] = [
            trace if number == index else [] for number, trace in enumerate(found["device_traces"])
        ]
    found["allocator_settings"] = {
        "PYTORCH_ALLOC_CONF": os.environ.get("PYTORCH_ALLOC_CONF", ""),
        "expandable_segments": False,
    }
    found["external_annotations"] = []
    if augment_with_fx_traces:
        found = _augment_memory_snapshot_stack_traces(found)  # type: ignore[assignment, arg-type]
    return found


def _dump_snapshot(
    filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False
) -> None:
    """Write a snapshot of all devices to a file, for torch's tools.

    Args:
        filename: the file's path; an existing file is overwritten.
        augment_with_fx_traces: see ``_snapshot``.
    """
    found = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    with open(filename, "wb") as file:
        pickle.dump(found, file)


def memory_snapshot(
    mempool_id: tuple[int, int] | None = None, include_traces: bool = True
) -> list[dict[str, Any]]:
    """Return the segments of all devices, in the format of ``_snapshot``.

    Args:
        mempool_id: return only the segments of this pool; None means all segments.
        include_traces: exists for compatibility with torch.cuda and has no effect: the result never
            contains the recorded events.
    """
    segments: list[dict[str, Any]] = _C.memory_snapshot(events=False)["segments"]
    if mempool_id is None:
        return segments
    return [entry for entry in segments if entry["segment_pool_id"] == tuple(mempool_id)]
