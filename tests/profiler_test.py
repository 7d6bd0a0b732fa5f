# SPDX-License-Identifier: BSD-3-Clause
"""Tests torch.profiler on the device: rows, links, times, and unusual situations."""

import json
import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from tests import child

CPU, DEVICE = ProfilerActivity.CPU, ProfilerActivity.PrivateUse1
KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")


class Trace:
    """A trace that has been exported to a file and loaded again, as a program would do."""

    def __init__(self, profiler: Any, folder: Path) -> None:
        path = folder / "trace.json"
        profiler.export_chrome_trace(str(path))
        self.document = json.loads(path.read_text())
        self.events: list[dict[str, Any]] = self.document["traceEvents"]

    def of(self, *categories: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e.get("cat") in categories and e["ph"] == "X"]

    def work(self) -> list[dict[str, Any]]:
        return self.of(*KERNELS)

    def named(self, name: str) -> list[dict[str, Any]]:
        return [e for e in self.work() if e["name"] == name]


def run(
    function: Callable[[], object], tmp_path: Path, *activities: Any, **options: Any
) -> tuple[Any, Trace]:
    torch.openreg.synchronize()
    with profile(activities=activities or (CPU, DEVICE), **options) as profiler:
        function()
    return profiler, Trace(profiler, tmp_path)


def step(model: nn.Module, x: Tensor) -> None:
    model(x).square().mean().backward()


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).to("openreg")


@pytest.fixture
def x() -> Tensor:
    return torch.randn(16, 32).to("openreg")


def test_a_kernel_is_in_the_row_of_its_stream(tmp_path: Path) -> None:
    x = torch.ones(8, device="openreg:1")
    stream = torch.openreg.Stream(1)

    def compute() -> None:
        with torch.openreg.stream(stream):
            x.mul(2)

    _, trace = run(compute, tmp_path)
    (kernel,) = trace.named("aten::mul.Tensor")
    assert kernel["cat"] == "kernel"
    assert kernel["pid"] == kernel["args"]["device"] == 1
    assert kernel["tid"] == kernel["args"]["stream"]
    assert kernel["args"]["correlation"] > 0
    (launch,) = [
        e
        for e in trace.of("privateuse1_runtime")
        if e["args"]["correlation"] == kernel["args"]["correlation"]
    ]
    assert launch["name"] == "orLaunchKernel"
    assert launch["ts"] <= kernel["ts"]
    (operator,) = [e for e in trace.of("cpu_op") if e["name"] == "aten::mul"]
    assert operator["args"]["External id"] == kernel["args"]["External id"]
    assert operator["tid"] == launch["tid"]
    assert operator["ts"] <= launch["ts"] <= operator["ts"] + operator["dur"]


def test_arrows_go_from_calls_to_their_work(model: nn.Module, x: Tensor, tmp_path: Path) -> None:
    _, trace = run(lambda: step(model, x), tmp_path)
    starts = {e["id"] for e in trace.events if e.get("cat") == "ac2g" and e["ph"] == "s"}
    ends = {e["id"] for e in trace.events if e.get("cat") == "ac2g" and e["ph"] == "f"}
    correlations = {e["args"]["correlation"] for e in trace.work()}
    assert correlations
    assert starts == ends == correlations


def test_work_is_linked_to_its_operator(model: nn.Module, x: Tensor, tmp_path: Path) -> None:
    """Each kernel is linked to the operator that launched it, even if backward launched it."""
    _, trace = run(lambda: step(model, x), tmp_path)
    operators = {e["args"]["External id"]: e["name"] for e in trace.of("cpu_op")}
    linked = [(e["name"], operators.get(e["args"].get("External id"))) for e in trace.work()]
    assert len(linked) > 10
    assert not [name for name, operator in linked if operator is None]
    assert ("aten::addmm", "aten::addmm") in linked
    assert any(name == "aten::gelu_backward" for name, _ in linked)


