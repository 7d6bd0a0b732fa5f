# SPDX-License-Identifier: BSD-3-Clause
"""HolisticTraceAnalysis reads the output of `python -m torch_openreg.trace cuda`.

Compares the results with those of torch_openreg.trace.summary for the same trace.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, schedule
from torch_openreg.trace import __main__ as program
from torch_openreg.trace.events import Trace, read

STEPS = 4

#: This program runs in a separate process with the packages of requirements.lock.
ANALYSIS = """
import json, sys
from hta.trace_analysis import TraceAnalysis

analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
kinds, kernels = analysis.get_gpu_kernel_breakdown(
    visualize=False, num_kernels=100, duration_ratio=1.0)
idle, _ = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
launches = analysis.get_cuda_kernel_launch_stats(visualize=False)[0]
graph, sound = analysis.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=0)
print(json.dumps({
    "kinds": dict(zip(kinds["kernel_type"], kinds["sum"].tolist())),
    "kernels": dict(zip(kernels["name"], kernels["sum (us)"].tolist())),
    "streams": sorted(set(idle["stream"].tolist())),
    "launches": len(launches),
    "bandwidths": sorted(analysis.get_memory_bw_summary(ranks=[0]).index.get_level_values("name")),
    "queue": analysis.get_queue_length_summary(ranks=[0]).index.get_level_values(0).tolist(),
    "annotations": analysis.get_gpu_user_annotation_breakdown(visualize=False)["name"].tolist(),
    "critical_path": sound,
}))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes a trace of a few training steps on two streams, and returns its path."""
    path = tmp_path_factory.mktemp("trace") / "steps.json"
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
    model = model.to("openreg")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    host = torch.randn(64, 256).pin_memory()
    side = torch.openreg.Stream()
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1],
        schedule=schedule(wait=0, warmup=1, active=STEPS),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(STEPS + 1):
            x = host.to("openreg", non_blocking=True)
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.openreg.stream(side):
                x.mul(2)
            profiler.step()
    return path


@pytest.fixture(scope="module")
def found(path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("cuda")
    assert program.main(["cuda", str(path), "--output", str(folder / "rank0.json.gz")]) == 0
    packages = Path(os.environ["TEST_SRCDIR"], "hta_packages", "folder.txt").read_text().strip()
    environment = os.environ | {"PYTHONPATH": packages, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    # hta uses plotly.graph_objects without importing it, because its notebooks do so.
    command = [sys.executable, "-c", "import plotly.graph_objects\n" + ANALYSIS, str(folder)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    result: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return result


@pytest.fixture(scope="module")
def trace(path: Path) -> Trace:
    return read(path)


def test_all_work_is_seen(found: dict[str, Any], trace: Trace) -> None:
    assert set(found["kernels"]) >= {work.name for work in trace.work}
    assert set(found["kinds"]) == {"COMPUTATION", "MEMORY"}
    assert found["streams"] == sorted({work.stream for work in trace.work})


def test_times_agree(found: dict[str, Any], trace: Trace) -> None:
    """HTA truncates times to whole microseconds, so a duration may differ by up to 2 us."""
    for name, total in found["kernels"].items():
        of_name = [work.end - work.begin for work in trace.work if work.name == name]
        assert sum(of_name) - 2 * len(of_name) <= total <= sum(of_name) + 0.01, name


def test_work_is_linked_to_its_launch(found: dict[str, Any], trace: Trace) -> None:
    assert found["launches"] == len(trace.work)
    assert found["queue"]
    assert found["critical_path"] is True


def test_copies_and_annotations(found: dict[str, Any]) -> None:
    assert found["bandwidths"] == ["Memcpy HtoD"]
    assert "Optimizer.step#SGD.step" in found["annotations"]
