# SPDX-License-Identifier: BSD-3-Clause
"""Computations on DTensors, which are distributed over a device mesh, agree with whole tensors."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
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
    ones,
    rand,
    randn,
    zeros,
)
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import implicit_replication, local_map
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from tests.distributed.ranks import Group, run
from tests.distributed.training import DEVICE, STEPS, WIDTH, batch, expected, require_equal, share


def line() -> DeviceMesh:
    return init_device_mesh(DEVICE, (dist.get_world_size(),))


def square() -> DeviceMesh:
    return init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("data", "model"))


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def spread(tensor: Tensor, mesh: DeviceMesh, *placements: Placement) -> DTensor:
    return distribute_tensor(tensor.to(DEVICE), mesh, placements)


def require(ours: Any, whole: Tensor) -> None:
    assert isinstance(ours, DTensor)
    assert ours.device.type == DEVICE
    torch.testing.assert_close(ours.full_tensor().cpu(), whole)


# --------------------------------------------------------------------------------------- placements


def meshes() -> dict[str, Any]:
    mesh = square()
    first, second = mesh["data"], mesh["model"]
    rank = torch.tensor(float(dist.get_rank()), device=DEVICE)
    sums = []
    for part in (first, second):
        value = rank.clone()
        dist.all_reduce(value, group=part.get_group())
        sums.append(value.item())
    flat = mesh._flatten("all")
    dist.all_reduce(rank, group=flat.get_group())
    return {
        "coordinate": tuple(mesh.get_coordinate() or ()),
        "device": torch.openreg.current_device(),
        "backend": dist.get_backend(first.get_group()),
        "sums": (*sums, rank.item()),
    }


def test_a_mesh_has_a_group_per_line() -> None:
    for rank, seen in enumerate(run(4, meshes)):
        row, column = divmod(rank, 2)
        assert seen == {
            "coordinate": (row, column),
            "device": rank,
            "backend": "occl",
            "sums": (2.0 * column + 2, 4.0 * row + 1, 6.0),
        }


def redistributes(shape: tuple[int, ...]) -> None:
    mesh = line()
    size = dist.get_world_size()
    whole = random(*shape)
    kinds: list[Placement] = [Replicate(), Partial(), *(Shard(dim) for dim in range(len(shape)))]
    for source, target in itertools.product(kinds, kinds):
        if isinstance(source, Partial):
            part = whole.to(DEVICE) / size
            before = DTensor.from_local(part, mesh, [source])
        else:
            before = spread(whole, mesh, source)
        if isinstance(target, Partial) and not isinstance(source, Partial):
            with pytest.raises(RuntimeError, match="redistribute"):
                before.redistribute(mesh, [target])
            continue
        after = before.redistribute(mesh, [target])
        assert after.placements == (target,)
        require(after, whole)
        if isinstance(target, Shard):
            chunks = whole.tensor_split(1, target.dim)[0].chunk(size, target.dim)
            rank = dist.get_rank()
            length = chunks[rank].size(target.dim) if rank < len(chunks) else 0
            assert after.to_local().size(target.dim) == length


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("shape", [(4, 8), (5, 3), (1, 6, 2)])
def test_redistribution_between_all_placements(size: int, shape: tuple[int, ...]) -> None:
    run(size, redistributes, shape)


def redistributes_on_a_square() -> None:
    mesh = square()
    whole = random(6, 5)
    kinds: list[Placement] = [Replicate(), Shard(0), Shard(1)]
    places = list(itertools.product(kinds, kinds))
    for source in places:
        for target in ((Shard(0), Shard(0)), (Shard(1), Shard(0)), (Replicate(), Shard(1))):
            require(spread(whole, mesh, *source).redistribute(mesh, target), whole)
    parts = DTensor.from_local(whole.to(DEVICE) / 2, mesh, [Shard(0), Partial()])
    require(parts, torch.cat([whole, whole]) / 1)


def test_placements_on_a_square_mesh() -> None:
    run(4, redistributes_on_a_square)


# ---------------------------------------------------------------------------- operators on DTensors

OPERATORS: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda a, b: a + b,
    lambda a, b: (a * b).exp().tanh(),
    lambda a, b: a @ b.t(),
    lambda a, b: a.t() @ b,
    lambda a, b: a.sum(),
    lambda a, b: a.sum(0),
    lambda a, b: a.mean(1, keepdim=True),
    lambda a, b: a.amax(1) + b.amin(1),
    lambda a, b: a.softmax(-1),
    lambda a, b: F.layer_norm(a, a.shape[-1:]),
    lambda a, b: torch.cat([a, b], 1),
    lambda a, b: torch.stack([a, b]),
    lambda a, b: a.t().contiguous() * 2,
    lambda a, b: torch.where(a > b, a, b),
    lambda a, b: a.var(0),
    lambda a, b: a.norm(),
    lambda a, b: a.cumsum(0),
    lambda a, b: a.argmax(1).double(),
    lambda a, b: a[1:3] * 2,
    lambda a, b: a.unsqueeze(0).expand(3, -1, -1) + b,
    lambda a, b: a.topk(2, dim=1).values,
    lambda a, b: a.sort(1).values,
    lambda a, b: torch.bmm(a.unsqueeze(0), b.t().unsqueeze(0)),
    lambda a, b: a.logsumexp(1),
]


def computes(rows: int) -> list[str]:
    mesh = line()
    a, b = random(rows, 7, seed=1), random(rows, 7, seed=2)
    places: list[Placement] = [Replicate(), Shard(0), Shard(1)]
    wrong = []
    for number, operator in enumerate(OPERATORS):
        for first, second in itertools.product(places, places):
            try:
                require(operator(spread(a, mesh, first), spread(b, mesh, second)), operator(a, b))
            except Exception as error:
                wrong.append(f"operator {number} of {first}, {second}: {error}")
    return wrong


@pytest.mark.parametrize(("size", "rows"), [(2, 8), (2, 5), (4, 6)])
def test_operators(size: int, rows: int) -> None:
    for wrong in run(size, computes, rows):
        assert not wrong, "\n".join(wrong)


def differentiates() -> None:
    mesh = line()
    x, weight = random(8, 6, seed=1), random(4, 6, seed=2)
    for first, second in itertools.product((Replicate(), Shard(0), Shard(1)), repeat=2):
        inputs = [spread(x, mesh, first), spread(weight, mesh, second)]
        plain = [x.clone(), weight.clone()]
        for tensor in (*inputs, *plain):
            tensor.requires_grad_()
        F.gelu(F.linear(*inputs)).square().sum().backward()
        F.gelu(F.linear(*plain)).square().sum().backward()
        for ours, theirs in zip(inputs, plain, strict=True):
            assert theirs.grad is not None
            require(ours.grad, theirs.grad)


def test_gradients() -> None:
    run(2, differentiates)


def makes_and_mixes() -> None:
    mesh = line()
    require(zeros(5, 3, device_mesh=mesh, placements=[Shard(0)]), torch.zeros(5, 3))
    one = ones(5, 3, device_mesh=mesh, placements=[Shard(1)])
    with implicit_replication():
        require(one + torch.ones(3, device=DEVICE), torch.full((5, 3), 2.0))
    with pytest.raises(RuntimeError, match=r"mixed torch\.Tensor and DTensor"):
        _ = one + torch.ones(3, device=DEVICE)

    def scaled(x: Tensor, y: Tensor) -> Tensor:
        assert not isinstance(x, DTensor)
        return x @ y

    product = local_map(
        scaled,
        out_placements=[Partial()],
        in_placements=([Shard(1)], [Shard(0)]),
        device_mesh=mesh,
    )
    a, b = random(4, 6, seed=1), random(6, 3, seed=2)
    inputs = spread(a, mesh, Shard(1)), spread(b, mesh, Shard(0))
    with CommDebugMode() as communication:
        result = product(*inputs)
    assert communication.get_total_counts() == 0
    require(result, a @ b)


def test_factories_and_local_functions() -> None:
    run(2, makes_and_mixes)


# ---------------------------------------------------------------------------------- random DTensors


def draws() -> dict[str, Any]:
    mesh = line()
    torch.manual_seed(3)
    alone = torch.rand(8, 4, device=DEVICE).tolist()
    torch.manual_seed(3)
    replicated = rand(8, 4, device_mesh=mesh, placements=[Replicate()])
    shards = randn(8, 4, device_mesh=mesh, placements=[Shard(0)])
    after = rand(4, device_mesh=mesh, placements=[Replicate()])
    torch.manual_seed(3)
    rand(8, 4, device_mesh=mesh, placements=[Replicate()])
    again = randn(8, 4, device_mesh=mesh, placements=[Shard(0)])
    dropped = F.dropout(ones(64, device_mesh=mesh, placements=[Shard(0)]), 0.5)
    same = F.dropout(ones(64, device_mesh=mesh, placements=[Replicate()]), 0.5)
    generator = torch.Generator(DEVICE).manual_seed(7)
    given = zeros(8, device_mesh=mesh, placements=[Shard(0)]).uniform_(generator=generator)
    return {
        "alone": alone,
        "replicated": replicated.to_local().tolist(),
        "shard": shards.to_local().tolist(),
        "again": again.to_local().tolist(),
        "after": after.to_local().tolist(),
        "dropped": dropped.to_local().tolist(),
        "same": same.to_local().tolist(),
        "given": given.to_local().tolist(),
        "offset": torch.openreg.get_rng_state().tolist(),
    }


def test_replicas_draw_the_same_numbers_and_shards_their_own() -> None:
    first, second = run(2, draws)
    assert first["replicated"] == second["replicated"] == first["alone"]
    for name in ("shard", "dropped", "given"):
        assert first[name] != second[name]
    for name in ("after", "same", "offset"):
        assert first[name] == second[name]
    for seen in (first, second):
        assert seen["shard"] == seen["again"]


# --------------------------------------------------------------------------------- parallel modules


class Feedforward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.up = nn.Linear(6, WIDTH)
        self.down = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(self.norm(x))))  # type: ignore[no-any-return]


def feedforward() -> nn.Module:
    torch.manual_seed(0)
    return Feedforward().double()


def adam(model: nn.Module) -> torch.optim.Optimizer:
    # Do not use foreach, because its lists must not contain both DTensors and plain tensors.
    return torch.optim.Adam(model.parameters(), lr=0.01, foreach=False)


def parallel(mesh: DeviceMesh, by_rows: bool = False) -> nn.Module:
    """Shards `up` by columns and `down` by rows. With `by_rows`, also shards the norm's rows."""
    plan: dict[str, Any] = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    if by_rows:
        plan["norm"] = SequenceParallel(sequence_dim=0)
        plan["up"] = ColwiseParallel(input_layouts=Shard(0))
    return parallelize_module(feedforward().to(DEVICE), mesh, plan)