def test_device_times_are_the_sum_of_the_rows(model: nn.Module, x: Tensor, tmp_path: Path) -> None:
    def train() -> None:
        for _ in range(5):
            step(model, x)

    profiler, trace = run(train, tmp_path)
    rows = sum(e["dur"] for e in trace.work())
    # torch lists operators as CPU rows that include their kernels' time. It also lists the kernels.
    by_operator = [e for e in profiler.key_averages() if e.device_type.name == "CPU"]
    by_kernel = [e for e in profiler.key_averages() if e.device_type.name != "CPU"]
    for told in (by_operator, by_kernel):
        assert sum(e.self_device_time_total for e in told) == pytest.approx(rows, rel=0.02)
    averages = {e.key: e for e in by_operator}
    assert averages["aten::addmm"].self_device_time_total > 0
    assert averages["aten::linear"].device_time_total >= (
        averages["aten::addmm"].self_device_time_total
    )
    assert "openreg" in profiler.key_averages().table(sort_by="device_time_total").lower()


def test_rows_of_one_stream_do_not_overlap(model: nn.Module, x: Tensor, tmp_path: Path) -> None:
    def train() -> None:
        for _ in range(10):
            step(model, x)

    _, trace = run(train, tmp_path)
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for e in trace.work():
        rows.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for spans in rows.values():
        spans.sort()
        for (_, end), (begin, _) in pairwise(spans):
            assert begin >= end - 0.002  # trace times are microseconds, rounded to nanoseconds


def test_copies_and_fills(tmp_path: Path) -> None:
    pinned = torch.ones(100_000).pin_memory()
    pageable = torch.ones(1000)

    def copy() -> None:
        there = pinned.to("openreg", non_blocking=True)
        pageable.to("openreg")
        there.cpu()
        there.clone()
        torch.openreg.synchronize()

    _, trace = run(copy, tmp_path)
    (copied,) = trace.named("Memcpy HtoD (Pinned -> Device)")
    assert copied["cat"] == "gpu_memcpy"
    assert copied["args"]["bytes"] == 400_000
    assert copied["args"]["memory bandwidth (GB/s)"] == pytest.approx(
        400_000 / (copied["dur"] * 1e3), rel=0.01
    )
    assert trace.named("Memcpy HtoD (Pageable -> Device)")
    assert trace.named("Memcpy DtoH (Device -> Pageable)")


def test_annotations(tmp_path: Path, model: nn.Module, x: Tensor) -> None:
    def annotated() -> None:
        with record_function("forward"):
            model(x)

    _, trace = run(annotated, tmp_path)
    (span,) = [e for e in trace.of("gpu_user_annotation") if e["name"] == "forward"]
    work = trace.work()
    assert span["ts"] == pytest.approx(min(e["ts"] for e in work), abs=0.01)
    assert span["ts"] + span["dur"] == pytest.approx(
        max(e["ts"] + e["dur"] for e in work), abs=0.01
    )


def test_names_of_devices_and_streams(tmp_path: Path) -> None:
    def compute() -> None:
        for device in range(2):
            torch.ones(4, device=f"openreg:{device}").mul_(2)

    _, trace = run(compute, tmp_path)
    labels = {
        e["pid"]: e["args"]["name"]
        for e in trace.events
        if e["ph"] == "M" and e["name"] == "process_name"
    }
    assert labels[0] == "openreg:0"
    assert labels[1] == "openreg:1"
    streams = [e for e in trace.events if e["ph"] == "M" and e["name"] == "thread_name"]
    assert {(e["pid"], e["args"]["name"]) for e in streams} >= {(0, "stream 0"), (1, "stream 1")}
    properties = trace.document["deviceProperties"]
    assert [p["id"] for p in properties] == [0, 1]
    assert properties[0]["totalGlobalMem"] > 0


def test_replays_have_a_row_for_each_node(tmp_path: Path) -> None:
    x = torch.ones(64, device="openreg")
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        y = x.mul(2).add_(1)

    def replay() -> None:
        graph.replay()
        graph.replay()

    _, trace = run(replay, tmp_path)
    assert len(trace.named("aten::mul.Tensor")) == 2
    nodes = [e for e in trace.work() if "graph id" in e["args"]]
    by_replay = Counter(e["args"]["correlation"] for e in nodes)
    assert len(by_replay) == 2
    assert len(set(by_replay.values())) == 1
    assert len({e["args"]["graph id"] for e in nodes}) == 1
    assert y.sum().item() == 3 * 64


