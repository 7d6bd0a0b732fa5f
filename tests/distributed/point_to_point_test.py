# SPDX-License-Identifier: BSD-3-Clause
"""Tests sends and receives: order, tags, receives from any source, and batches."""

import pytest
import torch
import torch.distributed as dist

from tests.distributed.ranks import run

DEVICE = "openreg"


def ring() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    for size in (0, 3, 100_000):
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
            mine = torch.full((size,), rank, device=DEVICE).to(dtype)
            theirs = torch.empty(size, dtype=dtype, device=DEVICE)
            works = dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, mine, after), dist.P2POp(dist.irecv, theirs, before)]
            )
            for work in works:
                work.wait()
            assert torch.equal(theirs, torch.full((size,), before, device=DEVICE).to(dtype))
            # Without a batch, two ranks that both send first would deadlock. Therefore even ranks
            # send first, and odd ranks receive first.
            if rank % 2 == 0:
                dist.send(mine, after)
                dist.recv(theirs, before)
            else:
                other = torch.empty_like(mine)
                dist.recv(other, before)
                dist.send(mine, after)
                assert torch.equal(other, theirs)


def test_a_ring() -> None:
    run(2, ring)
    run(4, ring)


def unbatched() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    mine = torch.full((300_000,), float(rank), device=DEVICE)
    theirs = torch.empty_like(mine)
    for _ in range(3):
        # All ranks send before they receive, so each message must wait for its receiver.
        works = [dist.isend(mine, after), dist.irecv(theirs, before)]
        total = torch.ones(3, device=DEVICE)
        dist.all_reduce(total)
        for work in works:
            assert work is not None
            work.wait()
        assert theirs.eq(before).all()
        assert total.eq(ranks).all()
        theirs.zero_()


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_ring_of_single_messages(ranks: int) -> None:
    run(ranks, unbatched)


def ordered() -> None:
    """Exchanges messages with one tag: alone or in batches, from any source, on several streams."""
    rank = dist.get_rank()
    tensors = [torch.full((40_000,), number + 1.0, device=DEVICE) for number in range(12)]
    if rank == 1:
        tensors = [torch.zeros_like(tensor) for tensor in tensors]
    works: list[dist.Work | None] = []
    for number, tensor in enumerate(tensors):
        stream = torch.openreg.Stream() if number % 4 == 3 else torch.openreg.current_stream()
        stream.wait_stream(torch.openreg.current_stream())
        with torch.openreg.stream(stream):
            if rank == 0:
                if number % 3 == 1:
                    works += dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, 1)])
                else:
                    works.append(dist.isend(tensor, 1))
            elif number % 5 == 2:
                works.append(dist.irecv(tensor))
            elif number % 2:
                works += dist.batch_isend_irecv([dist.P2POp(dist.irecv, tensor, 0)])
            else:
                works.append(dist.irecv(tensor, 0))
    for work in works:
        assert work is not None
        work.wait()
    for number, tensor in enumerate(tensors):
        assert tensor.eq(number + 1).all(), (number, tensor[0].item())


def test_messages_keep_the_order_of_their_calls() -> None:
    run(2, ordered)


def tags() -> None:
    if dist.get_rank() == 0:
        works = [
            dist.isend(torch.full((4,), float(tag), device=DEVICE), 1, tag=tag)
            for tag in (5, 6, 5, 7)
        ]
    else:
        received = {tag: torch.empty(4, device=DEVICE) for tag in (7, 6, 5)}
        second = torch.empty(4, device=DEVICE)
        works = [
            dist.irecv(received[5], 0, tag=5),
            dist.irecv(received[6], 0, tag=6),
            dist.irecv(second, 0, tag=5),
            dist.irecv(received[7], 0, tag=7),
        ]
    for work in works:
        assert work is not None
        work.wait()
    if dist.get_rank() == 1:
        assert second.eq(5).all()
        for tag, tensor in received.items():
            assert tensor.eq(tag).all(), tag


def test_tags_and_their_order() -> None:
    run(2, tags)


def any_source() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if rank != 0:
        dist.send(torch.full((10_000,), float(rank), device=DEVICE), 0)
        return
    seen = set()
    for _ in range(ranks - 1):
        tensor = torch.empty(10_000, device=DEVICE)
        sender = dist.recv(tensor)
        assert tensor.eq(sender).all()
        seen.add(sender)
    assert seen == set(range(1, ranks))


def test_any_source() -> None:
    run(4, any_source)


def exchanges() -> None:
    # Every pair of ranks exchanges more messages at once than there are mailboxes.
    rank, ranks = dist.get_rank(), dist.get_world_size()
    operations = []
    received = []
    for number in range(12):
        for peer in range(ranks):
            if peer == rank:
                continue
            value = 100.0 * rank + 10.0 * peer + number
            tensor = torch.full((number * 500,), value, device=DEVICE)
            operations.append(dist.P2POp(dist.isend, tensor, peer))
            target = torch.empty(number * 500, device=DEVICE)
            operations.append(dist.P2POp(dist.irecv, target, peer))
            received.append((target, 100.0 * peer + 10.0 * rank + number))
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for target, value in received:
        assert target.eq(value).all()
    objects = [None, None]
    if rank == 0:
        dist.send_object_list(["text", {"a": torch.ones(2)}], 1)
    elif rank == 1:
        dist.recv_object_list(objects, 0)
        assert objects[0] == "text"
    every = [{"rank": rank}, rank]
    dist.broadcast_object_list(every, 1)
    assert every == [{"rank": 1}, 1]
    output: list[object] = [None]
    dist.scatter_object_list(output, list(range(ranks)) if rank == 0 else None)
    assert output == [rank]


def test_exchanges_and_objects() -> None:
    run(4, exchanges)
