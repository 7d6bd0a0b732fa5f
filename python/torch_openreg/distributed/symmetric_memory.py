# SPDX-License-Identifier: BSD-3-Clause
"""Operators of ``torch.ops.symm_mem`` that torch implements in Python with CUDA streams.

The implementations here run a collective before or after the matrix product. The results are the
same, but the collective and the product do not overlap. The other operators are in
``distributed/symmetric_operators.cc``.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import GroupName

# The dispatch key of an out-of-tree device.
_KEY = "PrivateUse1"

_libraries: list[torch.library.Library] = []


def register() -> None:
    """Register the operators for the device. torch may define their schemas later."""
    library = torch.library.Library("symm_mem", "IMPL")
    for function in (
        fused_all_gather_matmul,
        fused_matmul_reduce_scatter,
        _low_contention_all_gather,
        _low_contention_reduce_scatter,
    ):
        library.impl(function.__name__, function, _KEY)
    _libraries.append(library)


def fused_all_gather_matmul(
    A_shard: Tensor,
    Bs: list[Tensor],
    gather_dim: int,
    group_name: "GroupName",
    *,
    return_A: bool = True,
) -> tuple[Tensor | None, list[Tensor]]:
    """Gather ``A_shard`` along ``gather_dim`` and multiply the result by each matrix in ``Bs``."""
    from torch.distributed import _functional_collectives as funcol

    whole = funcol.all_gather_tensor(A_shard, gather_dim % A_shard.dim(), group_name)
    gathered = funcol.wait_tensor(whole)
    return gathered if return_A else None, [gathered @ B for B in Bs]


def fused_matmul_reduce_scatter(
    A: Tensor,
    B: Tensor,
    reduce_op: str,
    scatter_dim: int,
    group_name: "GroupName",
) -> Tensor:
    """Multiply, reduce over the ranks, and return this rank's part of ``scatter_dim``."""
    from torch.distributed import _functional_collectives as funcol

    product = A @ B
    part = funcol.reduce_scatter_tensor(product, reduce_op, scatter_dim % product.dim(), group_name)
    waited: Tensor = funcol.wait_tensor(part)
    return waited


def _low_contention_all_gather(tensor: Tensor, group_name: "GroupName") -> Tensor:
    """Gather along the first dimension. ``wait_tensor`` waits for the result."""
    ops = torch.ops._c10d_functional
    size = torch.distributed.distributed_c10d._get_group_size_by_name(group_name)
    gathered: Tensor = ops.all_gather_into_tensor(tensor.contiguous(), size, group_name)
    return gathered


def _low_contention_reduce_scatter(
    tensor: Tensor, reduce_op: str, group_name: "GroupName"
) -> Tensor:
    """Reduce; return this rank's part of the first dimension. ``wait_tensor`` waits for it."""
    ops = torch.ops._c10d_functional
    size = torch.distributed.distributed_c10d._get_group_size_by_name(group_name)
    part: Tensor = ops.reduce_scatter_tensor(tensor.contiguous(), reduce_op, size, group_name)
    return part
