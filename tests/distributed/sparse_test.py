# SPDX-License-Identifier: BSD-3-Clause
"""Tests all-reduce of sparse COO tensors, and DDP with sparse gradients."""

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.distributed.ranks import Group, run

DEVICE = "openreg"
SHAPE = (50, 40, 3)


def sparse(rank: int, dtype: torch.dtype, sparse_dim: int, repeated: bool) -> torch.Tensor:
    """Returns a rank's input on the CPU. The number of its elements depends on the rank."""
    generator = torch.Generator().manual_seed(rank)
    elements = (0, 700, 13, 200)[rank]
    sizes = torch.tensor(SHAPE[:sparse_dim])
    indices = (torch.rand(sparse_dim, elements, generator=generator) * sizes[:, None]).long()
    values = torch.randint(-4, 5, (elements, *SHAPE[sparse_dim:]), generator=generator).to(dtype)
    tensor = torch.sparse_coo_tensor(indices, values, SHAPE)
    return tensor if repeated else tensor.coalesce()


def all_reduces() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64):
        for sparse_dim in (1, 2, 3):
            inputs = [sparse(other, dtype, sparse_dim, other % 2 == 1) for other in range(size)]
            expected = torch.stack([one.to_dense() for one in inputs]).sum(0).to(dtype)
            for asynchronous in (False, True):
                tensor = inputs[rank].to(DEVICE)
                work = dist.all_reduce(tensor, async_op=asynchronous)
                if asynchronous:
                    assert work is not None
                    work.wait()
                    (result,) = work.result()
                    assert result.is_sparse
                assert tensor.is_coalesced()
                assert torch.equal(tensor.to_dense().cpu(), expected), (dtype, sparse_dim)
    mean = sparse(rank, torch.float64, 1, repeated=True).to(DEVICE)
    total = mean.clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    dist.all_reduce(total)
    torch.testing.assert_close(mean.to_dense(), total.to_dense() / size)
    # The ranks must still agree on the next collective after those on sparse tensors.
    after = torch.ones(3, device=DEVICE)
    dist.all_reduce(after)
    assert after.eq(size).all()


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("hosts", [1, 2])
def test_sparse_tensors_are_added(size: int, hosts: int) -> None:
    run(size, all_reduces, group=Group(hosts=[rank % hosts for rank in range(size)]))


def other_streams() -> None:
    inputs = [sparse(rank, torch.float32, 2, repeated=False) for rank in range(2)]
    expected = inputs[0].to_dense() + inputs[1].to_dense()
    for _ in range(20):
        side = torch.openreg.Stream()
        with torch.openreg.stream(side):
            torch.openreg._sleep(2_000_000)
            tensor = sparse(dist.get_rank(), torch.float32, 2, repeated=True).to(DEVICE)
            work = dist.all_reduce(tensor, async_op=True)
            assert work is not None
            work.wait()
            dense = tensor.to_dense()
            del tensor, work  # the stream still has to read the memory
            torch.full(SHAPE, 99.0, device=DEVICE)
        side.synchronize()
        assert torch.equal(dense.cpu(), expected)


def test_sparse_tensors_of_a_side_stream() -> None:
    run(2, other_streams)


def nothing() -> None:
    tensor = torch.zeros(SHAPE, device=DEVICE).to_sparse()
    dist.all_reduce(tensor)
    assert tensor._nnz() == 0


def test_tensors_without_elements() -> None:
    run(2, nothing)


def invalid() -> None:
    rank = dist.get_rank()
    tensor = sparse(1, torch.float32, 1, repeated=False).to(DEVICE)
    with pytest.raises(ValueError, match=r"only SUM and AVG, but got MAX.*to_dense"):
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    with pytest.raises(ValueError, match=r"rank \d has shape .* rank \d has shape"):
        dist.all_reduce(torch.zeros(3 + rank, 2, device=DEVICE).to_sparse())
    graph = torch.openreg.OpenRegGraph()
    with (
        pytest.raises(RuntimeError, match=r"cannot be captured by a graph.*to_dense"),
        torch.openreg.graph(graph),
    ):
        dist.all_reduce(tensor)
    torch.openreg.synchronize()
    dist.all_reduce(tensor)


def test_errors_say_what_to_do() -> None:
    run(2, invalid)


class Words(torch.nn.Module):
    """A model whose largest gradient is sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 8, sparse=True, dtype=torch.float64)
        self.linear = torch.nn.Linear(8, 4, dtype=torch.float64)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.linear(self.embedding(words).mean(1))
        return scores


def trained(ranks: int, rank: int) -> dict[str, torch.Tensor]:
    """Trains for three steps on this rank's part of each batch. Returns the model's state."""
    torch.manual_seed(0)
    model: torch.nn.Module = Words().to(DEVICE)
    if ranks > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(3):
        batch = torch.randint(0, 100, (8, 5), generator=torch.Generator().manual_seed(step))
        part = batch.chunk(ranks)[rank].to(DEVICE)
        loss = model(part).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {name.removeprefix("module."): value.cpu() for name, value in model.state_dict().items()}


def data_parallel() -> None:
    expected = trained(1, 0)
    found = trained(dist.get_world_size(), dist.get_rank())
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("size", [2, 4])
def test_sparse_gradients_in_ddp(size: int) -> None:
    run(size, data_parallel)
