# SPDX-License-Identifier: BSD-3-Clause
"""Tests autocast regions as programs use them. For the casts, see autocast_policy_test.py."""

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

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
        pytest.raises(
            RuntimeError,
            match=r"binary_cross_entropy and torch\.nn\.BCELoss are unsafe to autocast\.",
        ),
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
        # The weight is cast only once. Both uses contribute to its gradient.
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


class CountCasts(TorchDispatchMode):
    """Counts the casts that run while the mode is active."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.casts = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.casts += func is torch.ops.aten._to_copy.default
        return func(*args, **(kwargs or {}))


def casts(work: Callable[[], Any]) -> int:
    count = CountCasts()
    with count:
        work()
    return count.casts


def test_a_weight_is_cast_once_in_the_outermost_region() -> None:
    weight, x = ones(2, 2, grad=True), ones(2, 2, dtype=torch.float16)

    def twice(**options: Any) -> Callable[[], Any]:
        def work() -> None:
            with torch.autocast(DEVICE, **options):
                for _ in range(2):
                    torch.mm(x, weight)
                    with torch.autocast(DEVICE, **options):
                        torch.mm(x, weight)

        return work

    assert casts(twice()) == 1
    assert casts(twice()) == 1  # cast again in the next region, as the weight may have changed
    assert casts(twice(cache_enabled=False)) == 4
    assert torch.is_autocast_cache_enabled()
    with torch.no_grad():
        weight += 1
        with torch.autocast(DEVICE):
            assert torch.mm(x, weight).tolist() == [[4.0, 4.0], [4.0, 4.0]]


def test_dtype_of_the_regions_that_name_none() -> None:
    x = ones(2, 2)
    torch.set_autocast_dtype(DEVICE, torch.bfloat16)
    try:
        assert torch.get_autocast_dtype(DEVICE) == torch.bfloat16
        with torch.autocast(DEVICE):
            assert torch.mm(x, x).dtype == torch.bfloat16
        with torch.autocast(DEVICE, dtype=torch.float16):
            assert torch.get_autocast_dtype(DEVICE) == torch.float16
        assert torch.get_autocast_dtype(DEVICE) == torch.bfloat16
    finally:
        torch.set_autocast_dtype(DEVICE, torch.float16)


# ------------------------------------------------------------------- functions in torch.openreg.amp


def test_module_of_the_device() -> None:
    assert torch.openreg.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
    assert torch.openreg.amp.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
    assert torch.openreg.is_bf16_supported()
    assert torch.openreg.is_float16_supported()


def test_module_is_found_by_import() -> None:
    import torch.openreg.amp  # type: ignore[import-not-found]
    from torch.openreg.amp import GradScaler, autocast

    assert torch.openreg.amp is sys.modules["torch_openreg.openreg.amp"]
    assert issubclass(autocast, torch.autocast)
    assert issubclass(GradScaler, torch.amp.GradScaler)


def test_its_names_are_those_of_cuda() -> None:
    assert set(torch.cuda.amp.__all__) <= set(torch.openreg.amp.__all__)


def test_its_region_is_the_device_s() -> None:
    x = ones(2, 2)
    with torch.openreg.amp.autocast():
        assert torch.mm(x, x).dtype == torch.float16
        with torch.openreg.amp.autocast(enabled=False):
            assert torch.mm(x, x).dtype == torch.float32
    with torch.openreg.amp.autocast(dtype=torch.bfloat16, cache_enabled=False):
        assert torch.mm(x, x).dtype == torch.bfloat16
        assert not torch.is_autocast_cache_enabled()

    @torch.openreg.amp.autocast()  # type: ignore[untyped-decorator]
    def product(x: Tensor) -> Tensor:
        return x @ x

    assert product(x).dtype == torch.float16
    assert torch.mm(x, x).dtype == torch.float32


def test_its_scaler_is_the_device_s() -> None:
    weight = ones(2, grad=True)
    scaler = torch.openreg.amp.GradScaler(init_scale=8.0, growth_interval=1)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    torch.autograd.backward(scaler.scale(weight.sum()))
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0.0, 0.0]
    assert scaler.get_scale() == 16.0
    assert not torch.openreg.amp.GradScaler(enabled=False).is_enabled()


def test_its_decorators_know_the_device() -> None:
    class Lower(torch.autograd.Function):
        @staticmethod
        @torch.openreg.amp.custom_fwd(cast_inputs=torch.bfloat16)  # type: ignore[untyped-decorator]
        def forward(ctx: Any, x: Tensor) -> Tensor:
            assert not torch.is_autocast_enabled(DEVICE)
            return x * 2

        @staticmethod
        @torch.openreg.amp.custom_bwd  # type: ignore[untyped-decorator]
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            assert not torch.is_autocast_enabled(DEVICE)
            return grad * 2

    x = ones(2, grad=True)
    with torch.autocast(DEVICE):
        y = Lower.apply(x)  # type: ignore[no-untyped-call]
        torch.autograd.backward(y.sum())
    assert y.dtype == torch.bfloat16
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0]


# -------------------------------------------------- autocast with threads, graphs and torch.compile


def test_region_is_of_its_thread() -> None:
    x = ones(2, 2)
    found: list[torch.dtype] = []

    def work() -> None:
        found.append(torch.mm(x, x).dtype)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            found.append(torch.mm(x, x).dtype)
            inside.set()
            outside.wait()
            found.append(torch.mm(x, x).dtype)

    inside, outside = threading.Event(), threading.Event()
    thread = threading.Thread(target=work)
    with torch.autocast(DEVICE):
        thread.start()
        inside.wait()
        assert torch.mm(x, x).dtype == torch.float16
    assert torch.mm(x, x).dtype == torch.float32
    outside.set()
    thread.join()
    assert found == [torch.float32, torch.bfloat16, torch.bfloat16]


class Product(torch.autograd.Function):
    """Records in backward: whether autocast is enabled, the thread, and the dtype of a product."""

    seen: tuple[bool, int, torch.dtype]

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        enabled = torch.is_autocast_enabled(DEVICE)
        Product.seen = enabled, threading.get_ident(), torch.mm(grad, grad).dtype
        return grad


def test_backward_runs_in_the_region_of_its_caller() -> None:
    x = ones(2, 2, grad=True)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        inside = Product.apply(x).sum()  # type: ignore[no-untyped-call]
        outside = Product.apply(x).sum()  # type: ignore[no-untyped-call]
        torch.autograd.backward(inside)
        enabled, thread, dtype = Product.seen
        assert (enabled, dtype) == (True, torch.bfloat16)
        assert thread != threading.get_ident()  # backward runs on the device's autograd thread
    torch.autograd.backward(outside)
    assert Product.seen == (False, thread, torch.float32)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_computes_again_in_the_region(use_reentrant: bool) -> None:
    seen: list[tuple[bool, torch.dtype]] = []

    def block(x: Tensor) -> Tensor:
        # Record the state before the product: torch stops the recomputation once it has all saved
        # tensors.
        seen.append((torch.is_autocast_enabled(DEVICE), torch.get_autocast_dtype(DEVICE)))
        return torch.mm(x, weight)

    weight, x = ones(2, 2, grad=True), ones(2, 2, grad=True)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        y = checkpoint(block, x, use_reentrant=use_reentrant)
    torch.autograd.backward(y.sum())
    assert y.dtype == torch.bfloat16
    assert seen == [(True, torch.bfloat16)] * 2
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    assert weight.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_graph_casts_at_each_replay() -> None:
    weight, x = ones(2, 2, grad=True), ones(2, 2)

    def work() -> Tensor:
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            return torch.mm(torch.mm(x, weight), weight)

    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        y = work()
    assert y.dtype == torch.bfloat16
    for factor in (1, 3):
        with torch.no_grad():
            weight.fill_(factor)
        graph.replay()
        assert torch.equal(y, work())
        assert y.tolist() == [[4.0 * factor**2] * 2] * 2


def test_graph_of_a_whole_step() -> None:
    weight, x = ones(2, 2, grad=True), ones(1, 2)
    optimizer = torch.optim.Adam([weight], lr=0.5, fused=True, capturable=True)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=8.0, growth_interval=2)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(DEVICE):
            loss = F.linear(x, weight).sum()
        torch.autograd.backward(scaler.scale(loss))
        scaler.step(optimizer)
        scaler.update()

    side = torch.openreg.Stream()
    side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        step()
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        step()
    # The capture records the step without running it, so the weight has not changed.
    torch.testing.assert_close(weight.detach(), torch.full_like(weight, 0.5))
    graph.replay()
    torch.testing.assert_close(weight.detach(), torch.zeros_like(weight))
    assert scaler.get_scale() == 16.0
    x.fill_(float("inf"))
    graph.replay()
    torch.testing.assert_close(weight.detach(), torch.zeros_like(weight))
    assert scaler.get_scale() == 8.0


def test_graphed_callables_reject_the_cache() -> None:
    layer, x = torch.nn.Linear(2, 2, device=DEVICE), ones(1, 2, grad=True)
    with (
        torch.autocast(DEVICE),
        pytest.raises(RuntimeError, match="cache_enabled=False"),
    ):
        torch.openreg.make_graphed_callables(layer, (x,))
    with torch.autocast(DEVICE, cache_enabled=False):
        graphed = torch.openreg.make_graphed_callables(layer, (x,))
        assert graphed(x).dtype == torch.float16


@pytest.mark.parametrize("region", [torch.autocast, torch.openreg.amp.autocast])
def test_compiled_function_with_a_region(region: Any) -> None:
    make = region if region is not torch.autocast else lambda **options: region(DEVICE, **options)

    def function(x: Tensor, weight: Tensor) -> Tensor:
        with make(dtype=torch.bfloat16):
            y = torch.mm(x, weight)
            z = torch.exp(y)
        return z + torch.mm(x, weight)

    torch.manual_seed(0)
    x, weight = torch.randn(4, 4).to(DEVICE), torch.randn(4, 4).to(DEVICE).requires_grad_()
    expected = function(x, weight)
    (gradient,) = torch.autograd.grad(expected.sum(), weight)
    compiled = torch.compile(function, backend="openreg", fullgraph=True)
    found = compiled(x, weight)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), weight)[0], gradient)
    torch._dynamo.reset()


# -------------------------------------------------------------------------------- invalid arguments


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("openregg",), RuntimeError, "at start of device string: openregg"),
        ((torch.device(DEVICE),), ValueError, "Expected `device_type` of type `str`"),
        ((DEVICE, "bfloat16"), TypeError, "must be torch.dtype, not str"),
    ],
)
@pytest.mark.filterwarnings("ignore:In openreg autocast")
def test_wrong_region_is_refused(
    arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    x = ones(2, 2)
    with pytest.raises(error, match=message), torch.autocast(*arguments):
        pass
    assert not torch.is_autocast_enabled(DEVICE)
    assert torch.mm(x, x).dtype == torch.float32
    with torch.autocast(DEVICE):
        assert torch.mm(x, x).dtype == torch.float16


def test_region_by_the_name_of_a_device() -> None:
    x = ones(2, 2)
    with torch.autocast(f"{DEVICE}:1"):  # a region applies to all devices of the type
        assert torch.mm(x, x).dtype == torch.float16


def test_type_of_another_region_is_an_error() -> None:
    lower = ones(2, dtype=torch.bfloat16)
    with torch.autocast(DEVICE), pytest.raises(RuntimeError, match="Unexpected floating"):
        torch.addcmul(lower, lower, lower)
    assert torch.addcmul(lower, lower, lower).tolist() == [2.0, 2.0]


def test_error_in_a_region_ends_it() -> None:
    x = ones(2, 2)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), torch.autocast(DEVICE):
        torch.mm(x, ones(3, 3))
    assert not torch.is_autocast_enabled(DEVICE)
    assert torch.mm(x, x).dtype == torch.float32
