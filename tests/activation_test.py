# SPDX-License-Identifier: BSD-3-Clause
"""Tests hand-written kernels (aten/*.cc): activations, pooling, variance, distances and losses."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.differential import check, check_error, is_queued

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "relu6": functional.relu6,
    "hardtanh": lambda x: functional.hardtanh(x, -0.3, 0.7),
    "hardswish": functional.hardswish,
    "mish": functional.mish,
    "glu": functional.glu,
    "logsigmoid": functional.logsigmoid,
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std((0, -1), correction=0, keepdim=True),
    "var of all": lambda x: x.var(),
    "var_mean": lambda x: torch.stack(torch.var_mean(x, 1)),
    "std_mean": lambda x: torch.stack(torch.std_mean(x, (1, 2), keepdim=True)),
    "max of all": lambda x: x.max(),
    "min of all": lambda x: x.min(),
    "flip": lambda x: x.flip(0, -1),
    "roll": lambda x: x.roll((1, -2), (0, -1)),
    "adaptive_avg_pool2d": lambda x: functional.adaptive_avg_pool2d(x, (2, 3)),
    "adaptive_avg_pool2d to one": lambda x: functional.adaptive_avg_pool2d(x, 1),
}

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(1, 2),
    "sliced": lambda x: x[..., ::2],
    "without batch": lambda x: x[0],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_of_one_tensor(name: str, layout: str, dtype: torch.dtype) -> None:
    x = LAYOUTS[layout](torch.randn(2, 4, 6, 8).to(dtype)).detach().requires_grad_()
    if name == "glu":
        x = x.transpose(0, -1).contiguous().transpose(0, -1).detach().requires_grad_()
    check(ACTIVATIONS[name], x, strides=False)
    check(ACTIVATIONS[name], x, backward=False)


def test_in_place() -> None:
    x = torch.randn(3, 4)
    for function in (
        torch.relu_,
        functional.hardtanh_,
        lambda x: functional.relu6(x, inplace=True),
        lambda x: functional.hardswish(x, inplace=True),
    ):
        check(function, x)


def test_numbers_of_other_kinds() -> None:
    whole = torch.tensor([-3, 0, 5])
    check(torch.relu, whole)
    check(lambda x: functional.hardtanh(x, -1, 2), whole)
    check(torch.var, torch.randn(5, dtype=torch.complex64))
    gradient, x = torch.randn(3, 1), torch.randn(3, 4).double()
    check(lambda g, x: torch.ops.aten.hardtanh_backward(g, x, -1, 1), gradient, x)


def test_prelu() -> None:
    for weight in (torch.rand(1, requires_grad=True), torch.rand(3, requires_grad=True)):
        check(functional.prelu, torch.randn(2, 3, 4, 4, requires_grad=True), weight)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_binary_cross_entropy(reduction: str) -> None:
    x = torch.rand(4, 3).t().detach().requires_grad_()
    target, weight = torch.rand(3, 4), torch.rand(4)
    check(lambda x, y: functional.binary_cross_entropy(x, y, reduction=reduction), x, target)
    check(
        lambda x, y, w: functional.binary_cross_entropy(x, y, w, reduction=reduction),
        x,
        target,
        weight,
    )


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", ["mse_loss", "huber_loss", "smooth_l1_loss"])
def test_losses_of_differences(name: str, reduction: str) -> None:
    loss = getattr(functional, name)
    x = torch.randn(2, 3, 4, 5, requires_grad=True)
    target = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    check(lambda x, y: loss(x, y, reduction=reduction), x, target)
    check(lambda y, x: loss(x, y, reduction=reduction), target, x)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_classes_of_pixels(reduction: str) -> None:
    x = torch.randn(2, 3, 4, 5, requires_grad=True)
    target = torch.randint(0, 3, (2, 4, 5))
    target[0, 0] = 1
    check(
        lambda x, y, w: functional.cross_entropy(x, y, w, ignore_index=1, reduction=reduction),
        x,
        target,
        torch.rand(3),
    )
    check_error(functional.nll_loss, x, target[:, :1])
    check_error(functional.nll_loss, x, target, torch.ones(2))
    check_error(functional.nll_loss, x, target.float())


def test_dropout() -> None:
    torch.manual_seed(0)
    x = torch.randn(50, 80, device="openreg").t().requires_grad_()
    y = functional.dropout(x, 0.25)
    kept = (y != 0).cpu()
    assert 0.70 < float(kept.float().mean()) < 0.80
    assert y.stride() == x.stride()
    torch.testing.assert_close(y.detach().cpu(), x.detach().cpu() * kept / 0.75)
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
    torch.testing.assert_close(gradient.cpu(), kept / 0.75)
    assert not torch.equal(functional.dropout(x, 0.25), y)
    torch.manual_seed(0)
    again = torch.randn(50, 80, device="openreg").t()
    assert torch.equal(functional.dropout(again, 0.25), y)
    assert int(torch.native_dropout(x, 1.0, True)[0].count_nonzero()) == 0
    same, mask = torch.native_dropout(x, 0.5, False)
    assert torch.equal(same, x)
    assert bool(mask.all())


def test_fused_dropout() -> None:
    """Tests _fused_dropout, whose argument is the probability to keep an element."""
    torch.manual_seed(0)
    x = torch.ones(50, 80, device="openreg", requires_grad=True)
    y, mask = torch._fused_dropout(x, 0.75)
    assert mask.dtype == torch.uint8
    assert 0.70 < float(mask.float().mean()) < 0.80
    torch.testing.assert_close(y, x * mask / 0.75)
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
    torch.testing.assert_close(gradient, mask / 0.75)
    assert torch.equal(torch._masked_scale(x, mask, 2.0), mask * 2.0)
    generator = torch.Generator("openreg").manual_seed(3)
    _, first = torch._fused_dropout(x, 0.5, generator)
    _, second = torch._fused_dropout(x, 0.5, generator.manual_seed(3))
    assert torch.equal(first, second)


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_logical_operators(name: str) -> None:
    torch.manual_seed(0)
    function = getattr(torch, name)
    x, y = torch.randn(3, 4).relu(), torch.randint(0, 2, (4, 3)).t()
    mask = x > 0
    check(function, x, y)
    check(function, mask, y.bool())
    check(function, mask, torch.tensor(True))
    check(lambda x, y: function(x, y, out=torch.empty(0, device=x.device)), x, y)
    check(lambda x, y: getattr(x, f"{name}_")(y), x, y)
    check(function, x.to(torch.complex64), y[:1])
    check_error(function, x, y.t())
    assert is_queued(function, mask, y.bool())


def test_logical_not() -> None:
    x = torch.randn(3, 4).relu().t()
    check(torch.logical_not, x)
    check(torch.Tensor.logical_not_, x)
    check(lambda x: torch.logical_not(x, out=torch.empty(0, device=x.device)), x)
    assert is_queued(torch.logical_not, x)


def test_arange() -> None:
    for arguments in ((5,), (2, 9, 3), (1.0, 2.0, 0.3), (5, 0, -2), (3, 3)):
        actual = torch.arange(*arguments, device="openreg")
        assert actual.dtype == torch.arange(*arguments).dtype
        assert torch.equal(actual.cpu(), torch.arange(*arguments))
    for wrong in ((0, 5, 0), (5, 1), (0, float("inf"))):
        with pytest.raises(RuntimeError) as theirs:
            torch.arange(*wrong)
        with pytest.raises(RuntimeError) as ours:
            torch.arange(*wrong, device="openreg")
        assert str(ours.value) == str(theirs.value)


def test_dot() -> None:
    x, y = torch.randn(6)[::2].requires_grad_(), torch.randn(3)
    check(torch.dot, x, y)
    check_error(torch.dot, x, y[:2])
    check_error(torch.dot, x, y.double())
    check_error(torch.dot, x, y.view(1, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int64])
def test_addr(dtype: torch.dtype) -> None:
    matrix = torch.arange(12).view(4, 3).t().to(dtype)
    column, row = torch.tensor([3, 1, 2]).to(dtype), torch.arange(4, 12)[::2].to(dtype)
    inputs = [x.requires_grad_(dtype.is_floating_point) for x in (matrix, column, row)]
    check(lambda x, c, r: torch.addr(x, c, r, beta=2, alpha=3), *inputs)
    check(torch.addr, row.detach(), column, row)
    check(torch.addr, matrix.detach().double(), column.detach(), row.detach())
    check(lambda x, c, r: x.addr_(c, r), matrix.detach(), column, row)
    out = torch.zeros(0, dtype=dtype)
    check(lambda out, *x: torch.addr(*x, out=out), out, *[x.detach() for x in inputs])


def test_addr_refuses_other_shapes_and_dtypes() -> None:
    matrix, column, row = torch.ones(3, 4), torch.ones(3), torch.ones(4)
    check_error(lambda x, c, r: x.addr_(c, r), torch.ones(()), column, row)
    check_error(lambda x, c, r: x.addr_(c, r), row, column, row)
    check_error(lambda x, c, r: x.addr_(c, r), matrix.long(), column, row)
    check_error(torch.addr, matrix, row, row)
    check_error(torch.addr, matrix, matrix, row)
    check_error(lambda x, c, r: torch.addr(x, c, r, alpha=0.5), matrix.long(), *[row.long()] * 2)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("rows", [5, 40])
def test_cdist(rows: int, p: float) -> None:
    x = torch.randn(2, rows, 3, requires_grad=True)
    y = torch.randn(rows + 1, 3, requires_grad=True)
    check(lambda x, y: torch.cdist(x, y, p), x, y)
    check(lambda x, y: torch.cdist(x, y, p), x.detach()[:, :0], y)
    check(lambda x: torch.cdist(x, x, p), x.detach().double().requires_grad_())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.LSTMCell, torch.nn.GRUCell])
def test_recurrent_cells(kind: type[torch.nn.Module], bias: bool) -> None:
    torch.manual_seed(0)
    network = kind(3, 4, bias=bias)
    parameters = [p.detach().requires_grad_() for p in network.parameters()]
    names = [name for name, _ in network.named_parameters()]
    x = torch.randn(5, 3, requires_grad=True)

    def run(x: Tensor, *parameters: Tensor) -> object:
        return torch.func.functional_call(network, dict(zip(names, parameters, strict=True)), (x,))

    check(run, x, *parameters, strides=False)


def test_errors_are_those_of_the_cpu_at_the_call() -> None:
    x = torch.randn(2, 3, 4, 4)
    check_error(torch.relu, x > 0)
    check_error(functional.hardtanh, x > 0)
    check_error(lambda x: functional.hardtanh(x.to(torch.uint8), -1, 1), x)
    check_error(functional.hardswish, x.long())
    check_error(functional.logsigmoid, x.long())
    check_error(lambda x: x.var(), x.long())
    check_error(lambda x: torch.var_mean(x), x.long())
    check_error(lambda x: x.var((1, 1)), x)
    check_error(lambda x: x[:0].max(), x)
    check_error(lambda x: x.flip(1, 1), x)
    check_error(lambda x: x.flip(7), x)
    check_error(lambda x: functional.adaptive_avg_pool2d(x, 3), x[0, 0])
    check_error(lambda x: functional.adaptive_avg_pool2d(x, 3), x[..., :0])
    check_error(lambda x: functional.adaptive_avg_pool2d(x, 3), x.long())
    check_error(lambda x: torch.cdist(x, x[..., :2]), x)
    check_error(lambda x: torch.cdist(x, x), x.long())
    check_error(lambda x: torch.cdist(x, x, -1.0), x)
    check_error(torch.cdist, x, x.double())
    check_error(lambda x, y: functional.binary_cross_entropy(x, y), x.sigmoid(), x[..., :2])


def test_a_probability_out_of_range_is_thrown_at_the_next_synchronization() -> None:
    x = torch.full((3,), 1.5, device="openreg")
    functional.binary_cross_entropy(x, x)
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        torch.openreg.synchronize()


def test_does_not_wait() -> None:
    x = torch.rand(2, 4, 8, 8)
    for name in ACTIVATIONS:
        assert is_queued(ACTIVATIONS[name], x), name
    assert is_queued(lambda x: torch.cdist(x, x), x)
    assert is_queued(lambda x: torch.addr(x[0, 0], x[0, 0, :, 0], x[0, 0, 0]), x)
    assert is_queued(lambda x: functional.binary_cross_entropy(x, x), x)
