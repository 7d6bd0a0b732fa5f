# SPDX-License-Identifier: BSD-3-Clause
"""Memory history and snapshots: what allocated the memory of a device, and what came before.

The names are those of ``torch.cuda.memory``, and so is the format: ``torch.cuda._memory_viz`` and
the viewer at pytorch.org/memory_viz read it. See docs/memory_debugging.md.
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

#: In the order of ContextLevel in runtime/allocator/history.h.
_CONTEXTS = (None, "state", "alloc", "all")

#: In the order of Action in runtime/allocator/observer.h.
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
    """Record what the allocators of all devices do from now on, and where in the program.

    Args:
        enabled: ``"all"``: every event, and what is held. ``"state"``: what is held. None: stop,
            and forget what was recorded.
        context: whose call stacks are kept. ``"state"``: those of memory that is held.
            ``"alloc"``: those of allocations that are over, too. ``"all"``: those of frees, too.
            None: none.
        stacks: ``"python"``, or ``"all"`` to add C++ frames. Recording them takes longer, and
            turning them into text takes much longer.
        max_entries: how many events of each device are kept; the oldest are dropped. An event takes
            75 bytes, and a stack some 200 to 700.
        clear_history: forget the events of an earlier call first.
        skip_actions: events to leave out: ``"alloc"``, ``"free_requested"``, ``"free_completed"``,
            ``"segment_alloc"``, ``"segment_free"``, ``"oom"``, ``"snapshot"``.

    Raises:
        ValueError: for any other word, or a negative number.
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
    """Return what the allocators hold, and the events that were recorded.

    Args:
        device: whose segments and events; those of all devices for None.
        augment_with_fx_traces: say of frames of generated code which line of the model they are.

    Returns:
        A dict. ``"segments"``: for each segment its ``device``, ``address``, ``total_size``,
        ``allocated_size``, ``active_size`` (also what waits for other streams), ``requested_size``,
        in bytes, ``stream`` (0 is the default one), ``segment_type`` (``"small"``, ``"large"``),
        ``segment_pool_id``, ``frames`` and ``blocks``, in the order of addresses: ``address``,
        ``size``, ``requested_size``, ``state`` (``"active_allocated"``, ``"active_awaiting_free"``,
        ``"inactive"``) and ``frames``. ``"device_traces"``: for each device its events, the oldest
        first: ``action``, ``addr`` (of ``"oom"`` instead: ``device_free``), ``size``, ``stream``,
        ``pool_id``, ``time_us`` (since 1970), ``frames``. A frame has ``filename``, ``line`` and
        ``name``; the innermost call comes first. ``"allocator_settings"``, and
        ``"external_annotations"``, of which there are none.

    Raises:
        ValueError: for a device of another type.
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
        filename: of the file, which is replaced.
        augment_with_fx_traces: as in ``_snapshot``.
    """
    found = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    with open(filename, "wb") as file:
        pickle.dump(found, file)


def memory_snapshot(
    mempool_id: tuple[int, int] | None = None, include_traces: bool = True
) -> list[dict[str, Any]]:
    """Return the segments of all devices, as ``_snapshot`` describes them.

    Args:
        mempool_id: only those of this pool; None: all.
        include_traces: of torch.cuda, which gathers the recorded events unless this is False. They
            are no part of the result, so here they are never gathered.
    """
    segments: list[dict[str, Any]] = _C.memory_snapshot(events=False)["segments"]
    if mempool_id is None:
        return segments
    return [entry for entry in segments if entry["segment_pool_id"] == tuple(mempool_id)]
