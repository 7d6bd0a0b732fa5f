# SPDX-License-Identifier: BSD-3-Clause
"""The operations that random programs run while they capture a graph.

A capture does not change the model. Instead, each operation adds its effect on the model to the
graph. A replay then applies these effects.
"""

import hypothesis.strategies as st
import torch
from torch import Tensor

from tests.feature_program.model import DEVICES, STREAMS, Graph, Memory, Value, attempt, expect
from tests.feature_program.operators import DRAWS, QUEUED, Operator, wrap
from tests.feature_program.program import Missing, Program
from tests.feature_program.rules import some
from tests.feature_program.tensors import forget


def captured_value(program: Program, graph: Graph, results: list[Value], number: int) -> Value:
    """Chooses a value that captured work may use. Records that replays will use its memory."""
    chosen = [
        value
        for value in program.values
        if value.memory.defined
        and value.ours.device.index == graph.device
        and (torch.is_inference_mode_enabled() or not value.theirs.is_inference())
    ]
    chosen += [value for value in results if value.memory.place is not None]
    if not chosen:
        raise Missing
    value = chosen[number % len(chosen)]
    # Use an alias, which keeps this storage even if the tensor gets another one later.
    ours, theirs = value.ours.detach(), value.theirs.detach()
    graph.uses.append((value.memory, ours))
    return Value(theirs, ours, value.memory)


def captured_result(
    program: Program, graph: Graph, results: list[Value], theirs: Tensor, ours: Tensor
) -> Value:
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    memory = Memory(program.capture_place, graph.pool.users, defined=False, fixed=1)
    graph.outputs.append(memory)
    graph.uses.append((memory, None))
    results.append(Value(theirs, ours, memory))
    return results[-1]


def captured_function(program: Program, graph: Graph, results: list[Value], i: int, n: int) -> None:
    x = captured_value(program, graph, results, i)
    function = QUEUED[sorted(QUEUED)[n % len(QUEUED)]]
    theirs = function(x.theirs)
    captured_result(program, graph, results, theirs, function(x.ours))
    graph.actions.append(lambda: theirs.copy_(function(x.theirs)))


def captured_temporary(
    program: Program, graph: Graph, results: list[Value], i: int, n: int
) -> None:
    """Uses temporary memory that later operations of the graph reuse."""
    x = captured_value(program, graph, results, i)

    def function(x: Tensor) -> Tensor:
        y = wrap(x + n)
        y = wrap(y * y)
        return wrap(y + x)

    theirs = function(x.theirs)
    captured_result(program, graph, results, theirs, function(x.ours))
    graph.actions.append(lambda: theirs.copy_(function(x.theirs)))


def captured_change(program: Program, graph: Graph, results: list[Value], i: int, n: int) -> None:
    x = captured_value(program, graph, results, i)
    x.ours.add_(n).remainder_(97)
    graph.actions.append(lambda: x.theirs.add_(n).remainder_(97))


def captured_out(program: Program, graph: Graph, results: list[Value], i: int, n: int) -> None:
    """Writes to an out= tensor of a different dtype."""
    x = captured_value(program, graph, results, i)
    theirs = torch.empty(x.theirs.shape, dtype=torch.float64)
    ours = torch.empty(x.theirs.shape, dtype=torch.float64, device=x.ours.device)
    torch.add(x.ours, n, out=ours)
    captured_result(program, graph, results, theirs, ours)
    graph.actions.append(lambda: theirs.copy_(x.theirs + n))


def captured_draw(program: Program, graph: Graph, results: list[Value], i: int, n: int) -> None:
    """Captures a random operator. Each replay must draw the numbers of an eager call."""
    generator = program.generators[graph.device + DEVICES * (i % 2)]
    operator = sorted(DRAWS)[n % len(DRAWS)]
    ours = torch.empty(8, device=f"openreg:{graph.device}")
    DRAWS[operator](ours, generator.real)
    theirs = torch.empty(8)
    numbers, device = generator.numbers, graph.device
    captured_result(program, graph, results, theirs, ours)
    graph.actions.append(lambda: theirs.copy_(expect(numbers, operator, 8, device)))


def captured_upload(program: Program, graph: Graph, results: list[Value], i: int, n: int) -> None:
    """Copies from pinned memory. Replays read its current contents, even after it is freed."""
    source = program.pick_pinned(i)
    memory, source_theirs = source.memory, source.theirs
    theirs = torch.empty_like(source_theirs)
    ours = torch.empty_like(source.ours, device=f"openreg:{graph.device}", pin_memory=False)
    ours.copy_(source.ours, non_blocking=True)
    graph.uses.append((memory, None))
    captured_result(program, graph, results, theirs, ours)
    graph.actions.append(lambda: theirs.copy_(source_theirs))


