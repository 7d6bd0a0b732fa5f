# SPDX-License-Identifier: BSD-3-Clause
"""Rules for graphs: capture and replay."""

import contextlib
import functools
from typing import Any

import hypothesis.strategies as st
import torch

from tests.feature_program.captured_operations import OPERATIONS, captured_operations
from tests.feature_program.model import (
    DEVICES,
    MOST,
    Graph,
    GraphPool,
    Memory,
    Value,
    attempt,
    oracle,
)
from tests.feature_program.operators import DRAWS, QUEUED
from tests.feature_program.program import Missing, Program
from tests.feature_program.rules import devices, flags, rule, some, streams


class GivenUp(Exception):
    """Raised inside a capture block, to test that an exception ends the capture."""


@functools.cache
def warm_up(device: int) -> None:
    """Calls each operation that may be captured once, before the first capture.

    The first call of some operations waits for the device, which a capture does not permit.
    """

    def call() -> None:
        generator = torch.Generator(f"openreg:{device}")
        for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8, torch.bfloat16):
            x = torch.ones(8, dtype=dtype, device=f"openreg:{device}")
            for function in QUEUED.values():
                function(x)
            torch.add(x.add_(1).remainder_(97), 1, out=x.double())
        for draw in DRAWS.values():
            draw(x.float(), generator)
        x[:1].float().index_select(0, torch.zeros(1, dtype=torch.int64, device=x.device))
        torch.openreg.current_stream(device).synchronize()

    oracle().submit(call).result()


@rule(
    device=devices,
    stream=streams,
    way=st.sampled_from(["context", "raw"]),
    mode=st.sampled_from(["global", "thread_local", "relaxed"]),
    share=flags,
    body=st.lists(captured_operations, min_size=1, max_size=6),
    end=st.sampled_from(["end", "end", "raise", "reset", "drop"]),
)
def capture(
    program: Program,
    device: int,
    stream: int,
    way: str,
    mode: str,
    share: bool,
    body: list[tuple[str, int, int]],
    end: str,
) -> None:
    """Captures a few operations. The model changes only when the graph is replayed.

    The argument ``end`` specifies how the capture ends. With ``raise``, an exception ends the
    block, and the graph contains the operations captured before it. ``reset`` and ``drop`` discard
    the capture.
    """
    warm_up(device)
    for place in [p for p in program.streams if p[0] == device]:
        program.settle(place)
    program.capture_place = (device, stream)
    captured_stream = program.streams[program.capture_place]
    pools = [graph.pool for graph in program.graphs if graph.device == device]
    pool = pools[0] if share and pools else GraphPool()
    graph = Graph(torch.openreg.OpenRegGraph(), device, pool)
    own = program.generators[DEVICES + device].real
    graph.real.register_generator_state(own)
    handle = pool.graphs[0].real.pool() if pool.graphs else None
    results: list[Value] = []
    with torch.openreg.device(device):
        program.bad = torch.full((1,), 99, device=f"openreg:{device}")
        program.table = torch.zeros(3, device=f"openreg:{device}")
        where = program.place(device)
        program.made_before = Memory(where, {where: program.streams[where].record_event()})
        if way == "context" and end in ("end", "raise"):
            context: Any = torch.openreg.graph(graph.real, handle, captured_stream, mode)
        else:
            context = torch.openreg.stream(captured_stream)
        error = attempt(capture_in, program, context, graph, results, way, mode, handle, body, end)
    assert not torch.openreg.is_current_stream_capturing()
    if end in ("reset", "drop"):
        assert error is None, error
        graph.real = None
        return
    if error is not None or graph.spoilt:
        assert isinstance(error, RuntimeError), error
        assert graph.spoilt or graph.doubtful, error
        assert isinstance(attempt(graph.real.replay), RuntimeError)
        return
    for memory, _ in graph.uses:
        memory.fixed += 1
    pool.graphs.append(graph)
    program.graphs.append(graph)
    for value in results:
        chosen = program.pinned if value.memory.place is None else program.values
        chosen.append(value)
    del program.values[:-MOST], program.pinned[:-MOST]
    if len(program.graphs) > 3:
        drop_graph(program, 0, "drop")


def capture_in(
    program: Program,
    context: Any,
    graph: Graph,
    results: list[Value],
    way: str,
    mode: str,
    handle: Any,
    body: list[tuple[str, int, int]],
    end: str,
) -> None:
    is_graph = isinstance(context, torch.openreg.graph)
    with contextlib.suppress(GivenUp), context:
        if not is_graph:
            graph.real.capture_begin(handle, mode)
        for name, i, n in body:
            if graph.spoilt:
                break
            try:
                OPERATIONS[name](program, graph, results, i, n)
            except Missing:
                continue
            except AssertionError:
                graph.real.reset()  # the failure must not reach the next program
                raise
        if is_graph and end == "raise":
            raise GivenUp
        if end == "reset":
            graph.real.reset()
        elif end == "drop":
            graph.real = None
        elif not is_graph:
            graph.real.capture_end()


@rule(g=some, times=st.integers(1, 3), then=st.sampled_from(["keep", "keep", "reset", "drop"]))
def replay(program: Program, g: int, times: int, then: str) -> None:
    if not program.graphs:
        raise Missing
    graph = program.graphs[g % len(program.graphs)]
    place = program.place(graph.device)
    program.order(place, Memory(None, graph.pool.users), *(memory for memory, _ in graph.uses))
    for _ in range(times):
        graph.real.replay()
    with torch.inference_mode():
        for action in graph.actions * times:
            action()
    if graph.fails:
        program.failed.add(place)
    event = program.streams[place].record_event()
    for memory, tensor in graph.uses:
        memory.users.clear()
        memory.users[place] = event
        if tensor is not None and memory.place not in (None, place):
            if memory.recorded:
                tensor.record_stream(program.streams[place])
            else:
                assert memory.place is not None
                program.streams[memory.place].wait_event(event)
    for memory in graph.outputs + graph.own:
        memory.defined = True
    graph.pool.users[place] = event
    later = graph.pool.graphs[graph.pool.graphs.index(graph) + 1 :]
    for other in later:
        for memory in other.outputs:
            memory.defined = False
    if then != "keep":
        drop_graph(program, g, then)


@rule(g=some, way=st.sampled_from(["reset", "drop"]))
def drop_graph(program: Program, g: int, way: str) -> None:
    """Drops a graph. Replays of it may still be queued, and its results must stay valid."""
    if not program.graphs:
        raise Missing
    graph = program.graphs.pop(g % len(program.graphs))
    graph.pool.graphs.remove(graph)
    if way == "reset":
        graph.real.reset()
    graph.real = None
    for memory, _ in graph.uses:
        memory.fixed -= 1
