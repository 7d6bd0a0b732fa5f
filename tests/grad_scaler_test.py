# SPDX-License-Identifier: BSD-3-Clause
"""Tests torch.amp.GradScaler on the device: steps, state, and implicit waits."""

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.devices import needs_two_devices

DEVICE = "openreg"
INF = float("inf")

Optimizers = Callable[[list[Tensor]], torch.optim.Optimizer]

# An optimizer for each of torch's implementations of a step. Fused optimizers pass the scale and
# the infinity flag to the kernel. They can therefore run without a wait.
WAYS: dict[str, Optimizers] = {
    "sgd loop": lambda p: torch.optim.SGD(p, lr=0.5, foreach=False),
    "sgd foreach": lambda p: torch.optim.SGD(p, lr=0.5, foreach=True),
    "sgd fused": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9, fused=True),
    "adam loop": lambda p: torch.optim.Adam(p, lr=0.1, foreach=False),
    "adam foreach": lambda p: torch.optim.Adam(p, lr=0.1, foreach=True),
    "adam fused": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    "adagrad fused": lambda p: torch.optim.Adagrad(p, lr=0.1, fused=True),
}
WAITING = sorted(way for way in WAYS if "fused" not in way)
FUSED = sorted(way for way in WAYS if "fused" in way)


def ones(*shape: int, device: str = DEVICE, grad: bool = False) -> Tensor:
    return torch.ones(*shape, device=device, requires_grad=grad)