def trains_in_parallel(by_rows: bool) -> None:
    mesh = line()
    model = parallel(mesh, by_rows)
    weight = model.get_parameter("up.weight")
    assert isinstance(weight, DTensor)
    assert weight.to_local().shape == (WIDTH // dist.get_world_size(), 6)
    optimizer = adam(model)
    for step in range(STEPS):
        x, y = batch(step)
        x = share(x) if by_rows else x.to(DEVICE)
        F.mse_loss(model(x), y.to(DEVICE)).backward()
        optimizer.step()
        optimizer.zero_grad()
    require_equal(model, expected(feedforward, adam))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("by_rows", [False, True])
def test_layers_split_by_columns_and_rows(size: int, by_rows: bool) -> None:
    run(size, trains_in_parallel, by_rows)


def trains_on_two_dimensions() -> None:
    mesh = square()
    model = parallel(mesh["model"])
    fully_shard(model, mesh=mesh["data"])
    weight = model.get_parameter("up.weight")
    assert isinstance(weight, DTensor)
    assert weight.to_local().numel() == WIDTH * 6 // 4
    optimizer = adam(model)
    for step in range(STEPS):
        x, y = batch(step)
        row = mesh["data"].get_local_rank()
        loss = F.mse_loss(model(x.chunk(2)[row].to(DEVICE)), y.chunk(2)[row].to(DEVICE))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    require_equal(model, expected(feedforward, adam))


def test_fsdp_of_tensor_parallel_layers() -> None:
    run(4, trains_on_two_dimensions)


def takes_losses() -> None:
    mesh = line()
    logits, targets = random(6, 8), torch.tensor([1, 7, 0, 3, 4, 2])
    plain = logits.clone().requires_grad_()
    loss = F.cross_entropy(plain, targets)
    loss.backward()
    ours = spread(logits, mesh, Shard(1)).requires_grad_()
    with loss_parallel():
        our_loss = F.cross_entropy(ours, spread(targets, mesh, Replicate()))
        our_loss.backward()
    require(our_loss.detach(), loss.detach())
    assert plain.grad is not None
    assert ours.grad is not None
    assert ours.grad.placements == (Shard(1),)
    require(ours.grad, plain.grad)


def test_losses_of_sharded_scores() -> None:
    run(2, takes_losses)


def distributes_a_module() -> None:
    mesh = line()

    def by_rows(name: str, module: nn.Module, mesh: DeviceMesh) -> None:
        for key, parameter in list(module.named_parameters(recurse=False)):
            module.register_parameter(
                key, nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)]))
            )

    model = distribute_module(nn.Embedding(10, 4).to(DEVICE), mesh, by_rows)
    table = torch.arange(40.0).view(10, 4)
    with torch.no_grad():
        model.get_parameter("weight").copy_(spread(table, mesh, Shard(0)))
    index = torch.tensor([9, 0, 4])
    require(model(spread(index, mesh, Replicate())).detach(), table[index])


