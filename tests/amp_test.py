# SPDX-License-Identifier: BSD-3-Clause
"""Mixed precision on the device: torch.autocast and torch.amp.GradScaler."""

import warnings

import pytest
import torch
import torch.nn.functional as F

DEVICE = "openreg"


def ones(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype, device=DEVICE, requires_grad=grad)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_each_policy(dtype: torch.dtype) -> None:
    x, lower = ones(4, 4), ones(4, 4, dtype=dtype)
    with torch.autocast(DEVICE, dtype=dtype):
        assert torch.mm(x, x).dtype == dtype
        assert F.linear(x, x).dtype == dtype
        assert F.conv1d(x[None], x[None]).dtype == dtype
        assert torch.exp(lower).dtype == torch.float32
        assert F.layer_norm(lower, (4,)).dtype == torch.float32
        assert F.softmax(lower, -1).dtype == torch.float32
        assert torch.sum(lower, dtype=dtype).dtype == dtype
        assert torch.norm(lower).dtype == torch.float32
        assert torch.addcmul(x, lower, lower).dtype == torch.float32
        assert torch.relu(lower).dtype == dtype
        assert torch.relu(x).dtype == torch.float32
        assert torch.mm(x.double(), x.double()).dtype == torch.float64


def test_float16_is_the_default() -> None:
    assert torch.get_autocast_dtype(DEVICE) == torch.float16
    with torch.autocast(DEVICE):
        assert torch.mm(ones(2, 2), ones(2, 2)).dtype == torch.float16


def test_result_is_that_of_the_lower_precision() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        result = a.to(DEVICE) @ b.to(DEVICE)
    torch.testing.assert_close(result.cpu(), a.bfloat16() @ b.bfloat16(), rtol=2e-2, atol=2e-2)


def test_nested_and_disabled_regions() -> None:
    x = ones(2, 2)
    assert not torch.is_autocast_enabled(DEVICE)
    with torch.autocast(DEVICE):
        assert torch.is_autocast_enabled(DEVICE)
        with torch.autocast(DEVICE, enabled=False):
            assert torch.mm(x, x).dtype == torch.float32
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                assert torch.mm(x, x).dtype == torch.bfloat16
        assert torch.mm(x, x).dtype == torch.float16
    assert torch.mm(x, x).dtype == torch.float32


def test_regions_of_the_cpu_and_of_the_device_are_two() -> None:
    x = torch.ones(2, 2)
    with torch.autocast(DEVICE):
        assert torch.mm(x, x).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.mm(x.to(DEVICE), x.to(DEVICE)).dtype == torch.float32


def test_unsupported_dtype_warns_and_does_nothing() -> None:
    x = ones(2, 2)
    with pytest.warns(UserWarning, match=r"torch\.float16, torch\.bfloat16"):
        region = torch.autocast(DEVICE, dtype=torch.float64)
    with region:
        assert torch.mm(x, x).dtype == torch.float32


def test_binary_cross_entropy_is_refused() -> None:
    x = ones(2)
    with (
        torch.autocast(DEVICE),
        pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"),
    ):
        F.binary_cross_entropy(x, x)
    assert F.binary_cross_entropy(x, x).item() == 0
    with torch.autocast(DEVICE):
        loss = F.binary_cross_entropy_with_logits(x.half(), x.half())
    assert loss.dtype == torch.float32


def test_gradients_have_the_type_of_the_weights() -> None:
    weight, x = ones(3, 3, grad=True), ones(2, 3)
    with torch.autocast(DEVICE):
        y = F.linear(x, weight)
        # The weight is cast once; both uses give gradient.
        z = F.linear(y, weight)
    assert z.dtype == torch.float16
    torch.autograd.backward(z.sum())
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    assert weight.grad.tolist() == [[12.0] * 3] * 3


def test_custom_functions() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(  # type: ignore[untyped-decorator]
            device_type=DEVICE, cast_inputs=torch.float32
        )
        def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @torch.amp.custom_bwd(device_type=DEVICE)  # type: ignore[untyped-decorator]
        def backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            assert not torch.is_autocast_enabled(DEVICE)
            result: torch.Tensor = 2 * x * grad
            return result

    x = ones(2, dtype=torch.float16, grad=True)
    with torch.autocast(DEVICE):
        y = Square.apply(x)  # type: ignore[no-untyped-call]
    assert y.dtype == torch.float32
    torch.autograd.backward(y.sum())
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0]


def test_module_of_the_device() -> None:
    assert torch.openreg.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
    assert torch.openreg.is_bf16_supported()
    assert torch.openreg.is_float16_supported()


class TestGradScaler:
    def step(self, scaler: torch.amp.GradScaler, weight: torch.Tensor, factor: float = 1.0) -> None:
        optimizer = torch.optim.SGD([weight], lr=0.5)
        with torch.autocast(DEVICE):
            loss = (F.linear(ones(1, 2), weight) * factor).sum()
        torch.autograd.backward(scaler.scale(loss))
        scaler.step(optimizer)
        scaler.update()

    def test_scaled_step_is_the_step(self) -> None:
        weight = ones(2, 2, grad=True)
        scaler = torch.amp.GradScaler(DEVICE, init_scale=256.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.step(scaler, weight)
        assert weight.tolist() == [[0.5, 0.5], [0.5, 0.5]]
        assert weight.grad is not None
        assert weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]

    def test_step_with_infinite_gradients_is_skipped_and_the_scale_halved(self) -> None:
        weight = ones(2, 2, grad=True)
        scaler = torch.amp.GradScaler(DEVICE, init_scale=256.0)
        self.step(scaler, weight, factor=float("inf"))
        assert weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]
        assert scaler.get_scale() == 128.0

    def test_scale_grows_after_enough_good_steps(self) -> None:
        weight = ones(2, 2, grad=True)
        scaler = torch.amp.GradScaler(DEVICE, init_scale=8.0, growth_interval=2)
        for expected in (8.0, 16.0):
            weight.grad = None
            self.step(scaler, weight)
            assert scaler.get_scale() == expected

    def test_clipping_sees_unscaled_gradients(self) -> None:
        weight = ones(2, 2, grad=True)
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scaler = torch.amp.GradScaler(DEVICE, init_scale=1024.0)
        torch.autograd.backward(scaler.scale(weight.sum()))
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_([weight], 1.0)
        assert norm.item() == 2.0
        scaler.step(optimizer)
        torch.testing.assert_close(weight.detach(), ones(2, 2) / 2)

    def test_state(self) -> None:
        weight = ones(2, 2, grad=True)
        scaler = torch.amp.GradScaler(DEVICE, init_scale=256.0)
        self.step(scaler, weight, factor=float("inf"))
        other = torch.amp.GradScaler(DEVICE)
        other.load_state_dict(scaler.state_dict())
        assert other.get_scale() == 128.0
