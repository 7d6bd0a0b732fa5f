# SPDX-License-Identifier: BSD-3-Clause
"""Tests fully sharded data parallelism: fully_shard (FSDP2) and FullyShardedDataParallel."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffload,
    CPUOffloadPolicy,
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from tests.distributed.ranks import Group, preload, run
from tests.distributed.training import (
    DEVICE,
    STEPS,
    WIDTH,
    adam,
    batch,
    expected,
    network,
    require_equal,
    share,
    train,
)

preload("torch.distributed.fsdp")


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def sharded(model: nn.Module | None = None, each_layer: bool = True, **options: Any) -> Any:
    model = (model or network()).to(DEVICE)
    if each_layer:
        for layer in model.children():
            if next(layer.parameters(), None) is not None:
                fully_shard(layer, **options)
    return fully_shard(model, **options)


# ------------------------------------------------------------------------------ fully_shard (FSDP2)


def trains_as_one_process(options: dict[str, Any], each_layer: bool) -> None:
    model = sharded(each_layer=each_layer, **options)
    for parameter in model.parameters():
        assert isinstance(parameter, DTensor)
        assert parameter.device_mesh.device_type == DEVICE
    train(model, adam(model))
    require_equal(model, expected())


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("options", "each_layer"),
    [
        ({}, True),
        ({}, False),
        ({"reshard_after_forward": True}, False),
        ({"reshard_after_forward": False}, True),
        ({"reshard_after_forward": 2}, True),
    ],
)
def test_training_equals_that_of_one_process(
    size: int, options: dict[str, Any], each_layer: bool
) -> None:
    if options.get("reshard_after_forward") == 2 and size == 2:
        options = {"reshard_after_forward": 1}
    run(size, trains_as_one_process, options, each_layer)


def frees_parameters() -> list[bool]:
    seen = []
    for reshard in (True, False):
        model = sharded(reshard_after_forward=reshard)
        weight = model[0].weight
        assert isinstance(weight, DTensor)
        assert weight.placements == (Shard(0),)
        assert weight.to_local().shape == (WIDTH // 2, 6)
        model(share(batch(0)[0]))
        gathered = not isinstance(model[0].weight, DTensor)
        assert model[0].weight.shape == (WIDTH, 6)
        seen.append(gathered)
        if gathered:
            model[0].reshard()
            assert isinstance(model[0].weight, DTensor)
        model[0].unshard()
        torch.testing.assert_close(model[0].weight.cpu(), network()[0].weight)
    return seen


def test_parameters_are_gathered_for_the_forward_pass_and_freed_after_it() -> None:
    assert run(2, frees_parameters) == [[False, True]] * 2


def on_two_dimensions() -> None:
    mesh = init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("replicate", "shard"))
    model = sharded(mesh=mesh)
    weight = next(model.parameters())
    assert weight.to_local().shape[0] == WIDTH // 2
    train(model, adam(model))
    require_equal(model, expected())


def test_shards_within_replicas() -> None:
    run(4, on_two_dimensions)


def in_mixed_precision() -> None:
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32
    )
    seen = []
    model = sharded(network(torch.float32), mp_policy=policy)
    model[2].register_forward_pre_hook(lambda module, x: seen.append(module.weight.dtype))
    train(model, sgd(model), dtype=torch.float32)
    assert seen == [torch.bfloat16] * STEPS
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    reference = expected(lambda: network(torch.float32), sgd, dtype=torch.float32)
    require_equal(model, reference, rtol=2e-2, atol=2e-2)


def test_mixed_precision() -> None:
    run(2, in_mixed_precision)


def with_parameters_on_the_cpu(pin: bool) -> None:
    model = network()
    policy = CPUOffloadPolicy(pin_memory=pin)
    for layer in (model[0], model[2], model[4]):
        fully_shard(layer, offload_policy=policy)
    fully_shard(model, offload_policy=policy)
    train(model, adam(model))
    for parameter in model.parameters():
        assert parameter.device.type == "cpu"
        assert isinstance(parameter, DTensor)
        assert parameter.to_local().is_pinned() == pin
    for name, value in expected().state_dict().items():
        ours = model.state_dict()[name]
        whole = ours.to(DEVICE).full_tensor()
        torch.testing.assert_close(whole.cpu(), value, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("pin", [False, True])
def test_parameters_kept_on_the_cpu(pin: bool) -> None:
    group = Group("cpu:gloo,openreg:occl")
    run(2, with_parameters_on_the_cpu, pin, group=group)


def accumulates() -> None:
    model = sharded()
    optimizer = adam(model)
    reference = network()
    reference_optimizer = adam(reference)
    for step in range(2):
        for part in range(3):
            x, y = batch(3 * step + part)
            model.set_requires_gradient_sync(part == 2)
            model.set_reshard_after_backward(part == 2)
            F.mse_loss(model(share(x)), share(y)).backward()
            F.mse_loss(reference(x), y).backward()
        for each in (optimizer, reference_optimizer):
            each.step()
            each.zero_grad()
    require_equal(model, reference)


def test_gradients_accumulate_without_communication() -> None:
    run(2, accumulates)


def clips() -> list[float]:
    norms = []

    def change(model: nn.Module) -> None:
        norm: Any = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        norms.append(float(norm.full_tensor() if isinstance(norm, DTensor) else norm))

    model = sharded()
    optimizer = sgd(model)
    for step in range(STEPS):
        x, y = batch(step)
        F.mse_loss(model(share(x)), share(y)).backward()
        change(model)
        optimizer.step()
        optimizer.zero_grad()
    require_equal(model, expected(optimizer=sgd, change=change))
    return norms


def test_gradients_are_clipped_by_their_norm_over_all_ranks() -> None:
    for norms in run(2, clips):
        assert norms[:STEPS] == pytest.approx(norms[STEPS:])
        assert min(norms) > 0.1


class Recomputed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = checkpoint_wrapper(nn.Sequential(nn.Linear(6, WIDTH), nn.Tanh()))
        self.last = checkpoint_wrapper(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)))

    def forward(self, x: Tensor) -> Any:
        return self.last(self.first(x))


def recomputed() -> nn.Module:
    torch.manual_seed(0)
    return Recomputed().double()


def with_recomputation() -> None:
    model = sharded(recomputed())
    train(model, adam(model))
    require_equal(model, expected(recomputed))


def test_recomputed_activations() -> None:
    run(2, with_recomputation)


def from_the_meta_device() -> None:
    with torch.device("meta"):
        model = network()
    fully_shard(model)
    model.to_empty(device=DEVICE)
    for name, value in network().state_dict().items():
        parameter = model.get_parameter(name)
        assert isinstance(parameter, DTensor)
        with torch.no_grad():
            parameter.copy_(
                distribute_tensor(value.to(DEVICE), parameter.device_mesh, parameter.placements)
            )
    train(model, adam(model))
    require_equal(model, expected())


def test_a_model_from_the_meta_device() -> None:
    run(2, from_the_meta_device)


def prefetches() -> None:
    model = sharded()
    layers = [model[0], model[2], model[4]]
    for here, ahead in itertools.pairwise(layers):
        here.set_modules_to_forward_prefetch([ahead])
        ahead.set_modules_to_backward_prefetch([here])
    model.set_unshard_in_backward(True)
    train(model, adam(model))
    require_equal(model, expected())


def test_parameters_are_gathered_ahead() -> None:
    run(2, prefetches)


def in_float16_with_scaled_gradients() -> float:
    policy = MixedPrecisionPolicy(param_dtype=torch.float16, output_dtype=torch.float32)
    model = sharded(network(torch.float32), mp_policy=policy)
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**10, growth_interval=STEPS)
    for step in range(STEPS):
        x, y = batch(step, torch.float32)
        scaler.scale(F.mse_loss(model(share(x)), share(y))).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    reference = expected(lambda: network(torch.float32), sgd, dtype=torch.float32)
    require_equal(model, reference, rtol=2e-2, atol=2e-2)
    return float(scaler.get_scale())


def test_scaled_gradients() -> None:
    assert run(2, in_float16_with_scaled_gradients) == [2.0**11] * 2


class Block(nn.Module):
    """A layer that is not a torch container, because dynamo would not compile a container alone."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x)) * 2


