# SPDX-License-Identifier: BSD-3-Clause
"""Context parallelism: attention over a sharded sequence equals attention in one process."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import (
    _context_parallel_shard,
    _cp_options,
    _disable_context_parallel_dispatcher,
    _enable_context_parallel_dispatcher,
    _HeadTailLoadBalancer,
    context_parallel_unshard,
    set_rotate_method,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.distributed.ranks import Group, run
from tests.distributed.training import DEVICE
from tests.distributed.transformer import (
    BATCH,
    FEATURES,
    HEADS,
    attend,
    block,
    line,
    operands,
    random,
)

TOKENS = 32


# The tolerance is necessary because torch merges the results of blocks in float32.
def require_close(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our.detach().cpu(), their, rtol=1e-5, atol=1e-5)


def attend_in_a_ring(
    mesh: DeviceMesh, parts: Sequence[Tensor], compiled: str | None = None, **options: Any
) -> list[Tensor]:
    """Returns attention over a sharded context and its gradients, gathered into whole tensors."""
    function = torch.compile(attend, backend=compiled, fullgraph=True) if compiled else attend
    buffers = [part.to(DEVICE) for part in parts]
    with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2] * 3):
        assert buffers[0].size(2) == parts[0].size(2) // mesh.size()
        ours = [buffer.detach().clone().requires_grad_() for buffer in buffers]
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            result = function(ours, **options)
        result.square().sum().backward()
        grads = [tensor.grad for tensor in ours if tensor.grad is not None]
        whole = context_parallel_unshard(mesh, [result.detach(), *grads], [2] * 4)
    return whole


def attend_alone(parts: Sequence[Tensor], **options: Any) -> list[Tensor]:
    plain = [part.clone().requires_grad_() for part in parts]
    result = attend(plain, **options)
    result.square().sum().backward()
    return [result.detach(), *(tensor.grad for tensor in plain if tensor.grad is not None)]


def attends_in_a_ring(rotation: str, causal: bool, balanced: bool) -> None:
    mesh = line()
    set_rotate_method(rotation)
    _cp_options.enable_load_balance = balanced
    for dtype, key_heads in itertools.product((torch.float32, torch.float64), (HEADS, 2)):
        parts = [part.to(dtype) for part in operands(key_heads=key_heads, tokens=TOKENS)]
        options: dict[str, Any] = {
            "is_causal": causal,
            "enable_gqa": key_heads != HEADS,
            "scale": 0.3,
        }
        require_close(attend_in_a_ring(mesh, parts, **options), attend_alone(parts, **options))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("rotation", ["allgather", "alltoall"])
@pytest.mark.parametrize(
    ("causal", "balanced"), [(True, True), (True, False), (False, False)], ids=str
)
def test_ring(size: int, rotation: str, causal: bool, balanced: bool) -> None:
    run(size, attends_in_a_ring, rotation, causal, balanced)


def compiles_a_ring(backend: str, causal: bool) -> None:
    _cp_options.enable_load_balance = causal
    parts = operands(tokens=TOKENS)
    ours = attend_in_a_ring(line(), parts, backend, is_causal=causal)
    require_close(ours, attend_alone(parts, is_causal=causal))


# Inductor is tested only without a causal mask, which halves the number of kernels to compile.
@pytest.mark.parametrize(("backend", "causal"), [("aot_eager", True), ("inductor", False)])
def test_compiled_ring(backend: str, causal: bool, tmp_path: Path) -> None:
    group = Group(environment={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    run(2, compiles_a_ring, backend, causal, group=group)


def differentiates_outside() -> None:
    mesh = line()
    for causal in (False, True):
        _cp_options.enable_load_balance = causal
        buffers = [part.to(DEVICE) for part in operands(tokens=TOKENS)]
        with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2] * 3):
            ours = [buffer.detach().clone().requires_grad_() for buffer in buffers]
            result = attend(ours, is_causal=causal)
        if causal:
            with pytest.raises(RuntimeError, match=r"outside of context_parallel: call backward"):
                result.square().sum().backward()
        else:
            result.square().sum().backward()
            grads = [tensor.grad for tensor in ours if tensor.grad is not None]
            whole = context_parallel_unshard(mesh, [result, *grads], [2] * 4)
            require_close(whole, attend_alone(operands(tokens=TOKENS)))


def test_gradients_outside_of_the_context() -> None:
    run(2, differentiates_outside)


def trains_in_a_ring() -> None:
    mesh = line()
    model, alone = block().to(DEVICE), block()
    x, y = random(BATCH, TOKENS, FEATURES, seed=1), random(BATCH, TOKENS, FEATURES, seed=2)
    ours, targets = x.to(DEVICE), y.to(DEVICE)
    with context_parallel(mesh, buffers=[ours, targets], buffer_seq_dims=[1, 1]):
        F.mse_loss(model(ours), targets, reduction="sum").backward()
    assert ours.shape == x.shape
    F.mse_loss(alone(x), y, reduction="sum").backward()
    grads, expected = (
        [parameter.grad for parameter in one.parameters() if parameter.grad is not None]
        for one in (model, alone)
    )
    for grad in grads:
        dist.all_reduce(grad)
    require_close(grads, expected)


def test_block_over_a_context() -> None:
    run(2, trains_in_a_ring)


def attends_in_a_ring_of_dtensors() -> None:
    # This is torch's newer interface: the program uses DTensors, and nothing in torch.nn.functional
    # is patched.
    mesh = line()
    parts = operands(tokens=TOKENS)
    balancer = _HeadTailLoadBalancer(TOKENS, mesh.size(), DEVICE)
    shards = _context_parallel_shard(mesh, [p.to(DEVICE) for p in parts], [2] * 3, balancer)
    ours = [
        DTensor.from_local(shard, mesh, [Shard(2)]).requires_grad_()
        for shard in shards
        if isinstance(shard, Tensor)
    ]
    bias = distribute_tensor(random(TOKENS, TOKENS).to(DEVICE), mesh, [Replicate()])
    heads = [distribute_tensor(part.to(DEVICE), mesh, [Shard(1)]) for part in parts]
    uneven = [distribute_tensor(part[:, :, 1:].to(DEVICE), mesh, [Shard(2)]) for part in parts]
    _enable_context_parallel_dispatcher()
    try:
        result = attend(ours, is_causal=True)
        assert isinstance(result, DTensor)
        result.square().sum().backward()
        grads = [tensor.grad for tensor in ours]
        with pytest.raises(NotImplementedError, match=r"support attn_mask: use is_causal"):
            attend(ours, attn_mask=bias)
        with pytest.raises(NotImplementedError, match=r"split evenly.*\(4, 4, 32, 8\) as .*=1"):
            attend(heads)
        with pytest.raises(NotImplementedError, match=r"split evenly.*\(4, 4, 31, 8\)"):
            attend(uneven)
    finally:
        _disable_context_parallel_dispatcher()
    locals_ = [tensor.to_local() for tensor in (result, *grads) if isinstance(tensor, DTensor)]
    whole = context_parallel_unshard(mesh, locals_, [2] * 4, balancer)
    require_close(whole, attend_alone(parts, is_causal=True))
    # With the dispatcher disabled, attention gathers sharded sequences again. Sharded heads need no
    # collectives.
    reference = attend(parts, is_causal=True)
    for tensors, expected in ((ours, 3), (heads, 0)):
        with CommDebugMode() as communication:
            again = attend(tensors, is_causal=True)
        assert communication.get_total_counts() == expected
        assert isinstance(again, DTensor)
        if tensors is heads:
            torch.testing.assert_close(again.full_tensor().cpu(), reference)


def test_ring_of_dtensors() -> None:
    run(2, attends_in_a_ring_of_dtensors)
