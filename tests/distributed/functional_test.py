# SPDX-License-Identifier: BSD-3-Clause
"""Tests functional collectives (eager, compiled, gradients), and collectives in device graphs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn.functional as with_gradients
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from tests.distributed.ranks import Group, run
from tests.distributed.training import DEVICE


def world() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


def rows(rank: int, count: int = 4) -> Tensor:
    """Returns a rank's input, in which each row has different values."""
    return torch.arange(count * 3, dtype=torch.float64).view(count, 3) * 2 + 100 * rank


def all_rows(count: int = 4) -> list[Tensor]:
    return [rows(rank, count) for rank in range(dist.get_world_size())]


# --------------------------------------------------------------------------- results of collectives

Collective = Callable[[Tensor], Any]


def collectives() -> dict[str, tuple[Collective, Collective]]:
    """Maps each name to a collective and the expected result on this rank."""
    group = world()
    rank, size = dist.get_rank(), dist.get_world_size()
    every = [tensor.to(DEVICE) for tensor in all_rows()]
    total = torch.stack(every).sum(0)
    ring = [(rank, (rank + 1) % size) for rank in range(size)]
    return {
        "all_reduce": (
            lambda x: funcol.all_reduce(x, "sum", group),
            lambda x: total,
        ),
        "all_reduce of averages": (
            lambda x: funcol.all_reduce(x, "avg", group),
            lambda x: total / size,
        ),
        "all_gather_tensor": (
            lambda x: funcol.all_gather_tensor(x, 0, group),
            lambda x: torch.cat(every),
        ),
        "all_gather_tensor of columns": (
            lambda x: funcol.all_gather_tensor(x, 1, group),
            lambda x: torch.cat(every, 1),
        ),
        "reduce_scatter_tensor": (
            lambda x: funcol.reduce_scatter_tensor(x, "sum", 0, group),
            lambda x: total.chunk(size)[rank],
        ),
        "all_to_all_single": (
            lambda x: funcol.all_to_all_single(x, None, None, group),
            lambda x: torch.cat([each.chunk(size)[rank] for each in every]),
        ),
        "broadcast": (
            lambda x: funcol.broadcast(x, size - 1, group),
            lambda x: every[size - 1],
        ),
        "permute_tensor": (
            # Flatten the input: torch passes the number of elements as the number of rows.
            lambda x: funcol.permute_tensor(x.flatten(), [target for _, target in ring], group),
            lambda x: every[(rank - 1) % size].flatten(),
        ),
        "coalesced": (
            lambda x: (
                *funcol.all_reduce_coalesced([x, x * 2], "sum", group),
                *funcol.all_gather_into_tensor_coalesced([x, x + 1], group),
                *funcol.reduce_scatter_tensor_coalesced([x, x * 3], "sum", [0, 0], group),
            ),
            lambda x: (
                total,
                total * 2,
                torch.cat(every),
                torch.cat(every) + 1,
                total.chunk(size)[rank],
                total.chunk(size)[rank] * 3,
            ),
        ),
    }


#: The collectives that are compiled with Inductor, which takes seconds for each.
GENERATED = ("all_reduce", "all_to_all_single", "coalesced")


def applies_collectives(backend: str | None) -> list[str]:
    x = rows(dist.get_rank()).to(DEVICE)
    wrong = []
    for name, (collective, expected) in collectives().items():
        if backend == "inductor" and name not in GENERATED:
            continue
        frames = 0
        if backend is not None:
            torch._dynamo.reset()
            counter = CompileCounterWithBackend(backend)

            def around(x: Tensor, collective: Collective = collective) -> Any:
                results = collective(x + 1 - 1)
                several = results if isinstance(results, tuple) else (results,)
                return tuple(result * 2 for result in several)

            results = torch.compile(around, backend=counter, fullgraph=True)(x)
            frames = counter.frame_count
        else:
            made = collective(x)
            results = tuple(
                funcol.wait_tensor(result) * 2
                for result in (made if isinstance(made, tuple) else (made,))
            )
        wanted = expected(x)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        assert frames == (backend is not None)
        try:
            for ours, theirs in zip(results, wanted, strict=True):
                torch.testing.assert_close(ours, theirs * 2)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    torch.testing.assert_close(x, rows(dist.get_rank()).to(DEVICE))  # the input has not changed
    return wrong


