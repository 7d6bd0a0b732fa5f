# SPDX-License-Identifier: BSD-3-Clause
"""DistributedDataParallel: training on several ranks equals training on one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch._dynamo.testing import CompileCounterWithBackend
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import (
    PostLocalSGDOptimizer,
    ZeroRedundancyOptimizer,
    _apply_optimizer_in_backward,
)
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision
from torch.utils.checkpoint import checkpoint

from tests.distributed.ranks import Group, run
from tests.distributed.training import (
    DEVICE,
    STEPS,
    adam,
    batch,
    expected,
    network,
    require_equal,
    share,
    train,
)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def device() -> torch.device:
    return torch.device(DEVICE, torch.openreg.current_device())


def parallel(model: nn.Module | None = None, **options: Any) -> DistributedDataParallel:
    return DistributedDataParallel((model or network()).to(DEVICE), **options)


# ----------------------------------------------------------------------------------------- training


def trains_as_one_process(options: dict[str, Any], with_device: bool) -> None:
    if with_device:
        options = {"device_ids": [device()], "output_device": device(), **options}
    model = parallel(**options)
    train(model, adam(model))
    require_equal(model.module, expected())


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"bucket_cap_mb": 0.001, "broadcast_buffers": False},
    ],
    ids=lambda options: "+".join(options) or "defaults",
)
def test_training_equals_that_of_one_process(size: int, options: dict[str, Any]) -> None:
    run(size, trains_as_one_process, options, False)


def test_device_ids() -> None:
    run(2, trains_as_one_process, {}, True, group=Group("occl", bound=True))


def takes_an_index() -> None:
    index = torch.openreg.current_device()
    model = parallel(device_ids=[index], output_device=index)
    # With device_ids, DDP copies inputs from the CPU to the device.
    assert model(batch(0)[0]).device == torch.device(DEVICE, index)


def test_a_device_may_be_an_index_and_inputs_are_moved_there() -> None:
    run(2, takes_an_index)


def accumulates() -> None:
    model = parallel()
    alone = network().to(DEVICE)
    (x, y), (more_x, more_y) = batch(0), batch(1)
    with model.no_sync():
        F.mse_loss(model(share(x)), share(y)).backward()
    F.mse_loss(alone(share(x)), share(y)).backward()
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)  # the gradient of only this rank's rows
    F.mse_loss(model(share(more_x)), share(more_y)).backward()
    reference = network()
    for inputs, targets in ((x, y), (more_x, more_y)):
        F.mse_loss(reference(inputs), targets).backward()
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        assert ours.grad is not None
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)


def test_no_sync_accumulates_without_communication() -> None:
    run(2, accumulates)


class Branches(nn.Module):
    """A model with two branches. Each call uses only one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.left = network()
        self.right = network()

    def forward(self, x: Tensor, right: bool) -> Any:
        return self.right(x) if right else self.left(x)


def leaves_parameters_out(both: bool) -> list[bool]:
    model = parallel(Branches(), find_unused_parameters=True)
    model(share(batch(0)[0]), both and dist.get_rank() == 1).sum().backward()
    gradients = [
        all(parameter.grad is not None for parameter in branch.parameters())
        for branch in (model.module.left, model.module.right)
    ]
    for parameter in model.parameters():
        if parameter.grad is not None:
            other = parameter.grad.clone()
            dist.broadcast(other, 0)
            torch.testing.assert_close(parameter.grad, other)
    return gradients


@pytest.mark.parametrize("both", [False, True])
def test_a_parameter_has_a_gradient_where_some_rank_used_it(both: bool) -> None:
    assert run(2, leaves_parameters_out, both) == [[True, both]] * 2


def joins() -> int:
    model = parallel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 2 + 3 * dist.get_rank()
    with model.join():
        for step in range(steps):
            x, y = batch(step)
            F.mse_loss(model(share(x)), share(y)).backward()
            optimizer.step()
            optimizer.zero_grad()
    for parameter in model.parameters():
        other = parameter.detach().clone()
        dist.broadcast(other, 0)
        torch.testing.assert_close(parameter.detach(), other)
    return steps


def test_ranks_with_fewer_inputs_shadow_the_others() -> None:
    assert run(2, joins) == [2, 5]


def runs_backward_twice() -> None:
    model = parallel()
    x, y = batch(0)
    loss = F.mse_loss(model(share(x)), share(y))
    loss.backward(retain_graph=True)
    once = [
        parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
    ]
    # Run another forward pass, because the reducer needs one before each backward pass.
    F.mse_loss(model(share(x)), share(y)).backward()
    for parameter, gradient in zip(model.parameters(), once, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * gradient)


