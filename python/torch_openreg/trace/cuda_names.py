# SPDX-License-Identifier: BSD-3-Clause
"""Rewrites a trace for tools that look for CUDA's categories and function names.

For example, HolisticTraceAnalysis treats an event as a launch if its name is cudaLaunchKernel,
cudaMemcpyAsync or cudaMemsetAsync, its category is cuda_runtime, and it has no stream. On this
device a kernel launch may be a copy, for which CUDA has separate functions. Therefore such a launch
is renamed to CUDA's copy function.
"""

import copy
from typing import Any

from torch_openreg.trace.events import CALL, COPY, KERNEL

#: Driver functions and their CUDA counterparts.
NAMES = {
    "orLaunchKernel": "cudaLaunchKernel",
    "orLaunchHostFunc": "cudaLaunchHostFunc",
    "orMemcpy": "cudaMemcpy",
    "orMemcpyAsync": "cudaMemcpyAsync",
    "orMemcpyPeer": "cudaMemcpyPeer",
    "orMemcpyPeerAsync": "cudaMemcpyPeerAsync",
    "orMemset": "cudaMemset",
    "orMemsetAsync": "cudaMemsetAsync",
    "orMalloc": "cudaMalloc",
    "orFree": "cudaFree",
    "orMallocHost": "cudaMallocHost",
    "orFreeHost": "cudaFreeHost",
    "orEventRecord": "cudaEventRecord",
    "orEventSynchronize": "cudaEventSynchronize",
    "orStreamWaitEvent": "cudaStreamWaitEvent",
    "orStreamSynchronize": "cudaStreamSynchronize",
    "orDeviceSynchronize": "cudaDeviceSynchronize",
    "orGraphLaunch": "cudaGraphLaunch",
}


def rewritten(document: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a trace with CUDA's names in place of this device's names.

    Args:
        document: the trace, in the form of ``events.Trace.document``.
    """
    result = copy.deepcopy(document)
    copies = {
        event.get("args", {}).get("correlation")
        for event in result["traceEvents"]
        if event.get("cat") == COPY and event.get("ph") == "X"
    }
    for event in result["traceEvents"]:
        if event.get("cat") == KERNEL:
            # Tools for CUDA traces recognize communication kernels by the prefix of NCCL kernel
            # names.
            event["name"] = event["name"].replace("occl::", "ncclDevKernel_")
        if event.get("cat") == CALL:
            event["cat"] = "cuda_runtime"
            arguments = event.setdefault("args", {})
            # HolisticTraceAnalysis treats an event that has a stream as device work.
            for argument in ("device", "stream"):
                arguments.pop(argument, None)
            launches_copy = (
                event["name"] == "orLaunchKernel" and arguments.get("correlation") in copies
            )
            event["name"] = (
                "cudaMemcpyAsync" if launches_copy else NAMES.get(event["name"], event["name"])
            )
    return result
