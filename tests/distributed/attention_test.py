# SPDX-License-Identifier: BSD-3-Clause
"""Attention on DTensors sharded by batch or heads equals attention in a single process."""

import itertools
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.distributed.ranks import Group, run
from tests.distributed.training import DEVICE
from tests.distributed.transformer import (
    BATCH,
    FEATURES,
    HEADS,
    TOKENS,
    WIDTH,
    attend,
    block,
    line,
    operands,
    random,
)

PLACEMENTS: tuple[Placement, ...] = (Replicate(), Shard(0), Shard(1))


def square() -> DeviceMesh:
    return init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("data", "model"))


def spread(tensor: Tensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
    return distribute_tensor(tensor.to(DEVICE), mesh, placements)


def require(ours: Any, whole: Tensor) -> None:
    assert isinstance(ours, DTensor)
    assert ours.device.type == DEVICE
    torch.testing.assert_close(ours.full_tensor().cpu(), whole)


def require_gradients(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
    for our, their in zip(ours, theirs, strict=True):
        assert their.grad is not None
        grad = our.grad
        assert grad is not None
        whole = grad.full_tensor() if isinstance(grad, DTensor) else grad
        torch.testing.assert_close(whole.cpu(), their.grad)


def compare(
    mesh: DeviceMesh,
    placements: Sequence[Placement],
    parts: Sequence[Tensor],
    mask: Tensor | None = None,
    mask_placements: Sequence[Placement] = (),
    backend: SDPBackend = SDPBackend.FLASH_ATTENTION,
    **options: Any,
) -> tuple[tuple[Placement, ...], int]:
    """Compares attention on DTensors, and its gradients, with attention in a single process.

    Returns:
        The result's placements, and the number of collectives.
    """
    ours = [spread(part, mesh, placements).requires_grad_() for part in parts]
    plain = [part.clone().requires_grad_() for part in parts]
    our_mask = None if mask is None else spread(mask, mesh, mask_placements)
    # sdpa_kernel() makes torch raise an error instead of running another backend's operator.
    with CommDebugMode() as communication, sdpa_kernel(backend):
        result = attend(ours, attn_mask=our_mask, **options)
        result.square().sum().backward()
    reference = attend(plain, attn_mask=mask, **options)
    reference.square().sum().backward()
    require(result.detach(), reference.detach())
    require_gradients(ours, plain)
    assert isinstance(result, DTensor)
    return result.placements, communication.get_total_counts()


# -------------------------------------------------------------------------------- sharded attention


def attends(causal: bool) -> None:
    mesh = line()
    for place in PLACEMENTS:
        assert compare(mesh, [place], operands(), is_causal=causal) == ((place,), 0)
    # If the heads or the batch cannot be split evenly, the last ranks get a smaller shard or none.
    assert compare(mesh, [Shard(1)], operands(heads=5), is_causal=causal) == ((Shard(1),), 0)
    assert compare(mesh, [Shard(0)], operands(batch=5), is_causal=causal) == ((Shard(0),), 0)
    # Each query needs all keys, and each product needs all elements of a head. Therefore attention
    # needs communication if tokens or elements are sharded.
    for place in (Shard(2), Shard(3), Partial()):
        _, collectives = compare_gathered(mesh, place, causal)
        assert collectives > 0


def compare_gathered(mesh: DeviceMesh, place: Placement, causal: bool) -> tuple[Any, int]:
    if not isinstance(place, Partial):
        return compare(mesh, [place], operands(), is_causal=causal)
    with CommDebugMode() as communication:
        parts = operands()
        halves = [
            DTensor.from_local(part.to(DEVICE) / mesh.size(), mesh, [place]) for part in parts
        ]
        result = attend(halves, is_causal=causal)
    require(result, attend(parts, is_causal=causal))
    return None, communication.get_total_counts()


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_batch_and_head_shards_stay_local(size: int, causal: bool) -> None:
    run(size, attends, causal)


def attends_on_a_square() -> None:
    mesh = square()
    for places in itertools.product(PLACEMENTS, PLACEMENTS):
        assert compare(mesh, places, operands(), is_causal=True) == (places, 0)


def test_two_dimensions_of_a_mesh() -> None:
    run(4, attends_on_a_square)


def attends_by_other_operators() -> None:
    placements, _ = compare(line(), [Shard(1)], operands(), backend=SDPBackend.MATH)
    assert placements == (Shard(1),)


def test_other_operators() -> None:
    run(2, attends_by_other_operators)


MASKS = [
    (TOKENS, TOKENS),
    (1, 1, TOKENS, TOKENS),
    (BATCH, 1, TOKENS, TOKENS),
    (1, HEADS, TOKENS, TOKENS),
    (BATCH, HEADS, TOKENS, TOKENS),
    (BATCH, 1, 1, TOKENS),
]


def masks() -> None:
    mesh = line()
    for place, shape in itertools.product(PLACEMENTS, MASKS):
        bias = random(*shape, seed=9)
        for mask in (bias, bias > -1):
            # Each rank slices its part of the replicated mask, which needs no communication.
            assert compare(mesh, [place], operands(), mask, [Replicate()]) == ((place,), 0)
    whole = random(*MASKS[-2], seed=9)
    for place in PLACEMENTS:
        # A mask sharded like the queries is already local.
        assert compare(mesh, [place], operands(), whole, [place]) == ((place,), 0)
    # If a mask and the heads are sharded differently, the mask is redistributed.
    assert compare(mesh, [Shard(1)], operands(), whole, [Shard(0)])[1] > 0


def test_masks() -> None:
    run(2, masks)


def differentiates_masks() -> None:
    # If the mask requires a gradient, F.scaled_dot_product_attention calls a different operator.
    operator = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    mesh = line()
    for place, shape, wanted in itertools.product(PLACEMENTS, MASKS[:-1], (True, False)):
        parts = [*operands(), random(*shape, seed=9)]
        places = [[place]] * 3 + [[Replicate()]]
        ours = [spread(*both) for both in zip(parts, [mesh] * 4, places, strict=True)]
        plain = [part.to(DEVICE) for part in parts]
        for tensors in (ours, plain):
            for index, tensor in enumerate(tensors):
                tensor.requires_grad_(index < 3 or wanted)
            operator(*tensors)[0].square().sum().backward()
        for our, their in zip(ours, plain, strict=True):
            assert (our.grad is None) == (their.grad is None) == (not our.requires_grad)
            if their.grad is not None:
                require(our.grad, their.grad.cpu())
        if wanted and place != Replicate():
            assert isinstance(ours[3].grad, DTensor)
            own = len(shape) == 4 and shape[place.dim] > 1
            assert ours[3].grad.placements == ((place if own else Partial()),)


def test_gradients_of_masks() -> None:
    run(2, differentiates_masks)


def shares_keys() -> None:
    mesh = line()
    size = mesh.size()
    for heads, key_heads in ((4, 2), (8, 4), (12, 6), (6, 3), (4, 1)):
        parts = operands(heads, key_heads)
        placements, collectives = compare(mesh, [Shard(1)], parts, is_causal=True, enable_gqa=True)
        # If the keys cannot be split evenly, some ranks lack keys that their queries need.
        even = key_heads % size == 0
        assert (placements == (Shard(1),)) == even
        assert (collectives == 0) == even
        assert compare(mesh, [Shard(0)], parts, enable_gqa=True) == ((Shard(0),), 0)


def shares_keys_on_a_square() -> None:
    mesh = square()
    both = (Shard(1), Shard(1))
    assert compare(mesh, both, operands(8, 4), enable_gqa=True) == (both, 0)
    # The six key heads can be sharded over either mesh dimension (2 ranks), but not over both (4
    # ranks).
    parts = operands(12, 6)
    assert compare(mesh, both, parts, enable_gqa=True)[1] > 0
    for place, other in itertools.product((0, 1), (Replicate(), Shard(0))):
        places = [other, other]
        places[place] = Shard(1)
        assert compare(mesh, places, parts, enable_gqa=True) == (tuple(places), 0)


def test_heads_that_share_keys() -> None:
    run(2, shares_keys)
    run(4, shares_keys)
    run(4, shares_keys_on_a_square)


def drops() -> list[list[float]]:
    torch.manual_seed(3)
    weights = []
    for place in PLACEMENTS:
        values = spread(torch.ones(BATCH, HEADS, TOKENS, WIDTH), line(), [place])
        result = F.scaled_dot_product_attention(values, values, values, dropout_p=0.5)
        assert isinstance(result, DTensor)
        weights.append(result.to_local()[0, 0, :, 0].tolist())
    return weights


def test_shards_drop_different_weights() -> None:
    (same, rows, heads), (same_too, other_rows, other_heads) = run(2, drops)
    assert same == same_too
    assert rows != other_rows
    assert heads != other_heads
    assert len(set(same)) > 1


# --------------------------------------------------------------------------- modules with attention


def parallel(mesh: DeviceMesh) -> nn.Module:
    plan: dict[str, Any] = {
        f"attention.{name}": ColwiseParallel(use_local_output=False)
        for name in ("query", "key", "value")
    }
    plan |= {"attention.out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
    return parallelize_module(block().to(DEVICE), mesh, plan)


def trains(backend: str | None) -> None:
    model, alone = parallel(line()), block()
    counter = CompileCounterWithBackend(backend or "eager")
    if backend is not None:
        model.compile(backend=counter, fullgraph=True)
    x = random(BATCH, TOKENS, FEATURES)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        result = model(x.to(DEVICE))
    result.square().sum().backward()
    reference = alone(x)
    reference.square().sum().backward()
    torch.testing.assert_close(result.detach().cpu(), reference.detach())
    require_gradients(list(model.parameters()), list(alone.parameters()))
    assert counter.frame_count == (backend is not None)


@pytest.mark.parametrize("size", [2, 4])
def test_block_with_heads_on_ranks(size: int) -> None:
    run(size, trains, None)


def test_compiled_block_with_heads_on_ranks() -> None:
    run(2, trains, "aot_eager")


def trains_on_two_dimensions() -> None:
    mesh = square()
    model, alone = parallel(mesh["model"]), block()
    fully_shard(model, mesh=mesh["data"])
    x = random(BATCH, TOKENS, FEATURES)
    model(x.chunk(2)[mesh["data"].get_local_rank()].to(DEVICE)).square().sum().backward()
    (alone(x).square().sum() / 2).backward()  # FSDP averages the gradients of two ranks
    require_gradients(list(model.parameters()), list(alone.parameters()))


def test_block_with_heads_and_shards_on_ranks() -> None:
    run(4, trains_on_two_dimensions)


def runs_torch_modules() -> None:
    mesh = line()
    x = random(BATCH, TOKENS, FEATURES)
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(16, 4, batch_first=True).double()
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True).double()
    for module, places in ((attention, [Replicate(), Shard(2)]), (layer, [Replicate(), Shard(0)])):
        for place in places:
            alone = deepcopy(module)
            model = distribute_module(deepcopy(module).to(DEVICE), mesh)
            ours, theirs = spread(x, mesh, [place]), x
            if module is attention:
                with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                    result, _ = model(ours, ours, ours, need_weights=False)
                reference, _ = alone(theirs, theirs, theirs, need_weights=False)
            else:
                result, reference = model(ours), alone(theirs)
            result.square().sum().backward()
            reference.square().sum().backward()
            require(result.detach(), reference.detach())
            require_gradients(list(model.parameters()), list(alone.parameters()))


def test_modules_of_torch() -> None:
    run(2, runs_torch_modules)


def compiles(backend: str, place: Placement) -> None:
    mesh = line()
    counter = CompileCounterWithBackend(backend)

    @torch.compile(backend=counter, fullgraph=True)
    def function(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        return attend([query, key, value], attn_mask=mask)

    mask = random(1, HEADS, TOKENS, TOKENS, seed=9)
    parts = operands()
    ours = [spread(part, mesh, [place]).requires_grad_() for part in parts]
    plain = [part.clone().requires_grad_() for part in parts]
    query, key, value = ours
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        result = function(query, key, value, spread(mask, mesh, [Replicate()]))
    result.square().sum().backward()
    reference = attend(plain, attn_mask=mask)
    reference.square().sum().backward()
    require(result.detach(), reference.detach())
    require_gradients(ours, plain)
    assert isinstance(result, DTensor)
    assert result.placements == (place,)
    assert counter.frame_count == 1


@pytest.mark.parametrize(
    ("backend", "place"),
    [("aot_eager", Shard(0)), ("aot_eager", Shard(1)), ("inductor", Shard(1))],
)
def test_compiled(backend: str, place: Placement, tmp_path: Path) -> None:
    group = Group(environment={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    run(2, compiles, backend, place, group=group)
