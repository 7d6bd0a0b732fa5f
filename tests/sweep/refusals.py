# SPDX-License-Identifier: BSD-3-Clause
"""Calls that operators must reject, in addition to the error inputs of torch's database.

Each call is made alone, and after a valid call with the same shapes. The metadata that the valid
call caches must not hide the error. On the device, the call itself must raise the CPU's error.
Values are not compared, because many of the calls are random or write to elements that share
memory.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch_device_conformance.comparison.entry import Entry, Run
from torch_device_conformance.mode.timing import Watch

# A call that creates its tensors on a given device.
Call = Callable[[torch.device], Any]

ALONE = "alone"
AFTER = "after a right call"

DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.bool,
)


class Refusal(Entry):
    """An entry for an invalid call. The device must reject it with the CPU's error."""

    drawn = False
    raises = True

    def __init__(self, name: str, right: Call, wrong: Call) -> None:
        self.name = name
        self.right = right
        self.wrong = wrong

    def supports(self, dtype: torch.dtype) -> bool:
        return dtype == torch.float32  # the calls choose their dtypes themselves

    def tolerances(self, dtype: torch.dtype) -> tuple[float, float]:
        return 0, 0

    def samples(self, dtype: torch.dtype, device: torch.device) -> Sequence[str]:
        return [ALONE, AFTER]

    def label(self, sample: str) -> str:
        return sample

    def run(self, sample: str, device: torch.device, seed: int) -> Run:
        watch = Watch(device)
        torch.manual_seed(seed)
        if sample == AFTER:
            with suppress(Exception):  # some dtypes have no valid call
                watch.call(self.right, device)
            watch.late = False

        def attempt() -> Run:
            watch.call(self.wrong, device)
            return Run({}, {})

        return watch.attempt(self.name, attempt)