def test_compiled_kernels_have_names_and_links(tmp_path: Path) -> None:
    compiled = torch.compile(lambda x: (x * 2 + 1).relu().sum(0))
    x = torch.randn(64, 32, device="openreg")
    compiled(x)
    _, trace = run(lambda: compiled(x), tmp_path)
    kernels = [e for e in trace.of("kernel") if "fused" in e["name"]]
    assert kernels
    assert all("External id" in e["args"] for e in kernels)


def test_only_requested_activities(tmp_path: Path) -> None:
    x = torch.ones(8, device="openreg")
    _, trace = run(lambda: x.mul(2), tmp_path, CPU)
    assert not trace.work()
    assert not trace.of("privateuse1_runtime")
    _, trace = run(lambda: x.mul(2), tmp_path, DEVICE)
    assert trace.work()
    assert not trace.of("cpu_op")


def test_filtered_activities(tmp_path: Path) -> None:
    x = torch.ones(8)
    activities: list[Any] = [CPU, {DEVICE: ["GPU_MEMCPY"]}]

    def compute() -> None:
        x.to("openreg").mul(2)

    with profile(activities=activities) as profiler:
        compute()
    trace = Trace(profiler, tmp_path)
    assert trace.of("gpu_memcpy")
    assert not trace.of("kernel")


def test_sessions_one_after_the_other(tmp_path: Path) -> None:
    x = torch.ones(8, device="openreg")
    for count in (1, 3, 2):
        with profile(activities=(CPU, DEVICE)) as profiler:
            for _ in range(count):
                x.mul(2)
        trace = Trace(profiler, tmp_path)
        assert len(trace.named("aten::mul.Tensor")) == count


def test_a_schedule_records_its_active_steps(tmp_path: Path) -> None:
    x = torch.ones(8, device="openreg")
    counts: list[int] = []

    def ready(profiler: Any) -> None:
        counts.append(len(Trace(profiler, tmp_path).named("aten::mul.Tensor")))

    with profile(
        activities=(CPU, DEVICE),
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=ready,
    ) as profiler:
        for _ in range(9):
            x.mul(2)
            profiler.step()
    assert counts == [2, 2]


def test_work_that_is_still_queued_at_the_end_is_recorded(tmp_path: Path) -> None:
    x = torch.ones(8, device="openreg:1")

    def queue() -> None:
        with torch.openreg.device(1):
            torch.openreg._sleep(20_000_000)
            x.mul(2)

    _, trace = run(queue, tmp_path)
    assert len(trace.named("aten::mul.Tensor")) == 1
    (sleep,) = trace.named("openreg::sleep")
    assert sleep["dur"] >= 20_000


def test_work_from_before_is_not_recorded(tmp_path: Path) -> None:
    x = torch.ones(8, device="openreg")
    torch.openreg._sleep(20_000_000)
    x.add(2)
    with profile(activities=(CPU, DEVICE)) as profiler:
        x.mul(2)
    trace = Trace(profiler, tmp_path)
    assert not trace.named("aten::add.Tensor")
    assert len(trace.named("aten::mul.Tensor")) == 1


def test_an_exception_ends_the_session(tmp_path: Path) -> None:
    x = torch.ones(8, device="openreg")

    def fail() -> None:
        x.mul(2)
        raise KeyError

    profiler = profile(activities=(CPU, DEVICE))
    with pytest.raises(KeyError), profiler:
        fail()
    assert len(Trace(profiler, tmp_path).named("aten::mul.Tensor")) == 1
    _, trace = run(lambda: x.add(2), tmp_path)
    assert [e["name"] for e in trace.of("kernel")] == ["aten::add.Tensor"]


def test_a_kernel_that_fails_is_recorded_and_its_error_stays(tmp_path: Path) -> None:
    x = torch.ones(4, device="openreg:1")
    index = torch.tensor([1], device="openreg:1")
    x.index_select(0, index)  # the first call with these dtypes waits
    index.fill_(9)
    with profile(activities=(CPU, DEVICE)) as profiler:
        x.index_select(0, index)
    assert Trace(profiler, tmp_path).work()
    with pytest.raises((RuntimeError, IndexError)):
        torch.openreg.synchronize(1)