def test_an_embedding_sharded_by_rows() -> None:
    run(2, distributes_a_module)


# ------------------------------------------------------------------------------- compiled functions


def compiles(backend: str) -> int:
    mesh = line()
    counter = CompileCounterWithBackend(backend)
    x, weight = random(8, 6, seed=1), random(4, 6, seed=2)

    @torch.compile(backend=counter, fullgraph=True)
    def function(x: Tensor, weight: Tensor) -> Tensor:
        wide = F.gelu(F.linear(x, weight))
        assert isinstance(wide, DTensor)
        return wide.redistribute(mesh, [Replicate()]).square().sum(1)

    inputs = [spread(x, mesh, Shard(0)), spread(weight, mesh, Replicate())]
    plain = [x.clone(), weight.clone()]
    for tensor in (*inputs, *plain):
        tensor.requires_grad_()
    result = function(*inputs)
    result.sum().backward()
    reference = F.gelu(F.linear(*plain)).square().sum(1)
    reference.sum().backward()
    require(result.detach(), reference.detach())
    for ours, theirs in zip(inputs, plain, strict=True):
        assert theirs.grad is not None
        require(ours.grad, theirs.grad)

    model = parallel(mesh)
    model.compile(backend=counter)
    x, y = (tensor.to(DEVICE) for tensor in batch(0))
    F.mse_loss(model(x), y).backward()
    alone = feedforward()
    F.mse_loss(alone(x.cpu()), y.cpu()).backward()
    for parameter, plain_one in zip(model.parameters(), alone.parameters(), strict=True):
        assert plain_one.grad is not None
        grad = parameter.grad
        whole = grad.full_tensor() if isinstance(grad, DTensor) else grad
        assert whole is not None
        torch.testing.assert_close(whole.cpu(), plain_one.grad)
    return counter.frame_count


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled(backend: str, tmp_path: Path) -> None:
    group = Group(environment={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    assert run(2, compiles, backend, group=group) == [2, 2]


def drops_compiled(traced: bool) -> list[list[float]]:
    mesh = line()
    drop = F.dropout if traced else torch.compiler.disable(F.dropout)

    @torch.compile(backend="aot_eager", fullgraph=traced)
    def function(x: Tensor) -> Tensor:
        return drop(x * 2, 0.5) + 1

    torch.manual_seed(0)
    parts = [
        function(ones(64, device_mesh=mesh, placements=[placement]))
        for placement in (Shard(0), Replicate())
    ]
    return [part.to_local().tolist() for part in parts if isinstance(part, DTensor)]


@pytest.mark.parametrize(
    "traced",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.xfail(
                strict=True, reason="torch traces random operators on DTensors only for CUDA"
            ),
        ),
    ],
)
def test_random_numbers_compiled(traced: bool) -> None:
    (first, same), (second, same_too) = run(2, drops_compiled, traced)
    assert first != second
    assert same == same_too
    assert set(first) == set(second) == set(same) == {1.0, 5.0}
