# SPDX-License-Identifier: BSD-3-Clause
"""Tests operators on symmetric memory: results, 32-bit writes, errors and compilation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed._symmetric_memory as symm_mem
from torch import Tensor
from torch._C._distributed_c10d import _SymmetricMemory
from torch._inductor.utils import run_and_get_code

from tests.distributed.faults import message
from tests.distributed.ranks import Group, preload, run
from tests.distributed.symmetric import DEVICE, pads_are_zero, symmetric, world

preload("torch.distributed._symmetric_memory", "torch._inductor.compile_fx", "pytest")

ops = torch.ops.symm_mem


DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32)


def all_reduces(dtype: torch.dtype) -> bytes:
    torch.manual_seed(dist.get_rank())
    seen = b""
    for count, start in ((1, 0), (1000, 0), (77, 3), (40_001, 5)):
        values = (torch.rand(count) * 100).to(dtype).to(DEVICE)
        expected = values.clone()
        dist.all_reduce(expected)
        whole, handle = symmetric(count + start + 1, dtype=dtype)
        tensor = whole[start : start + count]
        whole.fill_(1)

        tensor.copy_(values)
        results = [ops.one_shot_all_reduce(tensor, "sum", world())]
        out = torch.empty_like(values)
        results.append(ops.one_shot_all_reduce_out(tensor, "sum", world(), out))
        assert results[1].data_ptr() == out.data_ptr()
        assert tensor.equal(values)
        tensor.zero_()
        results.append(ops.one_shot_all_reduce_copy(tensor, values, "sum", world()))
        tensor.zero_()
        results.append(
            ops.one_shot_all_reduce_copy_out(
                tensor, values, "sum", world(), torch.empty_like(values)
            )
        )
        tensor.copy_(values)
        results.append(
            ops.two_shot_all_reduce_out(tensor, "sum", world(), torch.empty_like(values))
        )
        tensor.copy_(values)
        assert ops.two_shot_all_reduce_(tensor, "sum", world()).data_ptr() == tensor.data_ptr()
        results.append(tensor)
        for result in results:
            assert result.equal(expected)
        assert whole[start + count :].eq(1).all()
        assert whole[:start].eq(1).all()
        seen += expected.cpu().view(torch.uint8).numpy().tobytes()
        if count == 77:
            tensor.copy_(values)
            dist.all_reduce(values, dist.ReduceOp.MAX)
            assert ops.one_shot_all_reduce(tensor, "max", world()).equal(values)
        pads_are_zero(handle)
    return seen


def all_reduces_of_all_types() -> bytes:
    return b"".join(all_reduces(dtype) for dtype in DTYPES)


@pytest.mark.parametrize("size", [2, 4])
def test_all_reduces_equal_those_of_the_group(size: int) -> None:
    assert len(set(run(size, all_reduces_of_all_types))) == 1


def scatters_and_exchanges() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    for dtype in (torch.float32, torch.bfloat16):
        values = torch.rand(6, 4 * size, device=DEVICE).to(dtype)
        expected = values.clone()
        dist.all_reduce(expected)
        tensor, handle = symmetric(6, 4 * size, dtype=dtype)
        tensor.copy_(values)
        columns = torch.empty(6, 4, dtype=dtype, device=DEVICE)
        ops.reduce_scatter_out(tensor, world(), True, columns)
        assert columns.equal(expected.chunk(size, 1)[rank])
        parts = torch.empty(6 * 4, dtype=dtype, device=DEVICE)
        ops.reduce_scatter_out(tensor, world(), False, parts)
        assert parts.equal(expected.flatten().chunk(size)[rank])

    # Rank s sends s + 2 * t rows to rank t.
    splits, _ = symmetric(size, dtype=torch.int64)
    splits.copy_(torch.tensor([rank + 2 * target for target in range(size)]))
    rows, handle = symmetric(40, 3)
    rows.copy_(torch.arange(120.0).view(40, 3) + 1000 * rank)
    out = torch.full((40, 3), -1.0, device=DEVICE)
    numbers = torch.empty(2, size, dtype=torch.int64, device=DEVICE)
    ops.all_to_all_vdev(rows, out, splits, numbers, world())
    expected_rows: list[Tensor] = []
    counts: list[int] = []
    offsets: list[int] = []
    for source in range(size):
        begin = sum(source + 2 * target for target in range(rank))
        count = source + 2 * rank
        every = torch.arange(120.0).view(40, 3) + 1000 * source
        expected_rows.append(every[begin : begin + count])
        offsets.append(sum(counts))
        counts.append(count)
    assert numbers.tolist() == [counts, offsets]
    assert out[: sum(counts)].cpu().equal(torch.cat(expected_rows))
    assert out[sum(counts) :].eq(-1).all()
    pads_are_zero(handle)
    # If the output is too small for the other ranks' rows, an error must be raised.
    text = message(ops.all_to_all_vdev, rows, out[:1], splits, numbers, world())
    assert "but its output has room for 1" in text


@pytest.mark.parametrize("size", [2, 4])
def test_reduce_scatter_and_all_to_all(size: int) -> None:
    run(size, scatters_and_exchanges)


def writes_words() -> None:
    words = torch.zeros(6, dtype=torch.uint32, device=DEVICE)
    _SymmetricMemory.memset32(words, offset=1, val=0xFFFFFFFF, count=2)
    _SymmetricMemory.stream_write_value32(words, offset=5, val=3)
    assert words.tolist() == [0, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 3]
    for offset, value, count in ((5, 1, 2), (-1, 1, 1), (0, 1, 0), (0, 1 << 32, 1)):
        with pytest.raises(ValueError, match="memset32_"):
            ops.memset32_(words, offset, value, count)
    with pytest.raises(ValueError, match="dtype uint32 or int32"):
        ops.stream_write_value32_(words.float(), 0, 1)


def test_words() -> None:
    run(1, writes_words)


def refuses() -> None:
    tensor, handle = symmetric(8)
    ordinary = torch.ones(8, device=DEVICE)
    channels = symm_mem.get_signal_pad_size() // 4 // 2
    cases: list[tuple[str, Callable[[], Any]]] = [
        (
            f"there is no channel {channels}: .*{channels} channels",
            lambda: handle.barrier(channels),
        ),
        ("there is no channel -1", lambda: handle.put_signal(1, channel=-1)),
        ("there is no rank 2: 2 ranks", lambda: handle.wait_signal(2)),
        (
            "one_shot_all_reduce: the tensor is not symmetric memory",
            lambda: ops.one_shot_all_reduce(ordinary, "sum", world()),
        ),
        (
            'unsupported reduction "mean"',
            lambda: ops.two_shot_all_reduce_(tensor, "mean", world()),
        ),
        (
            "must be contiguous",
            lambda: ops.two_shot_all_reduce_(tensor[::2], "sum", world()),
        ),
        (
            "one_shot_all_reduce_out",
            lambda: ops.one_shot_all_reduce_out(tensor, "sum", world(), ordinary[:3]),
        ),
        (
            "3 columns cannot be divided among 2 ranks",
            lambda: ops.reduce_scatter_out(tensor[:6].view(2, 3), world(), True, ordinary),
        ),
        (
            "the requested size",
            lambda: handle.get_buffer(1, (9,), torch.float32),
        ),
        (
            "no multicast",
            lambda: ops.multimem_all_reduce_(tensor, "sum", world()),
        ),
        (
            "no multicast",
            lambda: ops.multimem_all_gather_out(tensor[:4], world(), tensor),
        ),
    ]
    for words, call in cases:
        with pytest.raises((RuntimeError, ValueError), match=words):
            call()
    torch.openreg.synchronize()
    handle.barrier()
    pads_are_zero(handle)


def test_invalid_arguments_are_rejected() -> None:
    run(2, refuses)


def compiles() -> None:
    rank = dist.get_rank()
    group: Any = dist.group.WORLD
    name = world()
    tensor, handle = symmetric(8)
    tensor.fill_(rank)
    handle.barrier()

    def of_an_input(x: Tensor) -> Any:
        return ops.one_shot_all_reduce(x, "sum", name) + 1

    def of_the_group(x: Tensor) -> Any:
        return funcol.wait_tensor(funcol.all_reduce(x * 2, "sum", group)) + 1

    with pytest.warns(FutureWarning, match="deprecated"):
        symm_mem.enable_symm_mem_for_group(name)
    for function, expected in ((of_an_input, 2), (of_the_group, 3)):
        compiled = torch.compile(function, fullgraph=True)
        with torch._inductor.config.patch({"_collective.auto_select": True}):
            _, (code,) = run_and_get_code(compiled, tensor)
        assert "one_shot_all_reduce" in code
        for _ in range(2):
            assert compiled(tensor).eq(expected).all()
    pads_are_zero(handle)


def test_all_reduces_are_compiled(tmp_path: Path) -> None:
    run(2, compiles, group=Group(environment={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}))