def ones(device: torch.device, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(shape or (3, 4), device=device, dtype=dtype)


# -------------------------------------------------------------------- scalars that are out of range

# In-place random operators, each with a valid list of arguments and several invalid ones.
RANDOM: dict[str, tuple[tuple[Any, ...], list[tuple[Any, ...]]]] = {
    "uniform_": ((0, 1), [(1, 0), (0, float("inf")), (float("nan"), 1)]),
    "normal_": ((0, 1), [(0, -1), (0, float("-inf"))]),
    "exponential_": ((1,), [(-1,), (0,)]),
    "geometric_": ((0.5,), [(2,), (0,), (1,), (-1,)]),
    "cauchy_": ((0, 1), [(0, -1), (0, 0)]),
    "log_normal_": ((0, 1), [(0, -1), (0, 0)]),
    "bernoulli_": ((0.5,), [(2.0,), (-1.0,), (float("nan"),)]),
    "random_": ((0, 5), [(5, 0), (0, 0), (-1,), (0, 2**40)]),
}

# Other operators, each with a valid call and several invalid ones.
OTHERS: dict[str, tuple[Call, dict[str, Call]]] = {
    "randint": (
        lambda d: torch.randint(0, 5, (3,), device=d),
        {
            "empty range": lambda d: torch.randint(5, 0, (3,), device=d),
            "out of uint8": lambda d: torch.randint(0, 300, (3,), device=d, dtype=torch.uint8),
            "negative size": lambda d: torch.randint(0, 5, (-3,), device=d),
        },
    ),
    "randint_like": (
        lambda d: torch.randint_like(ones(d), 0, 5),
        {"empty range": lambda d: torch.randint_like(ones(d), 5, 0)},
    ),
    "randperm": (
        lambda d: torch.randperm(5, device=d),
        {
            "negative": lambda d: torch.randperm(-1, device=d),
            "out of uint8": lambda d: torch.randperm(300, device=d, dtype=torch.uint8),
        },
    ),
    "rand_like": (
        lambda d: torch.rand_like(ones(d)),
        {"integers": lambda d: torch.rand_like(ones(d, dtype=torch.int64))},
    ),
    "randn_like": (
        lambda d: torch.randn_like(ones(d)),
        {
            "integers": lambda d: torch.randn_like(ones(d, dtype=torch.int64)),
            "bools": lambda d: torch.randn_like(ones(d, dtype=torch.bool)),
        },
    ),
    "rand": (
        lambda d: torch.rand(3, device=d),
        {"integers": lambda d: torch.rand(3, device=d, dtype=torch.int64)},
    ),
    "randn": (
        lambda d: torch.randn(3, device=d),
        {"integers": lambda d: torch.randn(3, device=d, dtype=torch.int64)},
    ),
    "normal": (
        lambda d: torch.normal(0.0, 1.0, (3,), device=d),
        {
            "negative": lambda d: torch.normal(0.0, -1.0, (3,), device=d),
            "integers": lambda d: torch.normal(0.0, 1.0, (3,), device=d, dtype=torch.int64),
        },
    ),
    "normal.Tensor_float": (
        lambda d: torch.normal(ones(d), 1.0),
        {
            "negative": lambda d: torch.normal(ones(d), -1.0),
            "integers": lambda d: torch.normal(ones(d, dtype=torch.int64), 1.0),
        },
    ),
    "normal.Tensor_Tensor": (
        lambda d: torch.normal(ones(d), ones(d)),
        {
            "shapes": lambda d: torch.normal(ones(d), ones(d, 5)),
            "complex": lambda d: torch.normal(ones(d), ones(d, dtype=torch.complex64)),
        },
    ),
    "bernoulli": (
        lambda d: torch.bernoulli(ones(d)),
        {
            "integers": lambda d: torch.bernoulli(ones(d, dtype=torch.int64)),
            "probability": lambda d: torch.bernoulli(ones(d), 2.0),
        },
    ),
    "multinomial": (
        lambda d: torch.multinomial(ones(d), 2),
        {
            "none": lambda d: torch.multinomial(ones(d), 0),
            "too many": lambda d: torch.multinomial(ones(d), 9),
            "integers": lambda d: torch.multinomial(ones(d, dtype=torch.int64), 2),
        },
    ),
    "poisson": (
        lambda d: torch.poisson(ones(d)),
        {"integers": lambda d: torch.poisson(ones(d, dtype=torch.int64))},
    ),
    "dropout": (
        lambda d: torch.nn.functional.dropout(ones(d), 0.5),
        {
            "probability": lambda d: torch.dropout(ones(d), 2.0, True),
            "native": lambda d: torch.native_dropout(ones(d), 2.0, True),
            "integers": lambda d: torch.native_dropout(ones(d, dtype=torch.int64), 0.5, True),
        },
    ),
    "rrelu": (
        lambda d: torch.rrelu(ones(d), 0.1, 0.3, True),
        {
            "bounds": lambda d: torch.rrelu(ones(d), 0.3, 0.1, True),
            "infinite": lambda d: torch.rrelu(ones(d), 0.3, float("inf"), True),
        },
    ),
    "histc": (
        lambda d: torch.histc(ones(d), 4, 0, 2),
        {
            "max below min": lambda d: torch.histc(ones(d), 4, 2, 0),
            "no bins": lambda d: torch.histc(ones(d), 0, 0, 2),
            "infinite": lambda d: torch.histc(ones(d), 4, 0, float("inf")),
        },
    ),
    "arange": (
        lambda d: torch.arange(0, 3, 1, device=d),
        {
            "step": lambda d: torch.arange(0, 3, 0, device=d),
            "sign": lambda d: torch.arange(0, 3, -1, device=d),
            "infinite": lambda d: torch.arange(0, float("inf"), 1, device=d),
        },
    ),
    "linspace": (
        lambda d: torch.linspace(0, 3, 3, device=d),
        {"steps": lambda d: torch.linspace(0, 3, -1, device=d)},
    ),
    "eye": (
        lambda d: torch.eye(3, device=d),
        {"negative": lambda d: torch.eye(-3, device=d)},
    ),
    "mse_loss": (
        lambda d: torch.nn.functional.mse_loss(ones(d), ones(d)),
        {"dtypes": lambda d: torch.nn.functional.mse_loss(ones(d), ones(d, dtype=torch.bool))},
    ),
    "foreach_add": (
        lambda d: torch._foreach_add([ones(d)], [ones(d)]),
        {
            "lengths": lambda d: torch._foreach_add([ones(d)], [ones(d)] * 2),
            "shapes": lambda d: torch._foreach_add([ones(d)], [ones(d, 5)]),
            "empty": lambda d: torch._foreach_add([], [ones(d)]),
            "complex": lambda d: torch._foreach_add_([ones(d)], 1j),
            "complex tensor": lambda d: torch._foreach_add_(
                [ones(d)], [ones(d, dtype=torch.complex64)]
            ),
        },
    ),
    "foreach_lerp": (
        lambda d: torch._foreach_lerp_([ones(d)], [ones(d)], 0.5),
        {
            "complex": lambda d: torch._foreach_lerp_([ones(d)], [ones(d)], 1j),
            "dtypes": lambda d: torch._foreach_lerp_(
                [ones(d)], [ones(d, dtype=torch.float64)], 0.5
            ),
            "integers": lambda d: torch._foreach_lerp_(
                [ones(d, dtype=torch.int64)], [ones(d, dtype=torch.int64)], 0.5
            ),
        },
    ),
    "foreach_mul": (
        lambda d: torch._foreach_mul_([ones(d)], 2.0),
        {
            "complex": lambda d: torch._foreach_mul_([ones(d)], 2j),
            "real to integers": lambda d: torch._foreach_mul_([ones(d, dtype=torch.int64)], 2.5),
            "overlap": lambda d: torch._foreach_mul_([ones(d, 1).expand(3)], 2.0),
            "lists": lambda d: torch._foreach_mul_([ones(d)], [2.0, 3.0]),
        },
    ),
    "foreach_addcmul": (
        lambda d: torch._foreach_addcmul_([ones(d)], [ones(d)], [ones(d)], 2),
        {
            "complex": lambda d: torch._foreach_addcmul_([ones(d)], [ones(d)], [ones(d)], 2j),
            "shapes": lambda d: torch._foreach_addcmul_([ones(d)], [ones(d, 5)], [ones(d)], 2),
            "scalars": lambda d: torch._foreach_addcmul_([ones(d)], [ones(d)], [ones(d)], [2, 3]),
        },
    ),
    "foreach_copy": (
        lambda d: torch._foreach_copy_([ones(d)], [ones(d)]),
        {
            "shapes": lambda d: torch._foreach_copy_([ones(d)], [ones(d, 5)]),
            "overlap": lambda d: torch._foreach_copy_([ones(d, 1).expand(3)], [ones(d, 3)]),
        },
    ),
}

# Backward operators of losses, with the arguments that follow (gradient, input, target).
LOSSES: dict[str, tuple[Any, ...]] = {
    "mse_loss_backward": (1,),
    "smooth_l1_loss_backward": (1, 1.0),
    "huber_loss_backward": (1, 1.0),
    "binary_cross_entropy_backward": (None, 1),
    "soft_margin_loss_backward": (1,),
}

# Operators with a scalar argument. Each function calls its operator.
SCALARS: dict[str, Callable[[Tensor, Any], Any]] = {
    "add alpha": lambda x, s: torch.add(x, x, alpha=s),
    "add_": lambda x, s: x.add_(s),
    "mul_": lambda x, s: x.mul_(s),
    "div_": lambda x, s: x.div_(s),
    "pow": lambda x, s: torch.pow(x, s),
    "pow_": lambda x, s: x.pow_(s),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "eq": torch.eq,
    "eq_": lambda x, s: x.eq_(s),
    "lt": torch.lt,
    "bitwise_and": torch.bitwise_and,
    "fill_": lambda x, s: x.fill_(s),
    "full_like": torch.full_like,
    "masked_fill": lambda x, s: x.masked_fill(x == x, s),
    "index_fill": lambda x, s: x.index_fill(0, torch.zeros(1, dtype=torch.long).to(x.device), s),
    "scatter": lambda x, s: x.scatter(0, torch.zeros(1, 1, dtype=torch.long).to(x.device), s),
    "where": lambda x, s: torch.where(x == x, x, s),
    "clamp": lambda x, s: torch.clamp(x, max=s),
    "clamp_min_": lambda x, s: x.clamp_min_(s),
    "lerp": lambda x, s: torch.lerp(x, x, s),
    "addcmul": lambda x, s: torch.addcmul(x, x, x, value=s),
    "addmm beta": lambda x, s: torch.addmm(x, x, x, beta=s),
    "addmm alpha": lambda x, s: torch.addmm(x, x, x, alpha=s),
    "baddbmm": lambda x, s: torch.baddbmm(x[None], x[None], x[None], beta=s),
    "addmv": lambda x, s: torch.addmv(x[0], x, x[0], alpha=s),
    "addr": lambda x, s: torch.addr(x, x[0], x[0], alpha=s),
    "threshold": lambda x, s: torch.threshold(x, s, s),
    "hardshrink": torch.hardshrink,
    "softshrink": lambda x, s: torch.nn.functional.softshrink(x, s),
    "leaky_relu": torch.nn.functional.leaky_relu,
    "elu": torch.nn.functional.elu,
    "celu": torch.celu,
    "hardtanh": lambda x, s: torch.nn.functional.hardtanh(x, s, s),
    "pad": lambda x, s: torch.nn.functional.pad(x, (1, 1), value=s),
    "rsub": torch.rsub,
    "sub alpha": lambda x, s: torch.sub(x, x, alpha=s),
    "renorm": lambda x, s: torch.renorm(x, s, 0, 1),
    "norm": torch.norm,
    "xlogy": torch.xlogy,
    "index_add alpha": lambda x, s: x.index_add(
        0, torch.zeros(4, dtype=torch.long).to(x.device), x, alpha=s
    ),
    "logit": lambda x, s: torch.logit(x, s),
    "histc": lambda x, s: torch.histc(x, 4, 0, s),
    "cdist": lambda x, s: torch.cdist(x, x, s),
    "softplus": lambda x, s: torch.nn.functional.softplus(x, s),
    "nan_to_num": lambda x, s: torch.nan_to_num(x, s),
    "isin": torch.isin,
    "bucketize": lambda x, s: torch.bucketize(s, x[0]),
    "arange": lambda x, s: torch.arange(0, s, s, dtype=x.dtype, device=x.device),
    "linspace": lambda x, s: torch.linspace(0, s, 3, dtype=x.dtype, device=x.device),
    "full": lambda x, s: torch.full((3,), s, dtype=x.dtype, device=x.device),
    "tensor": lambda x, s: torch.tensor([s], dtype=x.dtype, device=x.device),
    "setitem": lambda x, s: x.__setitem__((slice(None), 0), s),
    "setitem mask": lambda x, s: x.__setitem__(x == x, s),
}
WRONG_SCALARS = {"300": 300, "-300": -300, "1e300": 1e300, "2**70": 2.0**70, "1j": 1j, "2.5": 2.5}


# ---------------------------------------------------------------- arguments with overlapping memory

# In-place operators. They are called with a 4 x 4 tensor whose elements may share memory.
IN_PLACE: dict[str, Callable[[Tensor], Any]] = {
    "addmm_": lambda x: x.addmm_(x.clone(), x.clone()),
    "addmv_": lambda x: x[0].addmv_(x.clone(), x[0].clone()),
    "addr_": lambda x: x.addr_(x[0].clone(), x[0].clone()),
    "baddbmm_": lambda x: x[None].baddbmm_(x.clone()[None], x.clone()[None]),
    "copy_": lambda x: x.copy_(x.clone()),
    "cumsum_": lambda x: x.cumsum_(0),
    "cumprod_": lambda x: x.cumprod_(0),
    "fill_": lambda x: x.fill_(2),
    "zero_": lambda x: x.zero_(),
    "index_add_": lambda x: x.index_add_(0, index(x), x.clone()),
    "index_copy_": lambda x: x.index_copy_(0, index(x), x.clone()),
    "index_fill_": lambda x: x.index_fill_(0, index(x), 2),
    "index_put_": lambda x: x.index_put_((index(x),), x.clone()),
    "masked_fill_": lambda x: x.masked_fill_(x == 1, 2),
    "masked_scatter_": lambda x: x.masked_scatter_(x == 1, x.clone()),
    "mul_": lambda x: x.mul_(2),
    "put_": lambda x: x.put_(index(x), x[0].clone()),
    "renorm_": lambda x: x.renorm_(2, 0, 1),
    "scatter_": lambda x: x.scatter_(0, index(x)[None], 2),
    "scatter_add_": lambda x: x.scatter_add_(0, index(x)[None], x.clone()),
    "erfinv_": lambda x: x.erfinv_(),
    "lgamma_": lambda x: x.lgamma_(),
    "tril_": lambda x: x.tril_(),
    "fill_diagonal_": lambda x: x.fill_diagonal_(2),
    **{
        name: functools.partial(lambda name, right, x: getattr(x, name)(*right), name, right)
        for name, (right, _) in RANDOM.items()
    },
}

# Operators with out=. They are called with a 4 x 4 input and a tensor to write to.
WITH_OUT: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add": lambda x, out: torch.add(x, x, out=out),
    "addmm": lambda x, out: torch.addmm(x, x, x, out=out),
    "bmm": lambda x, out: torch.bmm(x[None], x[None], out=out[None]),
    "cat": lambda x, out: torch.cat([x[:2], x[2:]], out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 0, out=out),
    "erfinv": lambda x, out: torch.erfinv(x, out=out),
    "gather": lambda x, out: torch.gather(x, 0, torch.zeros_like(x, dtype=torch.long), out=out),
    "index_select": lambda x, out: torch.index_select(x, 0, index(x), out=out),
    "lgamma": lambda x, out: torch.lgamma(x, out=out),
    "log_softmax": lambda x, out: torch.log_softmax(x, 0, out=out),
    "matmul": lambda x, out: torch.matmul(x, x, out=out),
    "mm": lambda x, out: torch.mm(x, x, out=out),
    "mul": lambda x, out: torch.mul(x, 2, out=out),
    "softmax": lambda x, out: torch.softmax(x, 0, out=out),
    "stack": lambda x, out: torch.stack([x[0], x[1], x[2], x[3]], out=out),
    "take": lambda x, out: torch.take(x, torch.zeros_like(x, dtype=torch.long), out=out),
    "tril": lambda x, out: torch.tril(x, out=out),
    "where": lambda x, out: torch.where(x == x, x, x, out=out),
    # Factory functions ignore x.
    "arange": lambda x, out: torch.arange(4.0, out=out[0]),
    "eye": lambda x, out: torch.eye(4, out=out),
    "full": lambda x, out: torch.full((4, 4), 2.0, out=out),
    "linspace": lambda x, out: torch.linspace(0, 1, 4, out=out[0]),
    "normal": lambda x, out: torch.normal(0.0, 1.0, (4, 4), out=out),
    "ones": lambda x, out: torch.ones(4, 4, out=out),
    "rand": lambda x, out: torch.rand(4, 4, out=out),
    "randint": lambda x, out: torch.randint(0, 5, (4, 4), out=out),
    "randn": lambda x, out: torch.randn(4, 4, out=out),
    "zeros": lambda x, out: torch.zeros(4, 4, out=out),
}