def captured_download(program: Program, graph: Graph, results: list[Value], i: int, n: int) -> None:
    """Copies to pinned memory that the capture allocates."""
    x = captured_value(program, graph, results, i)
    theirs = torch.empty(x.theirs.shape, dtype=x.theirs.dtype)
    ours = torch.empty(x.theirs.shape, dtype=x.theirs.dtype, pin_memory=True)
    ours.copy_(x.ours, non_blocking=True)
    memory = Memory(None, defined=False)
    graph.uses.append((memory, None))
    graph.own.append(memory)
    results.append(Value(theirs, ours, memory))
    graph.actions.append(lambda: theirs.copy_(x.theirs))


def captured_fork(program: Program, graph: Graph, results: list[Value], i: int, n: int) -> None:
    """Runs a branch of the graph on another stream."""
    x = captured_value(program, graph, results, i)
    device, number = program.capture_place
    main, side = program.streams[device, number], program.streams[device, (number + 1) % STREAMS]
    side.wait_stream(main)
    with torch.openreg.stream(side):
        ours = wrap(x.ours + n)
        ours = wrap(ours * ours)
    main.wait_stream(side)
    theirs = torch.empty_like(x.theirs)
    captured_result(program, graph, results, theirs, ours)
    graph.actions.append(lambda: theirs.copy_(wrap(wrap(x.theirs + n).square())))


def captured_thread(program: Program, graph: Graph, results: list[Value], i: int, n: int) -> None:
    """Launches a kernel on the captured stream from another thread."""
    x = captured_value(program, graph, results, i)
    inference = torch.is_inference_mode_enabled()

    def launch() -> Tensor:
        stream = program.streams[program.capture_place]
        with torch.openreg.stream(stream), torch.inference_mode(inference):
            return wrap(x.ours + n)

    theirs = torch.empty_like(x.theirs)
    ours = program.on_worker(1 - program.worker, launch)
    captured_result(program, graph, results, theirs, ours)
    graph.actions.append(lambda: theirs.copy_(wrap(x.theirs + n)))


def captured_beside(program: Program, graph: Graph, results: list[Value], i: int, n: int) -> None:
    """Launches kernels from another thread on another stream, which is not captured."""
    device, number = program.capture_place
    place = device, (number + 2) % STREAMS

    def work() -> tuple[Tensor, Tensor]:
        with torch.openreg.stream(program.streams[place]):
            ours = torch.full((4,), float(n), device=f"openreg:{device}").add_(1)
        return torch.full((4,), n + 1.0), ours

    theirs, ours = program.on_worker(1 - program.worker, work)
    memory = Memory(place, {place: program.streams[place].record_event()})
    program.values.append(Value(theirs, ours, memory))


def captured_failure(program: Program, graph: Graph, results: list[Value], i: int, n: int) -> None:
    """Captures a kernel that fails in each replay. The other kernels must still run."""
    graph.uses += [(program.made_before, program.bad), (program.made_before, program.table)]
    program.table.index_select(0, program.bad)
    graph.fails = True


def captured_forgetting(
    program: Program, graph: Graph, results: list[Value], i: int, n: int
) -> None:
    """Frees memory during the capture that was allocated before the capture."""
    forget(program, i)


def captured_give_back(
    program: Program, graph: Graph, results: list[Value], i: int, n: int
) -> None:
    """Calls empty_cache(), which may fail and end the capture. Memory in use must stay valid."""
    before = torch.openreg.memory_reserved(graph.device)
    give_back = torch.openreg.empty_host_cache if n % 2 else torch.openreg.empty_cache
    error = attempt(give_back)
    assert torch.openreg.memory_reserved(graph.device) <= before
    if error is not None:
        assert "until the capture has ended" in str(error), error
        graph.doubtful = True


def captured_exhaustion(
    program: Program, graph: Graph, results: list[Value], i: int, n: int
) -> None:
    error = attempt(torch.empty, 1 << 50)
    assert isinstance(error, RuntimeError)
    error = attempt(lambda: torch.empty(1 << 50, device=f"openreg:{graph.device}"))
    assert isinstance(error, torch.OutOfMemoryError), error
    graph.doubtful = True


def captured_wait(program: Program, graph: Graph, results: list[Value], i: int, n: int) -> None:
    """Waits for captured work. The wait must fail, and the capture becomes invalid."""
    x = captured_value(program, graph, results, i)
    assert isinstance(attempt(lambda: x.ours.sum().item()), RuntimeError)
    graph.spoilt = True


OPERATIONS: dict[str, Operator] = {
    name: function
    for name, function in globals().items()
    if name.startswith("captured_") and function not in (captured_value, captured_result)
}

#: A step of a capture: an operation and two numbers.
captured_operations = st.tuples(st.sampled_from(list(OPERATIONS)), some, some)