def test_threads(tmp_path: Path) -> None:
    """As in torch, a profile has all threads' device work and the profiling thread's operators."""

    def work(device: int) -> None:
        x = torch.ones(8, device=f"openreg:{device}")
        with torch.openreg.stream(torch.openreg.Stream(device)):
            for _ in range(50):
                x.mul(2)

    def compute() -> None:
        threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    _, trace = run(compute, tmp_path)
    rows = Counter((e["pid"], e["tid"]) for e in trace.named("aten::mul.Tensor"))
    assert len(rows) == 4
    assert set(rows.values()) == {50}


def test_device_profiler_range(tmp_path: Path) -> None:
    x = torch.ones(8, device="openreg")

    def compute() -> None:
        torch.openreg.profiler.stop()
        x.add(2)
        with torch.openreg.profiler.profile():
            x.mul(2)
        x.add(2)

    _, trace = run(compute, tmp_path)
    assert [e["name"] for e in trace.of("kernel")] == ["aten::mul.Tensor"]
    torch.openreg.profiler.start()  # has no effect without a session


def test_the_legacy_profiler(capfd: pytest.CaptureFixture[str]) -> None:
    x = torch.randn(128, 128, device="openreg")
    with torch.autograd.profiler.profile(use_device="openreg") as profiler:
        for _ in range(3):
            (x @ x).relu()
    averages = {e.key: e for e in profiler.key_averages()}
    assert 0 < averages["aten::mm"].device_time_total < 1e6
    assert averages["aten::mm"].count == 3
    said = capfd.readouterr().err.splitlines()
    # Kineto itself prints the lines that start with USDT.
    assert not [line for line in said if not line.startswith("USDT:")]


def test_calls_in_a_region_have_no_time_of_the_device(tmp_path: Path) -> None:
    """A region includes the device time of its work, but driver calls in it have no device time."""

    def compute() -> None:
        with record_function("region"):
            torch.openreg._sleep(2_000_000)
            torch.openreg.synchronize()

    profiler, _ = run(compute, tmp_path)
    averages = {e.key: e for e in profiler.key_averages() if not e.is_user_annotation}
    for name in ("orLaunchKernel", "orDeviceSynchronize"):
        assert averages[name].self_device_time_total == 0


@pytest.mark.parametrize("busy", [False, True])
def test_operators_within_kernels_are_not_shown(tmp_path: Path, busy: bool) -> None:
    """A profile omits operators that a kernel calls, whether it runs in the launch or later."""
    x = torch.randn(64, 64, device="openreg")
    y = torch.empty_like(x)

    def compute() -> None:
        if busy:
            torch.openreg._sleep(20_000_000)
        y.copy_(x.t())
        x.double()
        x.sort()

    profiler, _ = run(compute, tmp_path)
    counts = {e.key: e.count for e in profiler.key_averages()}
    assert counts["aten::copy_"] == 2
    assert counts.get("aten::empty", 0) <= 2
    # Without cached output metadata, torch's sort also calls sort.stable.
    sorts = [e for e in profiler.events() if e.name == "aten::sort" and e.cpu_parent is None]
    assert len(sorts) == 1