def index(x: Tensor) -> Tensor:
    """Returns the row indices of a 4 x 4 tensor."""
    return torch.arange(4).to(x.device)


def square(device: torch.device) -> Tensor:
    return torch.linspace(0, 0.9, 16).reshape(4, 4).to(device)


def shared_row(device: torch.device) -> Tensor:
    """Returns a 4 x 4 tensor whose rows all share memory."""
    return torch.linspace(0, 0.9, 4).to(device).expand(4, 4)


def shared_element(device: torch.device) -> Tensor:
    """Returns a 4 x 4 tensor whose elements all share memory."""
    return torch.full((1, 1), 0.5).to(device).expand(4, 4)


def one_behind(function: Callable[[Tensor, Tensor], Any]) -> Call:
    """Returns a call whose input and output overlap: the output starts at the second element."""

    def call(device: torch.device) -> Any:
        memory = torch.linspace(0, 0.9, 17).to(device)
        return function(memory[:16].view(4, 4), memory[1:].view(4, 4))

    return call


# ------------------------------------------------------------------------ list of all invalid calls


def method(name: str, arguments: tuple[Any, ...], dtype: torch.dtype = torch.float32) -> Call:
    """Returns a call to a method of a tensor of ones."""
    return lambda d: getattr(ones(d, dtype=dtype), name)(*arguments)


