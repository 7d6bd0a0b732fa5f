# SPDX-License-Identifier: BSD-3-Clause
"""Histories and snapshots match the program and the statistics, and torch's tools can read them."""

import gc
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.cuda import _memory_viz as viz

from tests import child

memory = torch.openreg.memory

MB = 1 << 20


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.openreg.set_device(0)
    gc.collect()
    for index in range(torch.openreg.device_count()):
        torch.openreg.synchronize(index)
    torch.openreg.empty_cache()
    yield
    memory._record_memory_history(None)


def events(device: int = 0, action: str | None = None) -> list[dict[str, Any]]:
    trace: list[dict[str, Any]] = memory._snapshot()["device_traces"][device]
    return [event for event in trace if action in (None, event["action"])]


def names(entry: dict[str, Any]) -> list[str]:
    return [frame["name"] for frame in entry["frames"]]


def block_at(pointer: int) -> dict[str, Any]:
    [block] = [
        block
        for segment in memory._snapshot()["segments"]
        for block in segment["blocks"]
        if block["address"] == pointer
    ]
    return dict(block)


def make(size: int = 1000) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="openreg")


# ---------------------------------------------------------------------------------- recorded events


def test_an_allocation_and_its_free() -> None:
    memory._record_memory_history()
    before = time.time_ns() // 1000
    tensor = make(1000)
    pointer = tensor.data_ptr()
    del tensor
    after = time.time_ns() // 1000
    trace = [event for event in events() if event.get("addr") == pointer]
    # The segment is new, and its first block belongs to the tensor.
    assert [event["action"] for event in trace] == [
        "segment_alloc",
        "alloc",
        "free_requested",
        "free_completed",
    ]
    for event in trace[1:]:
        assert event["size"] == 1000
        assert event["stream"] == 0
        assert event["pool_id"] == (0, 0)
        assert before <= event["time_us"] <= after
    assert names(trace[1])[:2] == ["make", "test_an_allocation_and_its_free"]
    assert names(trace[2])[0] == "test_an_allocation_and_its_free"
    frame = trace[1]["frames"][0]
    assert frame["filename"] == __file__
    assert frame["line"] == make.__code__.co_firstlineno + 1


def test_segments_are_allocated_and_freed() -> None:
    memory._record_memory_history()
    tensor = make(30 * MB)
    del tensor
    torch.openreg.empty_cache()
    [came] = events(action="segment_alloc")
    [went] = events(action="segment_free")
    assert came["size"] == went["size"] == 30 * MB
    assert came["addr"] == went["addr"]
    assert names(came)[0] == "make"
    assert names(went)[0] == "empty_cache"


def test_a_free_that_waits_for_another_stream() -> None:
    side = torch.openreg.Stream()
    memory._record_memory_history()
    tensor = make()
    pointer = tensor.data_ptr()
    side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        torch.openreg._sleep(100_000_000)
    tensor.record_stream(side)
    del tensor
    assert block_at(pointer)["state"] == "active_awaiting_free"
    assert block_at(pointer)["requested_size"] == 1000
    assert names(block_at(pointer))[0] == "make"
    assert len(events(action="free_requested")) == 1
    assert not events(action="free_completed")
    side.synchronize()
    again = make()
    assert len(events(action="free_completed")) == 1
    del again


def test_the_streams_of_blocks() -> None:
    side = torch.openreg.Stream()
    memory._record_memory_history()
    with torch.openreg.stream(side):
        tensor = make()
    [event] = events(action="alloc")
    assert event["stream"] == side.native_handle
    [segment] = [
        segment
        for segment in memory._snapshot()["segments"]
        if segment["stream"] == side.native_handle
    ]
    assert segment["address"] <= tensor.data_ptr() < segment["address"] + segment["total_size"]


