# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for captured graphs."""

import torch
from torch_device_conformance.contract.row import Backend, require, require_equal, row

FILE = "runtime/c10/graph.cc"
GRAPH = "at::GraphImplInterface, registered by REGISTER_GRAPH_IMPL; the guard's isStreamCapturing"


def capture(backend: Backend, x: torch.Tensor) -> tuple[torch.accelerator.Graph, torch.Tensor]:
    """Captures 2 * x + 1. Returns the graph and the tensor that its replays write to."""
    graph = torch.accelerator.Graph()
    side = backend.stream()
    side.wait_stream(backend.current_stream())
    with side:
        warm = x * 2 + 1
        del warm
        graph.capture_begin()
        y = x * 2 + 1
        graph.capture_end()
    backend.current_stream().wait_stream(side)
    return graph, y


@row(
    "graphs",
    "replay",
    requires="torch.accelerator.Graph captures kernels and replays them with new values",
    implement=GRAPH,
    without="launch overhead cannot be avoided",
    shown_by=FILE,
    required=False,
)
def replay(backend: Backend) -> None:
    x = torch.ones(8, device=backend.device)
    graph, y = capture(backend, x)
    for value in (3.0, 5.0):
        x.fill_(value)
        graph.replay()
        require_equal(f"result for {value}", y, torch.full((8,), 2 * value + 1))


@row(
    "graphs",
    "memory",
    requires="a graph's memory is not reused while the graph exists",
    implement="pools: capture_begin(pool), releasePool",
    without="replays overwrite other tensors",
    shown_by=FILE,
    required=False,
)
def memory(backend: Backend) -> None:
    x = torch.ones(1 << 16, device=backend.device)
    graph, y = capture(backend, x)
    others = [torch.full((1 << 16,), 7.0, device=backend.device) for _ in range(8)]
    graph.replay()
    backend.synchronize()
    require(all(bool((o == 7).all()) for o in others), "a replay wrote to another tensor's memory")
    require(bool((y == 3).all()), "the result of the replay is wrong")


@row(
    "graphs",
    "unsupported_raises",
    requires="calls that cannot be captured, such as item(), raise an error during a capture",
    implement="a check in the calls that synchronize",
    without="replays use old values",
    shown_by=FILE,
    required=False,
)
def unsupported_raises(backend: Backend) -> None:
    x = torch.ones(8, device=backend.device)
    backend.synchronize()
    graph = torch.accelerator.Graph()
    raised = False
    with backend.stream():
        graph.capture_begin()
        try:
            x.sum().item()
        except Exception:
            raised = True
        try:
            graph.capture_end()
        except Exception:
            raised = True
    require(raised, "neither item() nor capture_end() raised an error")
    require_equal("a sum after the capture", torch.ones(3, device=backend.device).sum().item(), 3.0)