def test_gradients_of_several_backward_passes_add_up() -> None:
    run(2, runs_backward_twice)


def trains_on_a_side_stream() -> None:
    side = torch.openreg.Stream()
    side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        model = parallel()
        train(model, adam(model))
    torch.openreg.current_stream().wait_stream(side)
    require_equal(model.module, expected())


def test_training_on_a_side_stream() -> None:
    run(2, trains_on_a_side_stream)


# ------------------------------------------------------------------------------- buffers of modules


def normalized() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)).double()


def broadcasts_buffers() -> None:
    model = parallel(normalized())
    alone = normalized()
    for step in range(2):
        x, _ = batch(step)
        model(share(x))
        alone(x.chunk(2)[0])
    model(share(batch(2)[0]))  # starts with the buffers of rank 0
    alone(batch(2)[0].chunk(2)[dist.get_rank()])
    torch.testing.assert_close(model.module[1].running_mean.cpu(), alone[1].running_mean)
    torch.testing.assert_close(model.module[1].running_var.cpu(), alone[1].running_var)


def test_buffers_are_those_of_the_first_rank() -> None:
    run(2, broadcasts_buffers)


def normalizes_over_all_ranks() -> None:
    model = parallel(nn.SyncBatchNorm.convert_sync_batchnorm(normalized()))
    assert isinstance(model.module[1], nn.SyncBatchNorm)
    train(model, adam(model))
    require_equal(model.module, expected(normalized))


@pytest.mark.parametrize("size", [2, 4])
def test_sync_batch_norm_takes_statistics_of_the_whole_batch(size: int) -> None:
    run(size, normalizes_over_all_ranks)


# ------------------------------------------------------------------------------ communication hooks