def test_out_of_memory() -> None:
    memory._record_memory_history()
    _, total = torch.openreg.mem_get_info()
    with pytest.raises(torch.OutOfMemoryError):
        make(2 * total)
    [event] = events(action="oom")
    assert event["size"] == 2 * total
    assert 0 < event["device_free"] <= total
    assert "addr" not in event
    assert names(event)[0] == "make"


def test_other_devices_have_histories_of_their_own() -> None:
    memory._record_memory_history()
    tensor = torch.empty(MB, dtype=torch.uint8, device="openreg:1")
    assert not events(0, "alloc")
    [event] = events(1, "alloc")
    assert event["addr"] == tensor.data_ptr()
    snapshot = memory._snapshot(1)
    assert {segment["device"] for segment in snapshot["segments"]} == {1}
    assert snapshot["device_traces"][0] == []
    assert len(snapshot["device_traces"]) == torch.openreg.device_count()
    with pytest.raises(RuntimeError, match="out of range"):
        memory._snapshot(99)


def test_threads_of_autograd_are_recorded() -> None:
    weight = torch.ones(1000, device="openreg", requires_grad=True)
    loss = (weight * 2).sum()
    memory._record_memory_history()
    loss.backward()
    assert weight.grad is not None
    assert block_at(weight.grad.data_ptr())["state"] == "active_allocated"
    assert weight.grad.data_ptr() in {event["addr"] for event in events(action="alloc")}


def test_threads_are_recorded() -> None:
    memory._record_memory_history()
    kept: list[torch.Tensor] = []

    def work() -> None:
        for _ in range(50):
            kept.append(make())
            make()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(events(action="alloc")) == 400
    assert len(events(action="free_completed")) == 200
    held = {tensor.data_ptr() for tensor in kept}
    for event in events():
        if event["action"] == "alloc":
            assert "work" in names(event)
    assert held <= {event["addr"] for event in events(action="alloc")}


# -------------------------------------------------------------------------- settings of the history


def test_the_oldest_events_are_dropped() -> None:
    memory._record_memory_history(max_entries=4)
    for _ in range(10):
        make()
    found = events()
    assert len(found) == 4
    assert [event["action"] for event in found][-1] == "snapshot"


def test_stopping_forgets() -> None:
    memory._record_memory_history()
    tensor = make()
    memory._record_memory_history(None)
    assert not events()
    assert block_at(tensor.data_ptr())["frames"] == []
    again = make()
    assert block_at(again.data_ptr())["frames"] == []


def test_restart_continues_or_clears() -> None:
    memory._record_memory_history()
    make()
    memory._record_memory_history()
    assert len(events(action="alloc")) == 1
    memory._record_memory_history(clear_history=True)
    assert not events(action="alloc")


def test_only_the_state() -> None:
    memory._record_memory_history("state")
    tensor = make()
    make()
    assert not events()
    assert names(block_at(tensor.data_ptr()))[0] == "make"


@pytest.mark.parametrize(
    ("context", "held", "allocated", "freed"),
    [
        (None, False, False, False),
        ("state", True, False, False),
        ("alloc", True, True, False),
        ("all", True, True, True),
    ],
)
def test_selection_of_stacks(context: Any, held: bool, allocated: bool, freed: bool) -> None:
    memory._record_memory_history(context=context)
    tensor = make()
    make()
    assert bool(block_at(tensor.data_ptr())["frames"]) == held
    assert [bool(event["frames"]) for event in events(action="alloc")] == [allocated] * 2
    assert [bool(event["frames"]) for event in events(action="free_requested")] == [freed]


def test_actions_that_are_skipped() -> None:
    memory._record_memory_history(skip_actions=["free_requested", "snapshot"])
    make()
    assert {event["action"] for event in events()} == {"segment_alloc", "alloc", "free_completed"}