@pytest.mark.parametrize("options", [{}, {"use_kineto": False}])
def test_the_legacy_profiler_of_a_training_step(
    options: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    model = nn.Linear(32, 8).to("openreg")
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(16, 32).to("openreg")
    with torch.autograd.profiler.profile(use_device="openreg", **options) as profiler:
        model(x.t().contiguous().t()).double().square().mean().backward()
        optimizer.step()
    assert any(e.key == "aten::addmm" for e in profiler.key_averages())
    said = capfd.readouterr().err.splitlines()
    assert not [line for line in said if not line.startswith("USDT:")]


@pytest.mark.filterwarnings("ignore:torch.autograd.profiler cannot measure")
def test_the_legacy_profiler_where_the_device_changes() -> None:
    with torch.autograd.profiler.profile(use_device="openreg") as profiler:
        with record_function("region"):
            torch.openreg.set_device(1)
            torch.ones(3, device="openreg:1").add(1)
        torch.openreg.set_device(0)
    assert any(e.key == "aten::add" for e in profiler.key_averages())


def test_memory_of_the_device(tmp_path: Path) -> None:
    torch.openreg.empty_cache()

    def compute() -> None:
        x = torch.empty(1 << 20, device="openreg")
        del x

    profiler, trace = run(compute, tmp_path, profile_memory=True)
    events = [e for e in trace.events if e["name"] == "[memory]" and e["args"]["Device Type"] != 0]
    sizes = [e["args"]["Bytes"] for e in events]
    assert sizes == [4 << 20, -4 << 20]
    assert events[0]["args"]["Total Allocated"] - events[1]["args"]["Total Allocated"] == 4 << 20
    averages = {e.key: e for e in profiler.key_averages()}
    assert averages["aten::empty"].self_device_memory_usage == 4 << 20


def test_memory_without_device_activity(tmp_path: Path) -> None:
    """A process's first session records device memory although it requests only CPU activity."""
    file = tmp_path / "memory.json"
    code = f"""
        import torch
        from torch.profiler import ProfilerActivity, profile
        x = torch.empty(1 << 20, device="openreg")
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            del x
            x = torch.empty(1 << 20, device="openreg")
        profiler.export_chrome_trace({str(file)!r})
    """
    finished = child.run(code)
    assert finished.returncode == 0, finished.stderr
    events = json.loads(file.read_text())["traceEvents"]
    sizes = [e["args"]["Bytes"] for e in events if e["name"] == "[memory]"]
    assert sizes == [-4 << 20, 4 << 20]


def test_pinned_memory(tmp_path: Path) -> None:
    def compute() -> None:
        with record_function("pin"):
            x = torch.empty(1 << 20, device="cpu", pin_memory=True)
        del x

    profiler, trace = run(compute, tmp_path, profile_memory=True)
    events = [e["args"] for e in trace.events if e["name"] == "[memory]"]
    assert [event["Bytes"] for event in events] == [4 << 20, -4 << 20]
    assert {event["Device Type"] for event in events} == {0}  # only host memory
    assert events[0]["Addr"] == events[1]["Addr"]
    assert events[0]["Total Allocated"] - events[1]["Total Allocated"] == 4 << 20
    averages = {e.key: e for e in profiler.key_averages()}
    assert averages["pin"].cpu_memory_usage == 4 << 20


def test_out_of_memory_in_a_profile(tmp_path: Path) -> None:
    def exhaust() -> None:
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 50, dtype=torch.uint8, device="openreg")

    _, trace = run(exhaust, tmp_path, profile_memory=True)
    (event,) = [e for e in trace.events if e["name"] == "[OutOfMemory]"]
    assert event["args"]["Bytes"] == 1 << 50


def test_shapes_stacks_and_an_execution_trace(model: nn.Module, x: Tensor, tmp_path: Path) -> None:
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(tmp_path / "execution.json"))
    profiler, _ = run(
        lambda: step(model, x),
        tmp_path,
        record_shapes=True,
        with_stack=True,
        execution_trace_observer=observer,
    )
    shapes = {e.key: e.input_shapes for e in profiler.key_averages(group_by_input_shape=True)}
    assert shapes["aten::addmm"][1] == [16, 32] or shapes["aten::addmm"][1] == [16, 64]
    profiler.export_stacks(str(tmp_path / "stacks.txt"), "self_privateuse1_time_total")
    assert (tmp_path / "stacks.txt").exists()
    nodes = json.loads((tmp_path / "execution.json").read_text())["nodes"]
    assert any(node["name"] == "aten::addmm" for node in nodes)


def test_four_threads_on_two_devices_lose_nothing(tmp_path: Path) -> None:
    """The profile contains exactly one row per launch."""
    launches = 3000

    def work(device: int, stream: torch.Stream) -> None:
        x = torch.ones(8, device=f"openreg:{device}")
        with torch.openreg.stream(stream):
            for _ in range(launches):
                x.add_(1)

    streams = [(i % 2, torch.openreg.Stream(i % 2)) for i in range(4)]

    def compute() -> None:
        threads = [threading.Thread(target=work, args=each) for each in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    _, trace = run(compute, tmp_path)
    added = trace.named("aten::add_.Tensor")
    assert len(added) == 4 * launches
    assert len({e["args"]["correlation"] for e in added}) == 4 * launches
    assert trace.document["openreg_dropped_records"] == 0