def with_scalar(function: Callable[[Tensor, Any], Any], dtype: torch.dtype, scalar: Any) -> Call:
    return lambda d: function(ones(d, 4, 4, dtype=dtype), scalar)


def on_made(function: Callable[..., Any], *makes: Callable[[torch.device], Tensor]) -> Call:
    """Returns a call to a function with the tensors that `makes` create."""
    return lambda d: function(*(make(d) for make in makes))


def loss_backward(name: str, more: tuple[Any, ...], place: int, dtype: torch.dtype) -> Call:
    """Returns a call to a loss's backward in which the tensor at `place` has another dtype."""

    def call(device: torch.device) -> Any:
        made = [ones(device, dtype=dtype if n == place else torch.float32) for n in range(3)]
        return getattr(torch.ops.aten, name)(*made, *more)

    return call


def random_calls() -> Iterator[Refusal]:
    for name, (right, wrongs) in RANDOM.items():
        for arguments in wrongs:
            yield Refusal(f"{name}{arguments}", method(name, right), method(name, arguments))
        for dtype in DTYPES[1:]:
            wrong = method(name, right, dtype)
            yield Refusal(f"{name} {str(dtype)[6:]}", method(name, right), wrong)


def other_calls() -> Iterator[Refusal]:
    for name, (right, wrongs) in OTHERS.items():
        for what, wrong in wrongs.items():
            yield Refusal(f"{name} {what}", right, wrong)