def mean_by_futures(group: dist.ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    assert work is not None
    size = dist.get_world_size(group)

    def divide(future: Future[list[Tensor]]) -> Tensor:
        return future.value()[0].div_(size)

    def copy(future: Future[Tensor]) -> Tensor:
        return future.value().clone()

    return work.get_future().then(divide).then(copy)  # type: ignore[no-any-return]


def in_bfloat16(group: Any, bucket: GradBucket) -> Future[Tensor]:
    # If torch has neither NCCL nor XCCL, it rejects a hook named bf16_compress_hook. Therefore wrap
    # it.
    return default_hooks.bf16_compress_hook(group, bucket)


def mean_in_float16(group: Any, bucket: GradBucket) -> Future[Tensor]:
    hook: Any = default_hooks.fp16_compress_wrapper(mean_by_futures)
    reduced: Future[Tensor] = hook(group, bucket)
    return reduced


def uses_a_hook(hook: Callable[..., Any], rank_of_matrices: int | None, tolerance: float) -> None:
    state = None
    if rank_of_matrices is not None:
        state = powerSGD_hook.PowerSGDState(
            None, rank_of_matrices, start_powerSGD_iter=2, min_compression_rate=0.5
        )
    model = parallel() if state is not None else parallel(bucket_cap_mb=0.001)
    model.register_comm_hook(state, hook)
    train(model, sgd(model), steps=4)
    require_equal(model.module, expected(optimizer=sgd, steps=4), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("hook", "rank_of_matrices", "tolerance"),
    [
        (default_hooks.allreduce_hook, None, 1e-7),
        (mean_by_futures, None, 1e-7),
        (default_hooks.fp16_compress_hook, None, 2e-4),
        (mean_in_float16, None, 2e-4),
        (in_bfloat16, None, 2e-3),
        # PowerSGD approximates gradients by matrices of rank 4. batched_powerSGD_hook is not
        # tested: in torch 2.13, one of its assertions about dimensions fails on every device.
        (powerSGD_hook.powerSGD_hook, 4, 1e-2),
    ],
)
def test_gradients_with_a_communication_hook(
    hook: Callable[..., Any], rank_of_matrices: int | None, tolerance: float
) -> None:
    run(2, uses_a_hook, hook, rank_of_matrices, tolerance)


def asks_for_bfloat16() -> None:
    with pytest.raises(TypeError, match="BF16 all reduce communication hook required CUDA"):
        parallel().register_comm_hook(None, default_hooks.bf16_compress_hook)


def test_the_bfloat16_hook_needs_a_build_of_torch_with_nccl() -> None:
    if torch.backends.cuda.is_built() and dist.is_nccl_available():
        run(2, uses_a_hook, default_hooks.bf16_compress_hook, None, 2e-3)
    else:
        run(1, asks_for_bfloat16)


def runs_the_optimizer_in_a_hook() -> None:
    model = parallel(bucket_cap_mb=0.001)
    zero = ZeroRedundancyOptimizer(
        model.parameters(),
        optimizer_class=torch.optim.Adam,
        overlap_with_ddp=True,
        lr=0.01,
    )
    hook = hook_with_zero_step(default_hooks.allreduce_hook, model, zero)
    model.register_comm_hook(None, hook)
    # The first two iterations only build the buckets. They do not train.
    for step in (0, 0, 0, 0, *range(1, STEPS)):
        x, y = batch(step)
        F.mse_loss(model(share(x)), share(y)).backward()
        zero.step()
        model.zero_grad()
    values = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    other = values.clone()
    dist.broadcast(other, 0)
    torch.testing.assert_close(values, other)
    assert not torch.allclose(
        values.cpu(), torch.cat([p.flatten() for p in network().parameters()])
    )


def test_the_optimizer_runs_in_the_communication_hook() -> None:
    run(2, runs_the_optimizer_in_a_hook)


# --------------------------------------------------------------------------- distributed optimizers


def shards_the_optimizer(as_views: bool) -> None:
    model = parallel()
    zero = ZeroRedundancyOptimizer(
        model.parameters(),
        optimizer_class=torch.optim.Adam,
        parameters_as_bucket_view=as_views,
        lr=0.01,
    )
    train(model, zero)
    require_equal(model.module, expected())
    kept = len(zero.optim.state)
    assert 0 < kept < len(list(model.parameters()))
    zero.consolidate_state_dict(to=0)
    if dist.get_rank() == 0:
        assert len(zero.state_dict()["state"]) == len(list(model.parameters()))


@pytest.mark.parametrize("as_views", [False, True])
def test_optimizer_state_is_sharded(as_views: bool) -> None:
    run(2, shards_the_optimizer, as_views)


def averages_models() -> None:
    model = parallel()
    state = PostLocalSGDState(
        None, dist.new_group([dist.get_rank()], use_local_synchronization=True), 1
    )
    model.register_comm_hook(state, post_localSGD_hook)
    averager = PeriodicModelAverager(period=2, warmup_steps=1)
    optimizer = PostLocalSGDOptimizer(sgd(model), averager)
    apart = []
    for step in range(4):
        x, y = batch(step)
        F.mse_loss(model(share(x)), share(y)).backward()
        optimizer.step()
        optimizer.zero_grad()
        one = next(model.parameters()).detach()
        other = one.clone()
        dist.broadcast(other, 0)
        different = torch.tensor([not torch.allclose(one, other)], device=DEVICE)
        dist.all_reduce(different)
        apart.append(different.item())
    assert apart == [False, False, True, False], apart


def test_periodic_model_averaging() -> None:
    run(2, averages_models)


# ----------------------------------------------------------------- combinations with other features


def trains_in_mixed_precision(kind: torch.dtype) -> None:
    model = parallel(network(torch.float32))
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**10, growth_interval=2)
    for step in range(STEPS):
        x, y = batch(step, torch.float32)
        with torch.autocast(DEVICE, kind):
            result = model(share(x))
            assert result.dtype is kind
            loss = F.mse_loss(result, share(y))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert scaler.get_scale() == 2.0**11
    reference = expected(lambda: network(torch.float32), sgd, dtype=torch.float32)
    require_equal(model.module, reference, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_autocast_and_scaled_gradients(kind: torch.dtype) -> None:
    run(2, trains_in_mixed_precision, kind)


def skips_a_step() -> float:
    model = parallel(network(torch.float32))
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=8.0)
    x, y = (share(tensor) for tensor in batch(0, torch.float32))
    if dist.get_rank() == 1:
        y[0, 0] = float("inf")
    scaler.scale(F.mse_loss(model(x), y)).backward()
    scaler.step(optimizer)
    scaler.update()
    require_equal(model.module, network(torch.float32), rtol=0, atol=0)
    return scaler.get_scale()


def test_an_infinity_on_one_rank_skips_the_step_on_all() -> None:
    assert run(2, skips_a_step) == [4.0] * 2


