# SPDX-License-Identifier: BSD-3-Clause
"""Tests that each collective moves and reduces the right data, in each data type."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from tests.distributed.ranks import run

DEVICE = "openreg"
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FLOATS8 = [torch.float8_e4m3fn, torch.float8_e5m2]
COMPLEX = [torch.complex64, torch.complex128]
#: Numbers of elements. Small tensors are copied through slots. Large tensors are read directly from
#: the memory of the other devices.
SIZES = [1, 7, 20_011]


def data(rank: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns a rank's input. Every rank can compute the inputs of all ranks."""
    generator = torch.Generator().manual_seed(rank * 1000 + size)
    numbers = torch.randint(0, 3, (size,), generator=generator)
    if dtype.is_complex:
        return torch.complex(numbers.double(), numbers.flip(0).double()).to(dtype)
    return numbers.to(dtype)


def check(found: torch.Tensor, expected: torch.Tensor, what: object) -> None:
    found = found.cpu()
    if found.dtype in FLOATS8 or found.dtype in UNSIGNED:
        found, expected = found.double(), expected.double()
    assert torch.equal(found, expected), (what, found[:8], expected[:8])


def reduced(
    size: int, dtype: torch.dtype, function: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Returns the reduction of all ranks' data, computed in a wider type."""
    wide = torch.complex128 if dtype.is_complex else torch.float64
    every = [data(rank, size, dtype).to(wide) for rank in range(dist.get_world_size())]
    return function(torch.stack(every)).to(dtype)


def all_reduces() -> None:
    rank = dist.get_rank()
    operations: dict[dist.ReduceOp.RedOpType, Callable[[torch.Tensor], torch.Tensor]] = {
        dist.ReduceOp.SUM: lambda every: every.sum(0),
        dist.ReduceOp.PRODUCT: lambda every: every.prod(0),
        dist.ReduceOp.MIN: lambda every: every.amin(0),
        dist.ReduceOp.MAX: lambda every: every.amax(0),
    }
    for size in SIZES:
        for dtype in INTEGERS + UNSIGNED + FLOATS + FLOATS8 + COMPLEX:
            for op, function in operations.items():
                if dtype.is_complex and op != dist.ReduceOp.SUM:
                    continue  # torch does not support other reductions of complex numbers
                tensor = data(rank, size, dtype).to(DEVICE)
                dist.all_reduce(tensor, op)
                check(tensor, reduced(size, dtype, function), (size, dtype, op))
        for dtype in [*INTEGERS, torch.bool]:
            every = [data(other, size, dtype) for other in range(dist.get_world_size())]
            for op, bits in (
                (dist.ReduceOp.BAND, torch.bitwise_and),
                (dist.ReduceOp.BOR, torch.bitwise_or),
                (dist.ReduceOp.BXOR, torch.bitwise_xor),
            ):
                expected = every[0]
                for other in every[1:]:
                    expected = bits(expected, other)
                tensor = every[rank].to(DEVICE)
                dist.all_reduce(tensor, op)
                check(tensor, expected, (size, dtype, op))
        for dtype in FLOATS:
            tensor = data(rank, size, dtype).to(DEVICE)
            dist.all_reduce(tensor, dist.ReduceOp.AVG)
            check(tensor, reduced(size, dtype, lambda every: every.mean(0)), (size, dtype, "avg"))
            total = reduced(size, dtype, lambda every: every.sum(0)).double()
            for factor in (2.0, torch.tensor(0.5, device=DEVICE)):
                tensor = data(rank, size, dtype).to(DEVICE)
                dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
                check(tensor, (total * float(factor)).to(dtype), (size, dtype, "premul_sum"))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_reduce(ranks: int) -> None:
    run(ranks, all_reduces)


def movements() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for size in SIZES:
        for dtype in [*INTEGERS, *UNSIGNED, *FLOATS, *FLOATS8, *COMPLEX, torch.bool]:
            every = [data(other, size, dtype) for other in range(ranks)]
            mine = every[rank].to(DEVICE)
            for root in range(ranks):
                tensor = mine.clone()
                dist.broadcast(tensor, root)
                check(tensor, every[root], "broadcast")

                outputs = [torch.empty_like(mine) for _ in range(ranks)] if rank == root else None
                dist.gather(mine, outputs, root)
                for output, expected in zip(outputs or [], every, strict=False):
                    check(output, expected, "gather")

                output = torch.empty_like(mine)
                inputs = [part.to(DEVICE) for part in every] if rank == root else None
                dist.scatter(output, inputs, root)
                check(output, every[rank], "scatter")

                if dtype.is_floating_point or dtype in INTEGERS:
                    tensor = mine.clone()
                    dist.reduce(tensor, root)
                    if rank == root:
                        check(tensor, reduced(size, dtype, lambda every: every.sum(0)), "reduce")

            outputs = [torch.empty_like(mine) for _ in range(ranks)]
            dist.all_gather(outputs, mine)
            for output, expected in zip(outputs, every, strict=True):
                check(output, expected, "all_gather")
            whole = torch.empty(ranks * size, dtype=dtype, device=DEVICE)
            dist.all_gather_into_tensor(whole, mine)
            check(whole, torch.cat(every), "all_gather_into_tensor")

            # Rank r sends data with the seed 10 * r + s to rank s.
            parts = [data(10 * rank + other, size, dtype).to(DEVICE) for other in range(ranks)]
            expected_parts = [data(10 * other + rank, size, dtype) for other in range(ranks)]
            outputs = [torch.empty_like(mine) for _ in range(ranks)]
            dist.all_to_all(outputs, parts)
            for output, expected in zip(outputs, expected_parts, strict=True):
                check(output, expected, "all_to_all")
            whole = torch.empty(ranks * size, dtype=dtype, device=DEVICE)
            dist.all_to_all_single(whole, torch.cat(parts))
            check(whole, torch.cat(expected_parts), "all_to_all_single")

            if dtype.is_floating_point:
                output = torch.empty_like(mine)
                dist.reduce_scatter(output, [mine.clone() for _ in range(ranks)])
                total = reduced(size, dtype, lambda every: every.sum(0))
                check(output, total, "reduce_scatter")
                output = torch.empty_like(mine)
                dist.reduce_scatter_tensor(output, torch.cat([mine] * ranks))
                check(output, total, "reduce_scatter_tensor")


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_moving_collectives(ranks: int) -> None:
    run(ranks, movements)


def uneven() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    sizes = [3 * other + 1 for other in range(ranks)]
    outputs = [torch.empty(size, 2, device=DEVICE) for size in sizes]
    dist.all_gather(outputs, torch.full((sizes[rank], 2), float(rank), device=DEVICE))
    for other, output in enumerate(outputs):
        assert output.eq(other).all()

    # Rank r sends r + s rows to rank s, so rank 0 sends nothing to itself.
    send = [rank + other for other in range(ranks)]
    tensor = torch.cat([torch.full((rows, 3), 10.0 * rank + i) for i, rows in enumerate(send)])
    output = torch.empty(sum(send), 3, device=DEVICE)
    dist.all_to_all_single(output, tensor.to(DEVICE), send, send)
    expected = [torch.full((rows, 3), 10.0 * i + rank) for i, rows in enumerate(send)]
    assert torch.equal(output.cpu(), torch.cat(expected))

    inputs = [torch.full((size,), float(rank + 1), device=DEVICE) for size in sizes]
    output = torch.empty(sizes[rank], device=DEVICE)
    dist.reduce_scatter(output, inputs)
    assert output.eq(ranks * (ranks + 1) / 2).all()

    empty = torch.empty(0, device=DEVICE)
    dist.all_reduce(empty)
    dist.broadcast(empty, 0)


def test_parts_of_different_sizes() -> None:
    run(4, uneven)


def views() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    base = torch.zeros(10, 4, device=DEVICE)
    view = base[3:5]
    view.fill_(rank + 1)
    dist.all_reduce(view)
    total = ranks * (ranks + 1) / 2
    assert base.sum().item() == total * 8
    assert base[:3].eq(0).all()
    assert base[5:].eq(0).all()

    # The dimensions of a dense tensor may be stored in a different order. As with NCCL, the ranks'
    # elements are then matched in memory order.
    transposed = (torch.arange(6.0, device=DEVICE).view(2, 3) * (rank + 1)).t()
    dist.all_reduce(transposed)
    assert torch.equal(transposed.cpu(), torch.arange(6.0).view(2, 3).t() * total)

    whole = torch.zeros(ranks, 5, device=DEVICE)
    whole[rank] = rank
    dist.all_gather_into_tensor(whole, whole[rank])  # in place: the input is a part of the output
    assert torch.equal(whole.cpu(), torch.arange(float(ranks)).unsqueeze(1).expand(ranks, 5))

    with torch.inference_mode():
        tensor = torch.ones(3, device=DEVICE)
        dist.all_reduce(tensor)
        assert tensor.eq(ranks).all()
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        tensor = torch.ones(3, device=DEVICE)
        dist.all_reduce(tensor)
        assert tensor.dtype == torch.float32

    # Call a collective on a tensor that is not on the current device.
    other = torch.device(DEVICE, (torch.openreg.current_device() + 1) % 2)
    tensor = torch.ones(100_000, device=other)
    dist.all_reduce(tensor)
    assert tensor.eq(ranks).all()
    assert torch.openreg.current_device() != other.index


def test_views_modes_and_other_devices() -> None:
    run(2, views)


def orders_of_reductions() -> bytes:
    # The sum of these values depends on the order of its terms.
    torch.manual_seed(dist.get_rank())
    results = []
    for size in (100, 100_003):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            tensor = (torch.randn(size) * 10 ** torch.randn(size)).to(dtype).to(DEVICE)
            dist.all_reduce(tensor)
            results.append(tensor.cpu().view(torch.uint8))
    return bytes(torch.cat(results).tolist())


def test_all_ranks_get_the_same_bits() -> None:
    first, *others = run(4, orders_of_reductions)
    assert all(other == first for other in others)


def coalesced() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device(DEVICE, torch.openreg.current_device())
    total = ranks * (ranks + 1) / 2
    tensors = [torch.full((size,), rank + 1.0, device=DEVICE) for size in (3, 50_000, 1)]
    for asynchronous in (False, True):
        current = [tensor.clone() for tensor in tensors]
        with dist._coalescing_manager(device=device, async_ops=asynchronous) as manager:
            for tensor in current:
                dist.all_reduce(tensor)
        if asynchronous:
            manager.wait()
        assert all(tensor.eq(total).all() for tensor in current)

        outputs = [torch.empty(ranks * tensor.numel(), device=DEVICE) for tensor in tensors]
        with dist._coalescing_manager(device=device, async_ops=asynchronous) as manager:
            for output, tensor in zip(outputs, tensors, strict=True):
                dist.all_gather_into_tensor(output, tensor)
        if asynchronous:
            manager.wait()
        for output in outputs:
            assert torch.equal(output.view(ranks, -1)[:, 0].cpu(), torch.arange(1.0, ranks + 1))

        lists = [[torch.empty_like(tensor) for tensor in tensors] for _ in range(ranks)]
        dist.all_gather_coalesced(lists, tensors)
        for other, received in enumerate(lists):
            assert all(part.eq(other + 1).all() for part in received)

        output = torch.empty(1, device=DEVICE)
        with dist._coalescing_manager(device=device, async_ops=asynchronous) as manager:
            dist.reduce_scatter_tensor(output, torch.ones(ranks, device=DEVICE))
        if asynchronous:
            manager.wait()
        assert output.item() == ranks
    # An empty block must not affect later collectives.
    with dist._coalescing_manager(device=device):
        pass
    scaled = [tensor.clone() for tensor in tensors]
    with dist._coalescing_manager(device=device):
        for tensor in scaled:
            dist.all_reduce(tensor, dist._make_nccl_premul_sum(2.0))
    assert all(tensor.eq(2 * total).all() for tensor in scaled)


def test_coalesced_collectives() -> None:
    run(2, coalesced)