def new_scaler(**options: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler(DEVICE, **{"init_scale": 256.0, **options})


def backward(scaler: torch.amp.GradScaler, weight: Tensor, factor: float = 1.0) -> None:
    """Computes scaled gradients. Each element of an unscaled gradient is `factor`."""
    with torch.autocast(DEVICE):
        loss = (F.linear(ones(1, weight.shape[-1]), weight) * factor).sum()
    torch.autograd.backward(scaler.scale(loss))


def step(
    scaler: torch.amp.GradScaler,
    weight: Tensor,
    optimizer: torch.optim.Optimizer | None = None,
    factor: float = 1.0,
) -> None:
    optimizer = optimizer or torch.optim.SGD([weight], lr=0.5)
    optimizer.zero_grad()
    backward(scaler, weight, factor)
    scaler.step(optimizer)
    scaler.update()


def waits(work: Callable[[], Any]) -> list[str]:
    """Waits for earlier work, then returns the operators in which `work` makes the host wait."""
    torch.openreg.synchronize()
    torch.openreg.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            work()
    finally:
        torch.openreg.set_sync_debug_mode("default")
    return [str(warning.message).split(" ")[1] for warning in caught]


@pytest.mark.parametrize("way", WAYS)
def test_scaled_step_is_the_step(way: str) -> None:
    weights = [ones(2, 2, device=device, grad=True) for device in (DEVICE, "cpu")]
    optimizers = [WAYS[way]([weight]) for weight in weights]
    scaler = new_scaler()
    for factor in (1.0, 2.0, 3.0):
        step(scaler, weights[0], optimizers[0], factor)
        optimizers[1].zero_grad()
        torch.autograd.backward(weights[1].sum() * factor)
        optimizers[1].step()
    assert scaler.get_scale() == 256.0
    torch.testing.assert_close(weights[0].detach().cpu(), weights[1].detach())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("factor", [INF, float("nan")])
def test_step_with_an_infinity_changes_nothing_but_the_scale(way: str, factor: float) -> None:
    weight = ones(2, 2, grad=True)
    optimizer, scaler = WAYS[way]([weight]), new_scaler()
    step(scaler, weight, optimizer)
    before = weight.tolist(), [s.tolist() for s in tensors(optimizer) if s.dim()]
    step(scaler, weight, optimizer, factor)
    assert (weight.tolist(), [s.tolist() for s in tensors(optimizer) if s.dim()]) == before
    assert scaler.get_scale() == 128.0
    step(scaler, weight, optimizer)
    assert weight.tolist() != before[0]
    assert scaler.get_scale() == 128.0


def tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Returns the tensors in an optimizer's state."""
    states = optimizer.state.values()
    return [value for state in states for value in state.values() if isinstance(value, Tensor)]


def test_one_gradient_of_many_is_enough_to_skip() -> None:
    weights = [ones(3, grad=True) for _ in range(4)]
    optimizer, scaler = torch.optim.SGD(weights, lr=1.0), new_scaler()
    for weight in weights:
        torch.autograd.backward(scaler.scale(weight.sum()))
    assert weights[2].grad is not None
    weights[2].grad[1] = INF
    scaler.step(optimizer)
    scaler.update()
    assert [weight.tolist() for weight in weights] == [[1.0] * 3] * 4
    assert scaler.get_scale() == 128.0


def test_scale_grows_after_enough_good_steps() -> None:
    weight = ones(2, 2, grad=True)
    scaler = new_scaler(init_scale=8.0, growth_interval=2, growth_factor=4.0, backoff_factor=0.25)
    # Two good steps in a row quadruple the scale. The third step is good too, but then an infinity
    # resets the count.
    for factor, expected in ((1.0, 8.0), (1.0, 32.0), (1.0, 32.0), (INF, 8.0), (1.0, 8.0)):
        step(scaler, weight, factor=factor)
        assert scaler.get_scale() == expected
    step(scaler, weight)
    assert scaler.get_scale() == 32.0


def test_gradients_that_float16_loses_are_kept() -> None:
    # The gradient is 2**-26, a quarter of the smallest positive float16 value.
    def gradient(scaler: torch.amp.GradScaler) -> float:
        weight = ones(1, grad=True)
        loss = weight.half().float().sum() * 2.0**-26
        torch.autograd.backward(scaler.scale(loss))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scaler.unscale_(optimizer)
        assert weight.grad is not None
        return weight.grad.item()

    assert gradient(new_scaler(init_scale=2.0**16)) == 2.0**-26
    assert gradient(new_scaler(enabled=False)) == 0


def test_clipping_sees_unscaled_gradients() -> None:
    weight = ones(2, 2, grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = new_scaler(init_scale=1024.0)
    torch.autograd.backward(scaler.scale(weight.sum()))
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_([weight], 1.0)
    assert norm.item() == 2.0
    scaler.step(optimizer)
    torch.testing.assert_close(weight.detach(), ones(2, 2) / 2)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.step(optimizer)


@pytest.mark.parametrize("way", ["sgd loop", "sgd fused", "adam foreach", "adam fused"])
def test_only_the_optimizer_with_an_infinity_skips(way: str) -> None:
    weights = [ones(2, 2, grad=True) for _ in range(2)]
    optimizers, scaler = [WAYS[way]([weight]) for weight in weights], new_scaler()
    backward(scaler, weights[0])
    backward(scaler, weights[1], INF)
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    assert weights[0].tolist() != ones(2, 2).tolist()
    assert weights[1].tolist() == ones(2, 2).tolist()
    # Both optimizers share the scale, so a single infinity reduces it.
    assert scaler.get_scale() == 128.0


@needs_two_devices
def test_gradients_on_two_devices() -> None:
    weights = [ones(2, device=f"{DEVICE}:{index}", grad=True) for index in range(2)]
    optimizer, scaler = torch.optim.SGD(weights, lr=0.5), new_scaler()
    for factor, expected, scale in ((1.0, 0.5, 256.0), (INF, 0.5, 128.0)):
        optimizer.zero_grad()
        # The scale is on device 0, and the infinity is on device 1.
        losses = [weights[0].sum(), weights[1].sum() * factor]
        torch.autograd.backward(scaler.scale(losses))
        scaler.step(optimizer)
        scaler.update()
        assert [weight.tolist() for weight in weights] == [[expected] * 2] * 2
        assert scaler.get_scale() == scale


def test_state_is_loaded_from_a_file_into_a_new_scaler() -> None:
    weight = ones(2, 2, grad=True)
    scaler = new_scaler(growth_interval=3)
    for factor in (INF, 1.0, 1.0):
        step(scaler, weight, factor=factor)
    file = io.BytesIO()
    torch.save(scaler.state_dict(), file)
    file.seek(0)
    other = new_scaler(init_scale=2.0)
    other.load_state_dict(torch.load(file))
    assert other.state_dict() == scaler.state_dict()
    assert other.get_scale() == 128.0
    # Three good steps in a row double the scale. The first two are recorded in the file.
    step(other, weight)
    assert other.get_scale() == 256.0


def test_disabled_scaler_only_steps() -> None:
    weight = ones(2, 2, grad=True)
    scaler = torch.amp.GradScaler(DEVICE, enabled=False)
    loss = weight.sum()
    assert scaler.scale(loss) is loss
    assert scaler.get_scale() == 1.0
    assert scaler.state_dict() == {}
    step(scaler, weight)
    assert weight.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    # A disabled scaler does not check gradients.
    step(scaler, weight, factor=INF)
    assert weight.tolist() == [[-INF, -INF], [-INF, -INF]]


# ----------------------------------------------------------------------------------- implicit waits


def counted(way: str, unscale: bool = False) -> list[str]:
    """Returns the waits in an optimizer's second step. The first step creates the state."""
    weights = [ones(2, 2, grad=True) for _ in range(3)]
    optimizer, scaler = WAYS[way](weights), new_scaler()

    def work() -> None:
        optimizer.zero_grad()
        for weight in weights:
            backward(scaler, weight)
        if unscale:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
        scaler.step(optimizer)
        scaler.update()

    work()
    return waits(work)


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("way", WAITING)
def test_a_step_waits_once(way: str, unscale: bool) -> None:
    # On every device, torch reads the infinity flag with item().
    assert counted(way, unscale) == ["aten::_local_scalar_dense"]


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("way", FUSED)
def test_a_fused_step_never_waits(way: str, unscale: bool) -> None:
    assert counted(way, unscale) == []


def test_first_step_does_not_wait_more_often() -> None:
    weight = ones(2, 2, grad=True)
    assert waits(lambda: step(new_scaler(), weight)) == ["aten::_local_scalar_dense"]


@needs_two_devices
def test_a_step_waits_once_for_each_device() -> None:
    weights = [ones(2, device=f"{DEVICE}:{index}", grad=True) for index in range(2)]
    optimizer, scaler = torch.optim.SGD(weights, lr=0.5), new_scaler()

    def work() -> None:
        torch.autograd.backward(scaler.scale([weight.sum() for weight in weights]))
        scaler.step(optimizer)
        scaler.update()

    work()
    assert waits(work) == ["aten::_local_scalar_dense"] * 2


def test_reading_the_scale_waits() -> None:
    scaler, weight = new_scaler(), ones(2, 2, grad=True)
    assert waits(scaler.get_scale) == []  # nothing is scaled yet, so the scale is a Python number
    step(scaler, weight)
    assert waits(scaler.get_scale) == ["aten::_local_scalar_dense"]
    assert waits(scaler.state_dict) == ["aten::_local_scalar_dense"] * 2  # scale and count


# -------------------------------------------------------------------------------- invalid arguments


def test_float16_gradients_are_refused() -> None:
    weight = torch.ones(2, device=DEVICE, dtype=torch.float16, requires_grad=True)
    optimizer, scaler = torch.optim.SGD([weight], lr=1.0), new_scaler(init_scale=2.0)
    torch.autograd.backward(scaler.scale(weight.sum()))
    with pytest.raises(ValueError, match="unscale FP16 gradients"):
        scaler.unscale_(optimizer)


def test_calls_out_of_order_are_refused() -> None:
    weight = ones(2, 2, grad=True)
    optimizer, scaler = torch.optim.SGD([weight], lr=1.0), new_scaler()
    with pytest.raises(AssertionError, match=r"did not use scaler\.scale"):
        scaler.step(optimizer)
    scaler.scale(weight.sum())
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.update()
    backward(scaler, weight)
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def number(value: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(value, dtype=dtype, device=DEVICE)


@pytest.mark.parametrize(
    ("grads", "found_inf", "inv_scale", "error", "message"),
    [
        ([lambda: ones(2).int()], number, number, NotImplementedError, "not implemented for 'Int'"),
        ([lambda: ones(2)], lambda: ones(2), number, RuntimeError, r"found_inf .* sizes \[2\]"),
        ([lambda: ones(2)], number, lambda: number().double(), RuntimeError, "type Double"),
        ([lambda: ones(1).expand(2)], number, number, RuntimeError, "single memory location"),
        ([lambda: ones(2), lambda: torch.ones(2)], number, number, RuntimeError, "same device"),
        ([lambda: ones(2)], lambda: number().cpu(), number, RuntimeError, "same device"),
    ],
)
def test_wrong_gradients_are_refused_at_the_call(
    grads: list[Callable[[], Tensor]],
    found_inf: Callable[[], Tensor],
    inv_scale: Callable[[], Tensor],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        torch._amp_foreach_non_finite_check_and_unscale_(
            [make() for make in grads], found_inf(), inv_scale()
        )
    assert ones(1).item() == 1


def test_wrong_scales_are_refused_at_the_call() -> None:
    count = number(0, torch.int32)
    for arguments, message in (
        ((ones(2), count, number()), r"the scale .* sizes \[2\]"),
        ((number(), number(), number()), "growth_tracker .* type Int, but .* type Float"),
        ((number(), count, number().double()), "found_inf"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch._amp_update_scale_(*arguments, 2.0, 0.5, 1)


def test_no_gradients_change_nothing() -> None:
    found = number(0.0)
    torch._amp_foreach_non_finite_check_and_unscale_([], found, number(0.5))
    assert found.item() == 0