class Large(nn.Module):
    """A model whose gradients fill several buckets of 1 MB, optimize_ddp's minimum size."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [nn.Linear(6, 400), nn.Tanh(), nn.Linear(400, 400), nn.Tanh(), nn.Linear(400, 400)]
        self.layers = nn.Sequential(*layers, nn.Tanh(), nn.Linear(400, 4)).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


def trains_compiled(backend: str, optimize_ddp: bool) -> int:
    torch._dynamo.config.optimize_ddp = optimize_ddp
    counter = CompileCounterWithBackend(backend)
    model = parallel(Large(), bucket_cap_mb=1)
    train(torch.compile(model, backend=counter), sgd(model))
    require_equal(model.module, expected(Large, sgd))
    return counter.frame_count


@pytest.mark.parametrize("optimize_ddp", [False, True])
def test_training_of_a_compiled_model(optimize_ddp: bool) -> None:
    # optimize_ddp makes dynamo split the graph at the ends of buckets.
    graphs = run(2, trains_compiled, "aot_eager", optimize_ddp)
    assert graphs[0] == graphs[1]
    assert graphs[0] > 1 if optimize_ddp else graphs[0] == 1


def test_training_of_a_model_compiled_by_inductor(tmp_path: Path) -> None:
    group = Group(environment={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    run(2, trains_compiled, "inductor", False, group=group)


class Recomputed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = network()

    def forward(self, x: Tensor) -> Tensor:
        first = checkpoint(self.layers[:2], x, use_reentrant=False)
        return self.layers[2:](first)  # type: ignore[no-any-return]


def trains_with_recomputation() -> None:
    model = parallel(Recomputed(), static_graph=True)
    train(model, adam(model))
    require_equal(model.module, expected(Recomputed))


def test_training_with_recomputed_activations() -> None:
    run(2, trains_with_recomputation)


def steps_during_backward() -> None:
    model = network().to(DEVICE)
    _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})
    wrapped = parallel(model, bucket_cap_mb=0.001)
    for step in range(STEPS):
        x, y = batch(step)
        F.mse_loss(wrapped(share(x)), share(y)).backward()
    torch.openreg.synchronize()
    require_equal(model, expected(optimizer=sgd))


def test_the_optimizer_runs_in_the_backward_pass() -> None:
    run(2, steps_during_backward)


def computes_in_bfloat16() -> None:
    precision = _MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = parallel(network(torch.float32), mixed_precision=precision)
    optimizer = sgd(model)
    # Discard the gradients of the first iteration. In that iteration, torch 2.13 reduces an
    # uninitialized buffer, whatever the device type is, because
    # Reducer::set_mixed_precision_param_dtype does not update the views of the buckets.
    model(share(batch(0, torch.float32)[0])).sum().backward()
    optimizer.zero_grad()
    for step in range(STEPS):
        x, y = batch(step, torch.float32)
        result = model(share(x))
        assert result.dtype is torch.bfloat16
        F.mse_loss(result.float(), share(y)).backward()
        optimizer.step()
        optimizer.zero_grad()
    reference = expected(lambda: network(torch.float32), sgd, dtype=torch.float32)
    require_equal(model.module, reference, rtol=2e-2, atol=2e-2)


def test_parameters_in_mixed_precision() -> None:
    run(2, computes_in_bfloat16)


# ----------------------------------------------------------------------------------- debugging aids


def measures() -> dict[str, Any]:
    model = parallel(bucket_cap_mb=0.001)
    model.reducer._set_ddp_runtime_logging_sample_rate(1)
    train(model, sgd(model))
    return dict(model._get_ddp_logging_data())


def test_the_reducer_reports_times() -> None:
    for data in run(2, measures):
        assert data["backend_name"] == "custom"  # the name of every out-of-tree backend
        assert data["module_name"] == "Sequential"
        assert data["world_size"] == 2
        assert data["avg_forward_compute_time"] > 0
        assert data["avg_backward_compute_time"] > 0
        assert data["avg_backward_comm_time"] > 0
        assert data["backward_compute_time_end"] > data["backward_compute_time_start"]


DETAIL = Group("occl", environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})


def differs() -> str:
    tensor = torch.zeros(2 + dist.get_rank(), device=DEVICE)
    with pytest.raises(RuntimeError) as found:
        dist.all_reduce(tensor)
    return str(found.value)


def test_detail_mode_trains_and_reports_mismatched_ranks() -> None:
    run(2, trains_as_one_process, {}, False, group=DETAIL)
    for rank, text in enumerate(run(2, differs, group=DETAIL)):
        assert "Detected mismatch between collectives on ranks" in text
        assert f"Rank {rank} is running collective" in text


def diverges() -> str:
    model = nn.Linear(2, 3, bias=dist.get_rank() == 0)
    with pytest.raises(RuntimeError) as found:
        parallel(model)
    return str(found.value)


def test_models_of_ranks_must_be_equal() -> None:
    for text in run(2, diverges):
        assert "DDP expects same model across all ranks" in text