def blocks() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Block(6, WIDTH), Block(WIDTH, WIDTH), Block(WIDTH, 4)).double()


def compiled_by_blocks(backend: str) -> int:
    # Compile each block separately, so that the hooks of fully_shard run between graphs.
    counter = CompileCounterWithBackend(backend)
    model = blocks()
    for block in model:
        block.compile(backend=counter)
    sharded(model)
    train(model, adam(model))
    require_equal(model, expected(blocks))
    return counter.frame_count


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_training_of_compiled_blocks(backend: str, tmp_path: Path) -> None:
    group = Group(environment={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    assert min(run(2, compiled_by_blocks, backend, group=group)) >= 3


def compiled_as_a_whole() -> int:
    # fully_shard's hooks break the graph, so dynamo compiles several graphs.
    counter = CompileCounterWithBackend("aot_eager")
    model = sharded(blocks())
    train(torch.compile(model, backend=counter), adam(model))
    require_equal(model, expected(blocks))
    return counter.frame_count


def test_training_of_a_compiled_model() -> None:
    assert min(run(2, compiled_as_a_whole)) >= 3


# ----------------------------------------------------------------- FullyShardedDataParallel (FSDP1)


def by_the_older_class(options: dict[str, Any]) -> None:
    device = torch.device(DEVICE, torch.openreg.current_device())
    model = FullyShardedDataParallel(
        network(),
        device_id=device,
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        **options,
    )
    train(model, adam(model))
    with FullyShardedDataParallel.summon_full_params(model):
        values = {name: value.clone() for name, value in model.state_dict().items()}
    reference = expected().state_dict()
    torch.testing.assert_close(
        {name: value.cpu() for name, value in values.items()}, dict(reference), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize(
    "options",
    [
        {"use_orig_params": True},
        {"use_orig_params": False},
        {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP, "forward_prefetch": True},
        {"sharding_strategy": ShardingStrategy.NO_SHARD},
        {"cpu_offload": CPUOffload(offload_params=True)},
        {"limit_all_gathers": False, "sync_module_states": True},
    ],
    ids=lambda options: "+".join(options),
)
def test_training_by_the_older_class(options: dict[str, Any]) -> None:
    run(2, by_the_older_class, options)


def older_features() -> None:
    model = FullyShardedDataParallel(
        network(torch.float32).to(DEVICE),
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        mixed_precision=MixedPrecision(param_dtype=torch.float16, reduce_dtype=torch.float32),
        use_orig_params=True,
    )
    optimizer = sgd(model)
    scaler = ShardedGradScaler(DEVICE, init_scale=2.0**10)
    for step in range(STEPS):
        x, y = batch(step, torch.float32)
        scaler.scale(F.mse_loss(model(share(x)).float(), share(y))).backward()
        scaler.unscale_(optimizer)
        assert model.clip_grad_norm_(1e6) > 0
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    whole = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, whole):
        values = model.state_dict()
        state = FullyShardedDataParallel.optim_state_dict(model, optimizer)
    assert set(state) == {"state", "param_groups"}
    assert bool(values) == (dist.get_rank() == 0)
    reference = expected(lambda: network(torch.float32), sgd, dtype=torch.float32)
    for name, value in values.items():
        assert value.device.type == "cpu"
        torch.testing.assert_close(value, reference.state_dict()[name], rtol=2e-2, atol=2e-2)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        model.load_state_dict(model.state_dict())


def test_mixed_precision_and_state_of_the_older_class() -> None:
    run(2, older_features)