def test_stacks_of_cpp() -> None:
    printed = child.output(
        """
        import torch
        torch.openreg.memory._record_memory_history(stacks="all")
        tensor = torch.empty(1000, device="openreg")
        [event] = [
            event
            for event in torch.openreg.memory._snapshot()["device_traces"][0]
            if event["action"] == "alloc"
        ]
        names = [frame["name"] for frame in event["frames"]]
        print("<module>" in names, any("openreg::" in name for name in names))
        """,
        TORCH_SYMBOLIZE_MODE="dladdr",
    )
    assert printed == "True True"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"enabled": "on"}, "enabled is 'on': expected one of None, 'state', 'all'"),
        ({"enabled": True}, "enabled is True: expected one of"),
        ({"context": "some"}, "context is 'some': expected one of None, 'state', 'alloc', 'all'"),
        ({"stacks": "cpp"}, "stacks is 'cpp': expected one of 'python', 'all'"),
        ({"max_entries": -1}, "max_entries is -1: expected 0 or more"),
        ({"skip_actions": ["free"]}, "is 'free': expected one of 'alloc'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        memory._record_memory_history(**arguments)
    make()
    assert not events()


def test_before_the_first_use_there_is_nothing() -> None:
    printed = child.output(
        """
        import torch
        memory = torch.openreg.memory
        memory._record_memory_history()
        snapshot = memory._snapshot()
        print(snapshot["segments"], torch.openreg.is_initialized())
        tensor = torch.ones(3, device="openreg")
        print([event["action"] for event in memory._snapshot()["device_traces"][0]])
        """
    )
    assert printed.splitlines() == [
        "[] False",
        "['snapshot', 'segment_alloc', 'alloc', 'snapshot']",
    ]


def test_the_end_of_a_process_that_records() -> None:
    child.output(
        """
        import sys, torch
        torch.openreg.memory._record_memory_history()
        kept = torch.ones(1000, device="openreg", requires_grad=True)
        (kept * 2).sum().backward()
        sys.modules["kept"] = kept
        """
    )


# --------------------------------------------------------------------------- snapshots of the state


def train() -> torch.nn.Module:
    """Trains a model and returns it. The training allocates blocks of all kinds and frees some."""
    model = torch.nn.Sequential(
        torch.nn.Linear(300, 2000), torch.nn.ReLU(), torch.nn.Linear(2000, 10)
    ).to("openreg")
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        x = torch.randn(600, 300, device="openreg")
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model


def test_segments_agree_with_the_figures() -> None:
    memory._record_memory_history()
    model = train()
    segments = memory._snapshot(0)["segments"]
    stats = torch.openreg.memory_stats()
    blocks = [block for segment in segments for block in segment["blocks"]]
    held = [block for block in blocks if block["state"] == "active_allocated"]
    assert sum(segment["total_size"] for segment in segments) == torch.openreg.memory_reserved()
    assert sum(segment["allocated_size"] for segment in segments) == sum(
        block["size"] for block in held
    )
    assert sum(block["size"] for block in held) == torch.openreg.memory_allocated()
    assert len(held) == stats["allocation.all.current"]
    assert sum(block["requested_size"] for block in held) == stats["requested_bytes.all.current"]
    assert sum(segment["active_size"] for segment in segments) == stats["active_bytes.all.current"]
    for kind in ("small", "large"):
        assert (
            sum(segment["total_size"] for segment in segments if segment["segment_type"] == kind)
            == stats[f"reserved_bytes.{kind}_pool.current"]
        )
    for segment in segments:
        end = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == end
            end += block["size"]
        assert end == segment["address"] + segment["total_size"]
    for parameter in model.parameters():
        block = block_at(parameter.data_ptr())
        assert block["state"] == "active_allocated"
        assert block["requested_size"] == parameter.nbytes
        assert "train" in names(block)
    assert memory.memory_snapshot() == memory._snapshot()["segments"]
    assert memory.memory_snapshot(include_traces=False) == memory._snapshot()["segments"]


def test_the_events_lead_to_the_state() -> None:
    memory._record_memory_history()
    model = train()
    held: dict[int, int] = {}
    for event in events():
        if event["action"] == "alloc":
            assert event["addr"] not in held
            held[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            held.pop(event["addr"], None)  # its allocation may precede the history
    blocks = [
        block
        for segment in memory._snapshot(0)["segments"]
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    ]
    assert held.items() <= {(block["address"], block["requested_size"]) for block in blocks}
    assert {block["address"] for block in blocks if block["frames"]} <= held.keys()
    assert len(held) >= len(list(model.parameters()))


def test_the_segments_of_a_pool() -> None:
    memory._record_memory_history()
    pool = torch.openreg.MemPool()
    assert pool.snapshot() == []
    with torch.openreg.use_mem_pool(pool):
        tensor = make()
    [segment] = pool.snapshot()
    assert segment["segment_pool_id"] == pool.id
    assert segment["address"] == tensor.data_ptr()
    assert segment["blocks"][0]["requested_size"] == 1000
    assert [event["pool_id"] for event in events(action="alloc")] == [pool.id]
    del tensor, segment
    del pool
    torch.openreg.empty_cache()


# ---------------------------------------------------------------------- torch's tools for snapshots


def test_torchs_tools_read_it(tmp_path: Path) -> None:
    memory._record_memory_history()
    model = train()
    path = tmp_path / "snapshot.pickle"
    memory._dump_snapshot(str(path))
    with path.open("rb") as file:
        snapshot = pickle.load(file)
    assert set(snapshot) >= {
        "segments",
        "device_traces",
        "allocator_settings",
        "external_annotations",
    }

    allocated = sum(
        block["requested_size"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    )
    summary = viz.segsum(snapshot)  # segsum() also checks the sums
    assert f"total_allocated: {viz.Bytes(allocated)}" in summary
    assert f"segments: {len(snapshot['segments'])}" in summary

    printed = viz.trace(snapshot)
    assert "Device 0 ----" in printed
    assert printed.count("cudaMalloc(") == len(events(action="segment_alloc"))

    for plot in (
        viz.trace_plot(snapshot),
        viz.trace_plot(snapshot, plot_segments=True),
        viz.segment_plot(snapshot),
    ):
        assert "snapshot.pickle" in plot
    filtered = viz.filter_alloc_free_pairs(memory._snapshot())["device_traces"][0]
    assert not [event for event in filtered if event["action"] == "free_requested"]
    left = {event["addr"] for event in filtered if event["action"] == "alloc"}
    assert {parameter.data_ptr() for parameter in model.parameters()} <= left

    def lines_of(text: str) -> str:
        return text  # replaces torch's default, a script that draws an image

    flames = viz.memory(snapshot, format_flamegraph=lines_of).splitlines()
    assert all(line.startswith("stream_") for line in flames)
    assert sum(int(line.rsplit(" ", 1)[1]) for line in flames) == sum(
        segment["total_size"] for segment in snapshot["segments"]
    )
    assert any("active_allocated" in line and ":train" in line for line in flames)
    assert viz.segments(snapshot, format_flamegraph=lines_of)
    del model
    torch.openreg.empty_cache()
    assert "only_before" in viz.compare(
        snapshot["segments"], memory._snapshot()["segments"], format_flamegraph=lines_of
    )


def test_memory_freed_with_a_code_object() -> None:
    """torch frees code objects, and all that they own, under a lock that every event acquires."""
    printed = child.output(
        """
        import weakref
        import torch

        x = torch.ones(10, device="openreg")
        torch.openreg.memory._record_memory_history(stacks="python", max_entries=2)
        space = {}
        exec("def function(x): return x + 1", space)
        function = space.pop("function")
        kept, held = function(x), [x + 2]
        weakref.finalize(function.__code__, held.clear)
        del function, kept
        for _ in range(20):
            x + 1
        print(len(held))
        """
    )
    assert printed.strip() == "0"
