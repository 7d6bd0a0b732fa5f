# SPDX-License-Identifier: BSD-3-Clause
"""Tests the ways to add an operator to the device in C++ and Python (docs/custom_operators.md).

``abs`` is registered through torch's DispatchStub, and the operators in ``torch.ops.openreg``
through TORCH_LIBRARY. Three operators are written in Python.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.library import opcheck
from torch.nn.attention.flex_attention import flex_attention

from tests.differential import check, check_error, is_queued

DEVICE = "openreg"
LATE = 200_000_000  # ns: long enough for the host to run ahead of the stream

ops = torch.ops.openreg
HALVING = {
    "custom_autograd_fn_returns_self": ops.custom_autograd_fn_returns_self,
    "custom_autograd_fn_aliasing": ops.custom_autograd_fn_aliasing,
}
CUSTOM = {"custom_abs": ops.custom_abs, **HALVING}

# opcheck's tests that support all devices. The remaining one, for gradient registrations, raises
# "NYI" for devices outside torch.
NOT_OF_DEVICES = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.complex64,
    torch.complex128,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
]
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1) if x.dim() > 0 else x,
    "sliced": lambda x: x[..., ::2] if x.dim() > 0 else x,
    "expanded": lambda x: x.expand(2, *x.shape),
}


def leaf(*sizes: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(sizes, dtype=dtype, device=DEVICE, requires_grad=True)


def custom_abs(x: Tensor) -> Tensor:
    """Calls the operator on the device, and torch.abs, the reference, on the CPU."""
    result: Tensor = ops.custom_abs(x) if x.device.type == DEVICE else torch.abs(x)
    return result


def numbers(sizes: list[int], dtype: torch.dtype) -> Tensor:
    return (torch.randn(sizes, dtype=dtype if dtype.is_complex else torch.float64) * 20).to(dtype)


@pytest.mark.parametrize("function", [torch.abs, custom_abs])
@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 4), max_size=4),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(sorted(LAYOUTS)),
)
def test_abs_is_that_of_the_cpu(
    function: Callable[[Tensor], Tensor], sizes: list[int], dtype: torch.dtype, layout: str
) -> None:
    x = LAYOUTS[layout](numbers(sizes, dtype)).detach()
    x.requires_grad_(dtype.is_floating_point or dtype.is_complex)
    check(function, x)


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 4), max_size=3),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(sorted(LAYOUTS)),
    out_layout=st.sampled_from(["empty", "contiguous", "transposed"]),
)
def test_abs_into_a_given_tensor(
    sizes: list[int], dtype: torch.dtype, layout: str, out_layout: str
) -> None:
    x = LAYOUTS[layout](numbers(sizes, dtype))
    real = torch.abs(x).dtype
    out = torch.empty(0, dtype=real)
    if out_layout != "empty":
        out = LAYOUTS[out_layout](torch.zeros(x.shape[::-1], dtype=real))
        out = out if out.shape == x.shape else torch.zeros(x.shape, dtype=real)
    check(lambda x, out: torch.abs(x, out=out), x, out)


def test_abs_in_place() -> None:
    check(lambda x: x.abs_(), numbers([3, 4], torch.float32))
    check(lambda x: x.t()[1:].abs_(), numbers([3, 4], torch.int64))
    check(lambda x: (x * 1).abs_(), numbers([3], torch.float64).requires_grad_())
    check_error(lambda x: x.abs_(), numbers([3], torch.complex64))


def test_abs_of_conjugates_and_large_tensors() -> None:
    x = numbers([3, 4], torch.complex64)
    check(lambda x: x.conj().abs(), x)
    check(lambda x: x.conj().imag.abs(), x)
    check(torch.abs, numbers([400, 500], torch.float32))  # large enough to use all threads


def test_abs_into_another_dtype() -> None:
    x = numbers([2, 3], torch.complex64)
    for dtype in (torch.float64, torch.complex64):
        check(lambda x, out: torch.abs(x, out=out), x, torch.zeros(2, 3, dtype=dtype))
    check_error(lambda x, out: torch.abs(x, out=out), x, torch.zeros(2, 3, dtype=torch.int64))
    check_error(lambda x, out: torch.abs(x, out=out), x.real, torch.zeros(2, 3).double())


def test_errors_of_abs_are_those_of_the_cpu_at_the_call() -> None:
    x = numbers([4], torch.float32)
    check_error(torch.abs, x.to(torch.uint16))
    check_error(lambda x: torch.abs(x[1:], out=x[:-1]), x)
    check_error(lambda x: x[:1].expand(3).abs_(), x)


def test_abs_has_a_forward_derivative() -> None:
    for dtype in (torch.float32, torch.complex64):
        x, tangent = numbers([3, 4], dtype), numbers([3, 4], dtype)
        check(lambda x, tangent: torch.func.jvp(torch.abs, (x,), (tangent,)), x, tangent)
    assert gradcheck(torch.abs, leaf(3), check_forward_ad=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64])
@pytest.mark.parametrize("function", [torch.abs, custom_abs])
def test_abs_does_not_wait(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    assert is_queued(function, numbers([3, 4], dtype))


def test_abs_is_not_the_fallback() -> None:
    torch.openreg.fallback.reset()
    for dtype in (torch.float32, torch.complex64):
        x = leaf(3, dtype=dtype).detach()
        x.abs()
        ops.custom_abs(x)
    assert torch.openreg.fallback.stats() == {}


def test_tensors_of_several_devices_are_refused() -> None:
    x = torch.randn(3, device=DEVICE)
    for other in ("cpu", "openreg:1"):
        with pytest.raises(RuntimeError, match="same device"):
            torch.abs(x, out=torch.empty(3, device=other))
    with pytest.raises(NotImplementedError, match=r"custom_abs.*'CPU' backend"):
        ops.custom_abs(torch.randn(3))


@pytest.mark.parametrize("name", CUSTOM)
def test_another_device_than_the_current_one(name: str) -> None:
    x = torch.ones(3, device="openreg:1", requires_grad=True)
    y = CUSTOM[name](x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.device == gradient.device == x.device
    assert y.tolist() == [1.0] * 3


def test_gradients_of_custom_abs() -> None:
    for dtype in (torch.float64, torch.complex128):
        x = leaf(5, dtype=dtype)
        assert gradcheck(ops.custom_abs, x)
        assert gradgradcheck(ops.custom_abs, x)


def test_backward_of_custom_abs_does_not_wait() -> None:
    x = leaf(3)
    ops.custom_abs(x)
    torch.openreg.synchronize()
    torch.openreg._sleep(LATE)
    (gradient,) = torch.autograd.grad(ops.custom_abs(x).sum(), x)
    assert not torch.openreg.current_stream().query()
    assert torch.equal(gradient, x.detach().sgn())


@pytest.mark.parametrize("device", [DEVICE, "cpu"])
@pytest.mark.parametrize("name", HALVING)
class TestHalvedGradients:
    """Tests functions that halve the gradient and whose result shares memory with the input."""

    def test_forward_and_backward(self, name: str, device: str) -> None:
        x = torch.randn(3, 4, device=device, requires_grad=True)
        y = HALVING[name](x)
        assert torch.equal(y, x)
        assert y.data_ptr() == x.data_ptr()
        (gradient,) = torch.autograd.grad((2 * y).sum(), x)
        assert torch.equal(gradient, torch.ones_like(x))
        (both,) = torch.autograd.grad(HALVING[name](HALVING[name](x)).sum() + x.sum(), x)
        assert torch.equal(both, torch.full_like(x, 1.25))

    def test_second_derivative(self, name: str, device: str) -> None:
        x = torch.randn(3, device=device, requires_grad=True)
        (first,) = torch.autograd.grad(HALVING[name](x).pow(3).sum(), x, create_graph=True)
        torch.testing.assert_close(first, 1.5 * x.square())
        (second,) = torch.autograd.grad(first.sum(), x)
        torch.testing.assert_close(second, 1.5 * x)  # the gradient 3x, halved again

    def test_the_result_is_a_view(self, name: str, device: str) -> None:
        x = torch.randn(3, device=device, requires_grad=True)
        y = HALVING[name](x)
        assert y is not x
        assert y._is_view()
        assert y._base is x
        assert x.grad_fn is None

    def test_in_place_with_gradients_is_refused(self, name: str, device: str) -> None:
        x = torch.randn(3, device=device, requires_grad=True)
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            HALVING[name](x * 1).mul_(2)
        base = x * 1
        y = HALVING[name](base)
        base.mul_(2)
        with pytest.raises(RuntimeError, match=r"its base .* has been modified inplace"):
            y.sum()
        (gradient,) = torch.autograd.grad(base.sum(), x)
        assert torch.equal(gradient, torch.full_like(x, 2))

    def test_in_place_without_gradients_is_seen_by_both(self, name: str, device: str) -> None:
        x = torch.ones(3, device=device, requires_grad=True)
        with torch.no_grad():
            y = HALVING[name](x)
            y.mul_(3)
            assert x.tolist() == y.tolist() == [3.0] * 3
        assert x._version == y._version == 1
        with torch.inference_mode():
            z = torch.ones(3, device=device)
            HALVING[name](z).add_(1)
        assert z.tolist() == [2.0] * 3

    def test_opcheck(self, name: str, device: str) -> None:
        x = torch.randn(3, device=device, requires_grad=True)
        tests = NOT_OF_DEVICES if device == DEVICE else torch.library._OPCHECK_DEFAULT_UTILS
        opcheck(getattr(ops, name).default, (x,), test_utils=tests)


def test_opcheck_of_custom_abs() -> None:
    for shape in ((), (0,), (3, 4)):
        x = torch.randn(shape, device=DEVICE)
        opcheck(ops.custom_abs.default, (x,))
        opcheck(ops.custom_abs.default, (x.requires_grad_(),), test_utils=NOT_OF_DEVICES)
        opcheck(ops.custom_abs.default, (x.detach().to(torch.complex64),))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64])
def test_shapes_without_memory(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](numbers([2, 3, 4], dtype).to(DEVICE))
    real = ops.custom_abs(x)
    with FakeTensorMode() as mode:
        fake = ops.custom_abs(mode.from_tensor(x))
    meta = ops.custom_abs(torch.empty_strided(x.shape, x.stride(), dtype=dtype, device="meta"))
    assert fake.device == real.device
    assert meta.device.type == "meta"
    for result in (fake, meta):
        assert result.dtype == real.dtype
        assert result.shape == real.shape
        assert result.stride() == real.stride()


@pytest.mark.parametrize("name", CUSTOM)
def test_gradients_without_memory(name: str) -> None:
    x = torch.empty(2, 3, device="meta", requires_grad=True)
    (gradient,) = torch.autograd.grad(CUSTOM[name](x).sum(), x)
    assert gradient.shape == x.shape


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "openreg"])
@pytest.mark.parametrize("name", CUSTOM)
def test_compiled(name: str, backend: str) -> None:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    operator = CUSTOM[name]

    def function(x: Tensor) -> Tensor:
        z = x * 3
        y: Tensor = operator(z) + z
        if not torch.is_grad_enabled():
            z.add_(1)
        return y + z

    compiled = torch.compile(function, backend=counter, fullgraph=True)
    x = leaf(3, 4)
    gradients = [torch.autograd.grad(f(x).sum(), x)[0] for f in (compiled, function)]
    torch.testing.assert_close(*gradients)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), function(x))
    assert counter.frame_count == 2
    assert any(node.target is operator for node in counter.graphs[0].graph.nodes)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CUSTOM)
def test_the_operator_itself_compiled(name: str, backend: str) -> None:
    torch._dynamo.reset()
    x = leaf(4)
    expected = CUSTOM[name](x)
    y = torch.compile(CUSTOM[name], backend=backend)(x)
    assert torch.equal(y, expected)
    assert y._is_view() == expected._is_view()
    gradients = [torch.autograd.grad(result.sum(), x)[0] for result in (y, expected)]
    assert torch.equal(*gradients)


def test_autocast_of_custom_abs() -> None:
    x = leaf(3, dtype=torch.float16)
    with torch.autocast(DEVICE):
        y = ops.custom_abs(x)
        assert ops.custom_abs(x.detach().double()).dtype == torch.float64
        assert ops.custom_abs(x.detach().int()).dtype == torch.int32
        with torch.autocast(DEVICE, enabled=False):
            assert ops.custom_abs(x).dtype == torch.float16
        for halve in HALVING.values():
            assert halve(x).dtype == torch.float16
    assert y.dtype == torch.float32
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.dtype == torch.float16
    assert torch.equal(gradient, x.detach().sgn())
    assert ops.custom_abs(x).dtype == torch.float16


def test_limits_of_functions_of_cpp() -> None:
    x = leaf(3).detach()
    with pytest.raises(RuntimeError, match="functorch transforms"):
        torch.func.grad(lambda x: ops.custom_abs(x).sum())(x)
    with (
        forward_ad.dual_level(),
        pytest.raises(RuntimeError, match=r"jvp is not implemented for the c\+\+ API"),
    ):
        ops.custom_abs(forward_ad.make_dual(x, x))


# ---------------------------------------------------------------------- operators written in Python


@torch.library.custom_op("openreg_test::soft_abs", mutates_args=(), device_types=DEVICE)
def soft_abs(x: Tensor, softness: float) -> Tensor:
    """Computes sqrt(x * x + softness) for real x."""
    return (x * x + softness).sqrt()


@soft_abs.register_fake
def _(x: Tensor, softness: float) -> Tensor:
    return torch.empty_like(x)


def _save(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], output)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    x, y = ctx.saved_tensors
    return gradient * x / y, None


soft_abs.register_autograd(_backward, setup_context=_save)
soft_abs.register_autocast(DEVICE, torch.float32)


@soft_abs.register_vmap
def _(info: Any, in_dims: tuple[int, None], x: Tensor, softness: float) -> tuple[Tensor, int]:
    return soft_abs(x, softness), in_dims[0]


class TestCustomOp:
    def test_forward_and_gradients(self) -> None:
        x = leaf(3, 4)
        torch.testing.assert_close(soft_abs(x, 0.5), (x.square() + 0.5).sqrt())
        assert gradcheck(lambda x: soft_abs(x, 0.5), x)
        assert gradgradcheck(lambda x: soft_abs(x, 0.5), x)

    def test_does_not_wait(self) -> None:
        x = leaf(3)
        soft_abs(x, 0.5)
        torch.openreg._sleep(LATE)
        torch.autograd.backward(soft_abs(x, 0.5).sum())
        assert not torch.openreg.current_stream().query()

    def test_transforms(self) -> None:
        x = leaf(3, 4).detach()
        y = torch.vmap(lambda x: soft_abs(x, 0.5), in_dims=1)(x)
        torch.testing.assert_close(y, soft_abs(x, 0.5).t())
        with torch.autocast(DEVICE):
            assert soft_abs(x.half(), 0.5).dtype == torch.float32

    def test_compiled(self) -> None:
        x = leaf(3)
        compiled = torch.compile(soft_abs, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, 0.5), soft_abs(x, 0.5))
        (gradient,) = torch.autograd.grad(compiled(x, 0.5).sum(), x)
        torch.testing.assert_close(gradient, (x / soft_abs(x, 0.5)).detach())

    def test_opcheck(self) -> None:
        x = leaf(3, 4)
        opcheck(soft_abs, (x.detach(), 0.5))
        opcheck(soft_abs, (x, 0.5), test_utils=NOT_OF_DEVICES)

    def test_other_devices_are_refused(self) -> None:
        with pytest.raises(NotImplementedError, match="'CPU' backend"):
            soft_abs(torch.ones(2), 0.5)


class SoftAbs(torch.autograd.Function):
    """Computes soft_abs without an operator. Defines gradients, forward derivatives and vmap."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return (x * x + 0.5).sqrt()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)
        ctx.save_for_forward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        result: Tensor = gradient * x / y
        return result

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        result: Tensor = tangent * x / y
        return result