@pytest.mark.parametrize(
    ("size", "backend"), [(2, None), (4, None), (2, "aot_eager"), (2, "inductor")]
)
def test_functional_collectives(size: int, backend: str | None, tmp_path: Path) -> None:
    group = Group(environment={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    for wrong in run(size, applies_collectives, backend, group=group):
        assert not wrong, "\n".join(wrong)


def exchanges_uneven_parts(compiled: bool) -> list[float]:
    rank = dist.get_rank()
    inputs = torch.arange(3.0, device=DEVICE) + 10 * rank
    sends, receives = ([1, 2], [1, 2]) if rank == 0 else ([2, 1], [2, 1])

    def function(x: Tensor) -> Any:
        return funcol.all_to_all_single(x, receives, sends, world()) + 0.5

    if compiled:
        function = torch.compile(function, backend="aot_eager", fullgraph=True)
    return function(inputs).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("compiled", [False, True])
def test_parts_of_several_sizes(compiled: bool) -> None:
    assert run(2, exchanges_uneven_parts, compiled) == [[0.5, 10.5, 11.5], [1.5, 2.5, 12.5]]


def waits_once() -> tuple[bool, bool]:
    x = rows(dist.get_rank()).to(DEVICE)
    result = funcol.all_gather_tensor(x, 0, world())
    lazy = isinstance(result, funcol.AsyncCollectiveTensor)
    doubled = result * 2  # the multiplication waits for the collective
    torch.testing.assert_close(doubled, 2 * torch.cat(all_rows()).to(DEVICE))
    return lazy, isinstance(doubled, funcol.AsyncCollectiveTensor)


def test_a_result_waits_when_it_is_used() -> None:
    assert run(2, waits_once) == [(True, False)] * 2


# ------------------------------------------------------------------------- gradients of collectives


def differentiable() -> dict[str, tuple[Collective, Collective]]:
    """Maps each name to a collective and an equivalent function of all ranks' rows."""
    group = world()
    rank, size = dist.get_rank(), dist.get_world_size()
    return {
        "all_gather": (
            lambda x: funcol.all_gather_tensor_autograd(x, 0, group),
            lambda every: every.flatten(0, 1),
        ),
        "reduce_scatter": (
            lambda x: funcol.reduce_scatter_tensor_autograd(x, "sum", 0, group),
            lambda every: every.sum(0).chunk(size)[rank],
        ),
        "all_to_all_single": (
            lambda x: funcol.all_to_all_single_autograd(x, None, None, group),
            lambda every: torch.cat([each.chunk(size)[rank] for each in every]),
        ),
        "nn.all_reduce": (
            lambda x: with_gradients.all_reduce(x),
            lambda every: every.sum(0),
        ),
        "nn.all_gather": (
            lambda x: torch.cat(with_gradients.all_gather(x)),
            lambda every: every.flatten(0, 1),
        ),
        "nn.broadcast": (
            lambda x: with_gradients.broadcast(x, 1),
            lambda every: every[1],
        ),
    }


def differentiates(compiled: bool) -> list[str]:
    rank, size = dist.get_rank(), dist.get_world_size()
    wrong = []
    for name, (collective, expected) in differentiable().items():
        if compiled and name.startswith("nn."):
            continue
        x = rows(rank).to(DEVICE).requires_grad_()

        def loss(x: Tensor, collective: Collective = collective) -> Tensor:
            result: Tensor = collective(x)
            return (result.square() * (rank + 1)).sum()

        if compiled:
            torch._dynamo.reset()
            loss = torch.compile(loss, backend="aot_eager", fullgraph=True)
        loss(x).backward()
        # For the reference, each rank computes the gradients of its own loss with respect to all
        # ranks' rows. The gradients are then summed over the ranks.
        everything = torch.stack(all_rows()).to(DEVICE).requires_grad_()
        expected(everything).square().sum().mul(rank + 1).backward()
        assert everything.grad is not None
        dist.all_reduce(everything.grad)
        try:
            torch.testing.assert_close(x.grad, everything.grad[rank])
        except AssertionError as error:
            wrong.append(f"{name} of {size}: {error}")
    return wrong


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients(compiled: bool) -> None:
    for wrong in run(2, differentiates, compiled):
        assert not wrong, "\n".join(wrong)


def compiles_the_plain_api() -> list[float]:
    @torch.compile(backend="aot_eager", fullgraph=True)
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x * 2
        dist.all_reduce(x)
        every = torch.empty(2 * x.numel(), device=x.device)
        dist.all_gather_into_tensor(every, x)
        part = torch.empty(x.numel() // 2, device=x.device)
        dist.reduce_scatter_tensor(part, x)
        return every, part

    every, part = function(torch.ones(4, device=DEVICE) + dist.get_rank())
    return [*every.tolist(), *part.tolist()]


def test_collectives_in_place_are_compiled() -> None:
    assert run(2, compiles_the_plain_api) == [[6.0] * 8 + [12.0] * 2] * 2


# --------------------------------------------------------------------- collectives in device graphs


def replays(kind: str) -> list[list[float]]:
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.zeros(4, device=DEVICE)

    def work() -> Tensor:
        if kind == "in place":
            y = x * 2
            dist.all_reduce(y)
            return y + 1
        if kind == "asynchronous":
            y = x * 2
            handle = dist.all_reduce(y, async_op=True)
            z = x + 5
            assert handle is not None
            handle.wait()
            return y + z - 4 - x
        if kind == "functional":
            total: Tensor = funcol.all_reduce(x * 2, "sum", world())
            return total + 1
        if kind == "messages":
            y = torch.empty_like(x)
            to, source = (rank + 1) % size, (rank - 1) % size
            mine = x * 2
            operations = [dist.P2POp(dist.isend, mine, to), dist.P2POp(dist.irecv, y, source)]
            for handle in dist.batch_isend_irecv(operations):
                handle.wait()
            return y + mine + 1
        gathered = torch.empty(size * 4, device=DEVICE)
        dist.all_gather_into_tensor(gathered, x * 2)
        part = torch.empty(4, device=DEVICE)
        dist.reduce_scatter_tensor(part, gathered)
        return gathered.view(size, 4).sum(0) + 1 + (part - 2 * size * x)

    side = torch.openreg.Stream()
    side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        work()
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        result = work()
    seen = []
    for value in (1.0, 2.0, 3.0):
        x.fill_(value + rank)
        graph.replay()
        seen.append(result.tolist())
    # An ordinary collective must still work after replays.
    total = torch.ones(2, device=DEVICE)
    dist.all_reduce(total)
    seen.append(total.tolist())
    return seen


@pytest.mark.parametrize("kind", ["in place", "asynchronous", "functional", "messages", "gathered"])
def test_a_graph_of_collectives_is_replayed(kind: str) -> None:
    wanted = [[2.0 * (2 * value + 1) + 1] * 4 for value in (1.0, 2.0, 3.0)]
    assert run(2, replays, kind) == [[*wanted, [2.0, 2.0]]] * 2
