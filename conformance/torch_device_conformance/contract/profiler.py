# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for torch.profiler."""

import json
import os
import tempfile

import torch
from torch.profiler import ProfilerActivity, profile
from torch_device_conformance.contract.row import Backend, missing, require, row

PLUGIN = "REGISTER_PRIVATEUSE1_PROFILER with a libkineto::IActivityProfiler"


def activities(backend: Backend) -> list[ProfilerActivity]:
    """Returns the profiler activities for the CPU and the device."""
    names = (
        "PrivateUse1" if backend.type == torch._C._get_privateuse1_backend_name() else "",
        backend.type.upper(),
    )
    own = next((getattr(ProfilerActivity, n) for n in names if hasattr(ProfilerActivity, n)), None)
    if own is None or own not in torch.profiler.supported_activities():
        missing("torch.profiler.supported_activities() does not contain the device's activity")
    return [ProfilerActivity.CPU, own]


@row(
    "profiler",
    "device_rows",
    requires="a profile lists the kernels that ran on the device, with their times",
    implement=PLUGIN,
    without="a profile shows only the host",
    shown_by="profiler/kineto_plugin.cc",
    required=False,
)
def device_rows(backend: Backend) -> None:
    x = torch.ones(256, 256, device=backend.device)
    with profile(activities=activities(backend)) as seen:
        for _ in range(3):
            x = (x @ x).clamp(max=1)
        backend.synchronize()
    rows = [event for event in seen.events() or () if event.device_type.name != "CPU"]
    if not rows:
        # torch lists an activity for every renamed backend, even if it has no profiler plugin.
        missing("the profile has no rows for the device")
    require(
        len(rows) >= 3,
        f"the profile has {len(rows)} rows for the device, expected one for each of 6 kernels",
    )
    total = sum(event.device_time for event in rows)
    require(total > 0, "the total time in the device's rows is 0")


@row(
    "profiler",
    "trace",
    requires="the Chrome trace shows the device's kernels, linked to the calls that launched them",
    implement=PLUGIN + " that sets correlation ids, resources and device info",
    without="a trace does not show which call launched a kernel",
    shown_by="profiler/kineto_plugin.cc",
    required=False,
)
def trace(backend: Backend) -> None:
    x = torch.ones(64, 64, device=backend.device)
    with profile(activities=activities(backend)) as seen:
        x = x @ x
        backend.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        seen.export_chrome_trace(path)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
    kernels = [
        e for e in events if str(e.get("cat", "")) in ("kernel", "privateuse1_driver", "gpu_memcpy")
    ]
    if not kernels:
        missing("the trace has no event in the category kernel")
    require(
        any(
            "correlation" in e.get("args", {}) or "External id" in e.get("args", {})
            for e in kernels
        ),
        "no kernel has a correlation id",
    )


@row(
    "profiler",
    "operators",
    requires="a profile of host activities alone works while the device is used",
    implement="nothing: torch records host activities itself",
    without="programs that use the device cannot be profiled",
    shown_by="profiler/collector.cc",
)
def operators(backend: Backend) -> None:
    x = torch.ones(8, 8, device=backend.device)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        x @ x
        backend.synchronize()
    names = {event.name for event in seen.events() or ()}
    require("aten::mm" in names, f"the profile has no aten::mm, but only {sorted(names)}")
