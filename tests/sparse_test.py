# SPDX-License-Identifier: BSD-3-Clause
"""Compares sparse tensors of all layouts with the CPU's: creation, copies, operators, gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

DEVICE = torch.device("openreg:0")
LAYOUTS = (
    torch.sparse_coo,
    torch.sparse_csr,
    torch.sparse_csc,
    torch.sparse_bsr,
    torch.sparse_bsc,
)
BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")


def dense(dtype: torch.dtype = torch.float64) -> Tensor:
    """Returns a 4 x 6 matrix in which half of the elements are zero."""
    values = torch.arange(24, dtype=torch.float64).reshape(4, 6)
    return (values * (values.remainder(2) == 0)).to(dtype)


def sparse(layout: torch.layout, dtype: torch.dtype = torch.float64) -> Tensor:
    blocksize = (2, 3) if layout in BLOCKED else None
    result: Tensor = dense(dtype).to_sparse(layout=layout, blocksize=blocksize)
    return result


def assert_same(ours: Any, theirs: Any) -> None:
    """Checks that results of the device and the CPU have equal layouts, parts and values."""
    for actual, expected in zip(tree_leaves(ours), tree_leaves(theirs), strict=True):
        if not isinstance(expected, Tensor):
            assert actual == expected
            continue
        assert actual.device == DEVICE
        assert actual.layout == expected.layout
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        if expected.layout == torch.sparse_coo:
            assert actual.is_coalesced() == expected.is_coalesced()
            assert_close(actual._indices().cpu(), expected._indices())
            assert_close(actual._values().cpu(), expected._values())
        else:
            assert_close(actual.cpu(), expected)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_there_and_back(layout: torch.layout) -> None:
    theirs = sparse(layout)
    ours = theirs.to(DEVICE)
    assert_same(ours, theirs)
    assert_close(ours.cpu(), theirs)
    assert_close(ours.to("openreg:1").cpu(), theirs)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64, torch.bool])
def test_from_dense_and_to_dense(layout: torch.layout, dtype: torch.dtype) -> None:
    blocksize = (2, 3) if layout in BLOCKED else None
    there = dense(dtype).to(DEVICE).to_sparse(layout=layout, blocksize=blocksize)
    assert_same(there, sparse(layout, dtype))
    assert torch.equal(there.to_dense().cpu(), dense(dtype))


def test_constructors() -> None:
    indices = torch.tensor([[0, 1, 1], [2, 0, 0]])
    values = torch.tensor([3.0, 4.0, 5.0])
    theirs = torch.sparse_coo_tensor(indices, values, (2, 3))
    assert_same(torch.sparse_coo_tensor(indices, values, (2, 3), device=DEVICE), theirs)
    ours = torch.sparse_coo_tensor(indices.to(DEVICE), values.to(DEVICE), (2, 3))
    assert_same(ours, theirs)
    assert_same(ours.coalesce(), theirs.coalesce())
    compressed = torch.tensor([0, 1, 3]), torch.tensor([2, 0, 1]), values
    assert_same(
        torch.sparse_csr_tensor(*compressed, size=(2, 3), device=DEVICE),
        torch.sparse_csr_tensor(*compressed, size=(2, 3)),
    )
    for layout in LAYOUTS[:3]:
        empty = torch.zeros(3, 4, layout=layout, device=DEVICE)
        assert empty.layout == layout
        assert empty._nnz() == 0


def test_parts_share_memory() -> None:
    there = sparse(torch.sparse_coo).to(DEVICE)
    there._values().mul_(2)
    assert torch.equal(there.to_dense().cpu(), dense() * 2)


UNARY: dict[str, Callable[[Tensor], Any]] = {
    "neg": torch.neg,
    "sin": torch.sin,
    "relu": torch.relu,
    "abs": torch.abs,
    "isnan": torch.isnan,
    "mul number": lambda x: x * 3,
    "div number": lambda x: x / 4,
    "clone": torch.clone,
    "to float": lambda x: x.to(torch.float32),
    "zero_": lambda x: x.clone().zero_(),
    "mm": lambda x: x @ torch.ones(6, 3, dtype=x.dtype, device=x.device),
    "mv": lambda x: x @ torch.ones(6, dtype=x.dtype, device=x.device),
    "transpose": lambda x: x.transpose(0, 1),
    "add itself": lambda x: x + x,
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_operators(name: str, layout: torch.layout) -> None:
    function = UNARY[name]
    try:
        theirs = function(sparse(layout))
    except (RuntimeError, NotImplementedError) as error:
        with pytest.raises(type(error)):
            function(sparse(layout).to(DEVICE))
        return
    assert_same(function(sparse(layout).to(DEVICE)), theirs)


COO: dict[str, Callable[[Tensor], Any]] = {
    "add": lambda x: x + x,
    "add_": lambda x: x.clone().add_(x),
    "sub dense": lambda x: torch.ones(4, 6, dtype=x.dtype, device=x.device).sub(x),
    "mul": lambda x: x * x,
    "sum": torch.sparse.sum,
    "sum rows": lambda x: torch.sparse.sum(x, dim=1),
    "softmax": lambda x: torch.sparse.softmax(x, dim=1),
    "sparse mm": lambda x: torch.sparse.mm(x, x.transpose(0, 1)),
    "addmm": lambda x: torch.sparse.addmm(
        torch.ones(4, 2, dtype=x.dtype, device=x.device),
        x,
        torch.ones(6, 2, dtype=x.dtype, device=x.device),
    ),
    "smm": lambda x: torch.smm(x, torch.ones(6, 2, dtype=x.dtype, device=x.device)),
    "index_select": lambda x: x.index_select(0, torch.tensor([2, 0], device=x.device)),
    "cat": lambda x: torch.cat([x, x]),
    "narrow_copy": lambda x: x.narrow_copy(0, 1, 2),
    "mask": lambda x: torch.ones(4, 6, dtype=x.dtype, device=x.device).sparse_mask(x.coalesce()),
    "norm": torch.norm,
    "any": torch.any,
    "stack": lambda x: torch.stack([x, x]),
    "select": lambda x: x[1],
    "sparse_resize_": lambda x: x.clone().sparse_resize_((5, 7), 2, 0),
}


@pytest.mark.parametrize("name", COO)
def test_operators_of_coo(name: str) -> None:
    assert_same(COO[name](sparse(torch.sparse_coo).to(DEVICE)), COO[name](sparse(torch.sparse_coo)))


def _gradients(device: str | torch.device, layout: torch.layout) -> tuple[Tensor, ...]:
    matrix = sparse(layout).to(device).requires_grad_()
    other = torch.arange(12.0, dtype=torch.float64).reshape(6, 2).to(device).requires_grad_()
    torch.sparse.mm(matrix, other).pow(2).sum().backward()
    assert matrix.grad is not None
    assert other.grad is not None
    return matrix.grad, other.grad


@pytest.mark.parametrize("layout", LAYOUTS[:2], ids=str)
def test_backward(layout: torch.layout) -> None:
    assert_same(_gradients(DEVICE, layout), _gradients("cpu", layout))


def _train(device: str | torch.device) -> Tensor:
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(10, 3, sparse=True).to(device)
    optimizer = torch.optim.SparseAdam(embedding.parameters(), lr=0.1)
    for step in range(5):
        optimizer.zero_grad()
        embedding(torch.tensor([1, step, 1], device=device)).pow(2).sum().backward()
        assert embedding.weight.grad is not None
        assert embedding.weight.grad.layout == torch.sparse_coo
        optimizer.step()
    return embedding.weight.detach()


def test_an_embedding_trains_on_sparse_gradients() -> None:
    assert_close(_train(DEVICE).cpu(), _train("cpu"))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_tensors_of_the_cpu_are_refused(layout: torch.layout) -> None:
    ours = sparse(layout).to(DEVICE)
    with pytest.raises(RuntimeError, match="on the same device"):
        torch.mm(ours, torch.ones(6, 2, dtype=torch.float64))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_repr(layout: torch.layout) -> None:
    assert "device='openreg:0'" in repr(sparse(layout).to(DEVICE))


def test_in_the_order_of_the_stream() -> None:
    theirs = sparse(torch.sparse_coo)
    torch.openreg._sleep(20_000_000)
    there = theirs.to(DEVICE, non_blocking=True) * 2
    assert torch.equal(there.to_dense().cpu(), dense() * 2)