class TestFunction:
    @staticmethod
    def apply(x: Tensor) -> Tensor:
        result: Tensor = SoftAbs.apply(x)  # type: ignore[no-untyped-call]
        return result

    def test_gradients(self) -> None:
        x = leaf(3, 4)
        assert gradcheck(self.apply, x, check_forward_ad=True)
        assert gradgradcheck(self.apply, x)

    def test_is_that_of_the_cpu(self) -> None:
        check(self.apply, torch.randn(3, 4, requires_grad=True))
        assert is_queued(self.apply, torch.randn(3, 4))

    def test_transforms(self) -> None:
        x = torch.randn(3, 4)
        check(lambda x: torch.vmap(torch.func.grad(lambda row: self.apply(row).sum()))(x), x)

    def test_compiled_with_a_break(self) -> None:
        x = leaf(3)
        compiled = torch.compile(self.apply, backend="aot_eager")
        gradients = [torch.autograd.grad(f(x).sum(), x)[0] for f in (compiled, self.apply)]
        torch.testing.assert_close(*gradients)
        with pytest.raises(torch._dynamo.exc.Unsupported, match="custom jvp"):
            torch.compile(self.apply, backend="eager", fullgraph=True)(x)


def test_library_of_python() -> None:
    """Like C++ code, torch.library.Library can extend an existing namespace."""
    library = torch.library.Library("openreg", "FRAGMENT")
    try:
        library.define("test_twice(Tensor x) -> Tensor")
        library.impl("test_twice", lambda x: x + x, "PrivateUse1")
        library.impl("test_twice", torch.empty_like, "Meta")
        x = torch.ones(3, device=DEVICE)
        assert ops.test_twice(x).tolist() == [2.0] * 3
        assert ops.test_twice(x.to("meta")).shape == x.shape
        opcheck(ops.test_twice.default, (x,))
    finally:
        library._destroy()


def test_flex_attention_takes_the_devices_of_a_list_in_torch() -> None:
    x = torch.randn(1, 1, 4, 8, device=DEVICE)
    with pytest.raises(ValueError, match="Found input tensors on openreg device"):
        flex_attention(x, x, x)
