# SPDX-License-Identifier: BSD-3-Clause
"""Rewrites a trace so that tools made for CUDA read it.

Such tools look for the categories and function names of CUDA (HolisticTraceAnalysis: launches by
the names cudaLaunchKernel, cudaMemcpyAsync and cudaMemsetAsync, in category cuda_runtime, without
a stream). On this device a kernel may be a copy; CUDA has a function of its own for those.
"""

import copy
from typing import Any

from torch_openreg.trace.events import CALL, COPY, KERNEL

#: Calls of the driver and what CUDA calls them.
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
    """Return a copy of a trace with CUDA's names in place of ours.

    Args:
        document: as ``events.Trace.document``.
    """
    result = copy.deepcopy(document)
    copies = {
        event.get("args", {}).get("correlation")
        for event in result["traceEvents"]
        if event.get("cat") == COPY and event.get("ph") == "X"
    }
    for event in result["traceEvents"]:
        if event.get("cat") == KERNEL:
            # Communication is told from computation by NCCL's prefix.
            event["name"] = event["name"].replace("occl::", "ncclDevKernel_")
        if event.get("cat") == CALL:
            event["cat"] = "cuda_runtime"
            arguments = event.setdefault("args", {})
            # HolisticTraceAnalysis takes a row for work of the device if it has a stream.
            for argument in ("device", "stream"):
                arguments.pop(argument, None)
            launches_copy = (
                event["name"] == "orLaunchKernel" and arguments.get("correlation") in copies
            )
            event["name"] = (
                "cudaMemcpyAsync" if launches_copy else NAMES.get(event["name"], event["name"])
            )
    return result