def loss_calls() -> Iterator[Refusal]:
    for name, more in LOSSES.items():
        right = loss_backward(name, more, 0, torch.float32)
        for place, what in enumerate(("gradient", "input", "target")):
            for dtype in (torch.float64, torch.float16, torch.int64, torch.complex64):
                wrong = loss_backward(name, more, place, dtype)
                yield Refusal(f"{name} {what} {str(dtype)[6:]}", right, wrong)


def scalar_calls() -> Iterator[Refusal]:
    for name, function in SCALARS.items():
        for dtype in DTYPES:
            right = with_scalar(function, dtype, 1)
            for what, scalar in WRONG_SCALARS.items():
                wrong = with_scalar(function, dtype, scalar)
                yield Refusal(f"{name} {str(dtype)[6:]} {what}", right, wrong)


def overlap_calls() -> Iterator[Refusal]:
    shared = (shared_row, shared_element)
    for name, in_place in IN_PLACE.items():
        for make in shared:
            right, wrong = on_made(in_place, square), on_made(in_place, make)
            yield Refusal(f"{name} {make.__name__}", right, wrong)
    for name, with_out in WITH_OUT.items():
        right = on_made(with_out, square, square)
        for make in shared:
            yield Refusal(f"{name} out= {make.__name__}", right, on_made(with_out, square, make))
        yield Refusal(f"{name} out= one_behind", right, one_behind(with_out))
    yield Refusal(
        "copy_ one_behind", on_made(Tensor.copy_, square, square), one_behind(Tensor.copy_)
    )


def refusals() -> Iterable[Entry]:
    """Yields an entry for each invalid call."""
    for kind in (random_calls, other_calls, loss_calls, scalar_calls, overlap_calls):
        yield from kind()
