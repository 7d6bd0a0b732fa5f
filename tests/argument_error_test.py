# SPDX-License-Identifier: BSD-3-Clause
"""If the arguments alone are invalid, the call itself raises the error, with torch's message."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

DEVICE = torch.device("openreg", 0)

# A stream is kept busy for this many nanoseconds, so that a call returns before its kernels run.
BUSY = 30_000_000


def ones(*sizes: int, **options: Any) -> Tensor:
    return torch.ones(*sizes, device=DEVICE, **options)


def call(function: Callable[[torch.device], object], device: torch.device) -> str:
    """Makes a call on a busy stream. Returns the type and the text of the call's error."""
    if device == DEVICE:
        torch.openreg._sleep(BUSY)
    try:
        function(device)
    except Exception as error:
        torch.accelerator.synchronize(DEVICE)  # raises if an error is pending
        return f"{type(error).__name__}: {error}"
    raise AssertionError("the call did not raise an error")


def empty(device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(3, device=device, dtype=dtype)


def three(device: torch.device) -> Tensor:
    return torch.ones(3, device=device)


def conv2d(x: Tensor, **options: Any) -> Tensor:
    return torch.nn.functional.conv2d(x, torch.ones(1, 1, 2, 2, device=x.device), **options)


# Pairs of calls with equal sizes and dtypes. The CPU rejects the first and accepts the second.
SCALARS: dict[str, tuple[Callable[[torch.device], object], Callable[[torch.device], object]]] = {
    "uniform_": (lambda d: empty(d).uniform_(1, 0), lambda d: empty(d).uniform_(0, 1)),
    "normal_": (lambda d: empty(d).normal_(0, -1), lambda d: empty(d).normal_(0, 1)),
    "exponential_": (lambda d: empty(d).exponential_(-1), lambda d: empty(d).exponential_(1)),
    "exponential_ of zero": (
        lambda d: empty(d).exponential_(0),
        lambda d: empty(d).exponential_(1),
    ),
    "cauchy_ of zero": (lambda d: empty(d).cauchy_(0, 0), lambda d: empty(d).cauchy_(0, 1)),
    "geometric_": (lambda d: empty(d).geometric_(2.0), lambda d: empty(d).geometric_(0.5)),
    "cauchy_": (lambda d: empty(d).cauchy_(0, -1), lambda d: empty(d).cauchy_(0, 1)),
    "log_normal_": (lambda d: empty(d).log_normal_(0, -1), lambda d: empty(d).log_normal_(0, 1)),
    "bernoulli_": (lambda d: empty(d).bernoulli_(2.0), lambda d: empty(d).bernoulli_(0.5)),
    "random_": (lambda d: empty(d).random_(5, 0), lambda d: empty(d).random_(0, 5)),
    "randint": (
        lambda d: torch.randint(5, 0, (3,), device=d),
        lambda d: torch.randint(0, 5, (3,), device=d),
    ),
    "histc": (
        lambda d: torch.histc(torch.ones(4, device=d), 4, 1, 0),
        lambda d: torch.histc(torch.ones(4, device=d), 4, 0, 1),
    ),
    "_foreach_lerp_": (
        lambda d: torch._foreach_lerp_([torch.ones(3, device=d)], [torch.ones(3, device=d)], 1j),
        lambda d: torch._foreach_lerp_([torch.ones(3, device=d)], [torch.ones(3, device=d)], 1.0),
    ),
    "clamp_": (
        lambda d: torch.ones(3, device=d, dtype=torch.int8).clamp_(max=1000),
        lambda d: torch.ones(3, device=d, dtype=torch.int8).clamp_(max=100),
    ),
    "random_ of uint8": (
        lambda d: empty(d, torch.uint8).random_(0, 300),
        lambda d: empty(d, torch.uint8).random_(0, 256),
    ),
    "masked_fill": (
        lambda d: torch.ones(3, device=d, dtype=torch.int64).masked_fill(
            torch.ones(3, device=d, dtype=torch.bool), torch.tensor(1e30)
        ),
        lambda d: torch.ones(3, device=d, dtype=torch.int64).masked_fill(
            torch.ones(3, device=d, dtype=torch.bool), torch.tensor(3.0)
        ),
    ),
    # The first call of each pair has a scalar outside the range of float32.
    "alpha": (
        lambda d: torch.add(three(d), three(d), alpha=1e39),
        lambda d: torch.add(three(d), three(d), alpha=1e38),
    ),
    "addcmul": (
        lambda d: torch.addcmul(three(d), three(d), three(d), value=1e39),
        lambda d: torch.addcmul(three(d), three(d), three(d), value=1e38),
    ),
    "lerp": (
        lambda d: torch.lerp(three(d), three(d), 1e39),
        lambda d: torch.lerp(three(d), three(d), 1e38),
    ),
    "leaky_relu": (
        lambda d: torch.nn.functional.leaky_relu(three(d), 1e39),
        lambda d: torch.nn.functional.leaky_relu(three(d), 1e38),
    ),
    "threshold": (
        lambda d: torch.threshold(three(d), 1e39, 0.0),
        lambda d: torch.threshold(three(d), 1e38, 0.0),
    ),
    "celu": (
        lambda d: torch.celu(three(d), 1e300),
        lambda d: torch.celu(three(d), 1e30),
    ),
    "clamp_min_": (
        lambda d: three(d).clamp_min_(1e39),
        lambda d: three(d).clamp_min_(1e38),
    ),
    "softplus": (
        lambda d: torch.nn.functional.softplus(three(d), 1e39),
        lambda d: torch.nn.functional.softplus(three(d), 1e38),
    ),
    "random_ of bool": (
        lambda d: empty(d, torch.bool).random_(0, 3),
        lambda d: empty(d, torch.bool).random_(0, 2),
    ),
    "stride of a convolution": (
        lambda d: conv2d(torch.ones(1, 1, 4, 4, device=d), stride=0),
        lambda d: conv2d(torch.ones(1, 1, 4, 4, device=d), stride=1),
    ),
    "dilation of a convolution": (
        lambda d: conv2d(torch.ones(1, 1, 4, 4, device=d), dilation=0),
        lambda d: conv2d(torch.ones(1, 1, 4, 4, device=d), dilation=1),
    ),
    "gelu": (
        lambda d: torch.nn.functional.gelu(torch.ones(3, device=d), approximate="rough"),
        lambda d: torch.nn.functional.gelu(torch.ones(3, device=d), approximate="tanh"),
    ),
}


@pytest.mark.parametrize("name", SCALARS)
def test_a_scalar_out_of_range_is_refused_by_the_call(name: str) -> None:
    refused, accepted = SCALARS[name]
    expected = call(refused, torch.device("cpu"))
    assert call(refused, DEVICE) == expected
    for _ in range(2):
        accepted(DEVICE)  # the metadata that this call caches must not hide the error
    assert call(refused, DEVICE) == expected


DTYPES: dict[str, Callable[[torch.device], object]] = {
    "normal_": lambda d: empty(d, torch.int64).normal_(),
    "randn_like": lambda d: torch.randn_like(torch.ones(3, device=d, dtype=torch.int64)),
    "uniform_": lambda d: empty(d, torch.int64).uniform_(),
    "exponential_": lambda d: empty(d, torch.int64).exponential_(),
    "cauchy_": lambda d: empty(d, torch.int64).cauchy_(),
    "geometric_": lambda d: empty(d, torch.bool).geometric_(0.5),
    "log_normal_": lambda d: empty(d, torch.int64).log_normal_(),
    "bernoulli": lambda d: torch.bernoulli(torch.ones(3, device=d, dtype=torch.int64)),
    "cdist": lambda d: torch.cdist(full(d).half(), full(d).half()),
    "gcd": lambda d: torch.gcd(torch.ones(3, device=d), torch.ones(3, device=d)),
    "smooth_l1_loss_backward": lambda d: torch.ops.aten.smooth_l1_loss_backward(
        torch.ones(3, device=d), *2 * [torch.ones(3, device=d, dtype=torch.int64)], 1, 1.0
    ),
    "mse_loss_backward": lambda d: torch.ops.aten.mse_loss_backward(
        torch.ones(3, device=d), *2 * [torch.ones(3, device=d, dtype=torch.int64)], 1
    ),
    "huber_loss": lambda d: torch.nn.functional.huber_loss(full(d).bool(), full(d).bool()),
    "scatter_reduce": lambda d: torch.zeros(3, device=d).scatter_reduce(
        0, empty(d, torch.int64).zero_(), torch.ones(3, device=d, dtype=torch.float64), "sum"
    ),
    "scatter_reduce of complex numbers": lambda d: empty(d, torch.complex64).scatter_reduce(
        0, torch.zeros(3, device=d, dtype=torch.int64), empty(d, torch.complex64), "amax"
    ),
    "svdvals": lambda d: torch.linalg.svdvals(torch.ones(3, 3, device=d, dtype=torch.int64)),
    "svdvals of halves": lambda d: torch.linalg.svdvals(torch.ones(3, 3, device=d).half()),
    "masked.cumsum": lambda d: torch.masked.cumsum(full(d), 0, dtype=torch.bool),
    "masked.cumprod": lambda d: torch.masked.cumprod(full(d), 0, dtype=torch.bool),
}


@pytest.mark.parametrize("name", DTYPES)
def test_a_dtype_without_a_kernel_is_refused_by_the_call(name: str) -> None:
    expected = call(DTYPES[name], torch.device("cpu"))
    for _ in range(2):
        assert call(DTYPES[name], DEVICE) == expected


def attend(
    device: torch.device,
    mask: Tensor | None = None,
    mask_type: int | None = None,
    wrong: int | None = None,
) -> object:
    """Calls self-attention on 2 rows of 3 tokens with 4 features in 2 heads.

    If `wrong` is specified, the weight with this index has the wrong size.
    """
    sizes = [(12, 4), (12,), (4, 4), (4,)]
    weight, bias, out_weight, out_bias = (
        torch.ones((5, *own[1:]) if i == wrong else own, device=device)
        for i, own in enumerate(sizes)
    )
    if mask is not None:
        mask = mask.to(device)
    x = torch.ones(2, 3, 4, device=device)
    return torch._native_multi_head_attention(
        x, x, x, 4, 2, weight, bias, out_weight, out_bias, mask, mask_type=mask_type
    )


def normalize(device: torch.device, *statistics: tuple[int, ...] | None) -> object:
    weight, bias, mean, var = (
        None if sizes is None else torch.ones(sizes, device=device) for sizes in statistics
    )
    x = torch.ones(2, 3, 4, device=device)
    return torch.batch_norm(x, weight, bias, mean, var, True, 0.1, 1e-5, False)


def convolve_backward(device: torch.device, *sizes: int) -> object:
    return torch.ops.aten.convolution_backward(
        torch.ones(sizes, device=device),
        torch.ones(1, 1, 4, device=device),
        torch.ones(1, 1, 2, device=device),
        None, [1], [0], [1], False, [0], 1, [True, True, False],
    )  # fmt: skip


# Pairs of calls. The first has wrong sizes. The second has valid sizes, and is made first.
SIZES: dict[str, tuple[Callable[[torch.device], object], Callable[[torch.device], object]]] = {
    "addmm": (
        lambda d: torch.addmm(torch.ones(3, device=d), full(d), full(d)),
        lambda d: torch.addmm(torch.ones(4, device=d), full(d), full(d)),
    ),
    "addmm with out=": (
        lambda d: torch.addmm(torch.ones(2, 4, device=d), full(d), full(d), out=full(d)),
        lambda d: torch.addmm(torch.ones(4, 4, device=d), full(d), full(d), out=full(d)),
    ),
    "linear": (
        lambda d: torch.nn.functional.linear(full(d), full(d), torch.ones(3, device=d)),
        lambda d: torch.nn.functional.linear(full(d), full(d), torch.ones(4, device=d)),
    ),
    "batch_norm without a mean": (
        lambda d: normalize(d, None, None, None, (3,)),
        lambda d: normalize(d, None, None, (3,), (3,)),
    ),
    "batch_norm without a variance": (
        lambda d: normalize(d, None, None, (3,), None),
        lambda d: normalize(d, None, None, None, None),
    ),
    "bernoulli_": (
        lambda d: empty(d).bernoulli_(torch.full((4,), 0.5, device=d)),
        lambda d: empty(d).bernoulli_(torch.full((3,), 0.5, device=d)),
    ),
    "convolution_backward": (
        lambda d: convolve_backward(d, 1, 1, 4),
        lambda d: convolve_backward(d, 1, 1, 3),
    ),
    "a mask of type 0": (
        lambda d: attend(d, torch.zeros(2, 3, dtype=torch.bool), 0),
        lambda d: attend(d, torch.zeros(3, 3, dtype=torch.bool), 0),
    ),
    "a mask of type 1": (
        lambda d: attend(d, torch.zeros(3, 3, dtype=torch.bool), 1),
        lambda d: attend(d, torch.zeros(2, 3, dtype=torch.bool), 1),
    ),
    "a mask of type 2": (
        lambda d: attend(d, torch.zeros(2, 3, 3, 3, dtype=torch.bool), 2),
        lambda d: attend(d, torch.zeros(2, 2, 3, 3, dtype=torch.bool), 2),
    ),
    "a weight of attention": (
        lambda d: attend(d, wrong=0),
        lambda d: attend(d),
    ),
    "a bias of attention": (
        lambda d: attend(d, wrong=1),
        lambda d: attend(d),
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_do_not_fit_are_refused_by_the_call(name: str) -> None:
    refused, accepted = SIZES[name]
    expected = call(refused, torch.device("cpu"))
    for _ in range(2):
        accepted(DEVICE)
    for _ in range(2):
        assert call(refused, DEVICE) == expected


def nan(device: torch.device) -> Tensor:
    return torch.full((4, 4), torch.nan, device=device)


def negative(device: torch.device) -> Tensor:
    return -torch.eye(4, device=device)


# These operators wait for their kernel. The call itself therefore reports invalid data, as on CUDA.
DATA: dict[str, Callable[[torch.device], object]] = {
    "svd": lambda d: torch.linalg.svd(nan(d)),
    "svdvals": lambda d: torch.linalg.svdvals(nan(d)),
    "eig": lambda d: torch.linalg.eig(nan(d)),
    "cholesky": lambda d: torch.linalg.cholesky(negative(d)),
    "torch.cholesky": lambda d: torch.cholesky(negative(d)),
    "cholesky_ex": lambda d: torch.linalg.cholesky_ex(negative(d), check_errors=True),
    "inv_ex": lambda d: torch.linalg.inv_ex(torch.zeros(4, 4, device=d), check_errors=True),
    "lu_factor_ex": lambda d: torch.linalg.lu_factor_ex(
        torch.zeros(4, 4, device=d), check_errors=True
    ),
    "ldl_factor_ex": lambda d: torch.linalg.ldl_factor_ex(
        torch.zeros(4, 4, device=d), check_errors=True
    ),
    "solve_ex": lambda d: torch.linalg.solve_ex(
        torch.zeros(4, 4, device=d), full(d), check_errors=True
    ),
    "sparse_coo_tensor": lambda d: torch.sparse_coo_tensor(
        torch.tensor([[0, 5]], device=d), torch.ones(2, device=d), (3,), check_invariants=True
    ),
    "sparse_coo_tensor that is not coalesced": lambda d: torch.sparse_coo_tensor(
        torch.tensor([[1, 1]], device=d),
        torch.ones(2, device=d),
        (3,),
        is_coalesced=True,
        check_invariants=True,
    ),
}


@pytest.mark.parametrize("name", DATA)
def test_invalid_data_is_reported_by_operators_that_check_it(name: str) -> None:
    expected = call(DATA[name], torch.device("cpu"))
    for _ in range(3):
        assert call(DATA[name], DEVICE) == expected


def row(device: torch.device) -> Tensor:
    return torch.zeros(1, device=device).expand(4)


def square(device: torch.device) -> Tensor:
    return torch.zeros(1, 4, device=device).expand(4, 4)


def full(device: torch.device) -> Tensor:
    return torch.ones(4, 4, device=device)


def shared(device: torch.device, function: Callable[..., object]) -> object:
    memory = torch.ones(10, device=device)
    return function(memory[:5], out=memory[2:7])


OVERLAPS: dict[str, Callable[[torch.device], object]] = {
    "normal_": lambda d: row(d).normal_(),
    "uniform_": lambda d: row(d).uniform_(),
    "bernoulli_": lambda d: row(d).bernoulli_(),
    "random_": lambda d: row(d).random_(),
    "cumsum_": lambda d: row(d).cumsum_(0),
    "renorm_": lambda d: square(d).renorm_(2, 0, 1.0),
    "addmm_": lambda d: square(d).addmm_(full(d), full(d)),
    "mm": lambda d: torch.mm(full(d), full(d), out=square(d)),
    "rand": lambda d: torch.rand(4, out=row(d)),
    "arange": lambda d: torch.arange(4, out=row(d)),
    "erfinv": lambda d: shared(d, torch.erfinv),
    "cumsum": lambda d: shared(d, lambda x, out: torch.cumsum(x, 0, out=out)),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_overlapping_memory_is_refused_by_the_call(name: str) -> None:
    expected = call(OVERLAPS[name], torch.device("cpu"))
    for _ in range(2):
        assert call(OVERLAPS[name], DEVICE) == expected


OUTPUTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mm": lambda x, out: torch.mm(x, full(x.device), out=out),
    "addmm": lambda x, out: torch.addmm(x, x, full(x.device), out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 0, out=out),
    "renorm": lambda x, out: torch.renorm(x, 2, 0, 1.0, out=out),
    "index_add": lambda x, out: torch.index_add(
        x, 0, torch.zeros(len(x), dtype=torch.int64, device=x.device), x, out=out
    ),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("name", OUTPUTS)
def test_a_resized_output_does_not_overlap(name: str) -> None:
    function = OUTPUTS[name]

    def refused(device: torch.device) -> object:
        return function(full(device), square(device))

    expected = call(refused, torch.device("cpu"))
    for _ in range(2):  # repeated, because the second call uses cached metadata
        resized = function(full(DEVICE)[:2], square(DEVICE))
        assert torch.equal(resized.cpu(), function(full(torch.device("cpu"))[:2], torch.empty(0)))
    assert call(refused, DEVICE) == expected


MIXED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "conv2d": lambda x, y: torch.nn.functional.conv2d(y.view(1, 1, 2, 2), x.view(1, 1, 2, 2)),
    "bucketize": torch.bucketize,
    "searchsorted": lambda x, y: torch.searchsorted(y, x),
    "isin": torch.isin,
    "index_fill": lambda x, y: x.index_fill(0, y.long(), 2.0),
    "masked_select": lambda x, y: torch.masked_select(x, y.bool()),
    "polar": torch.polar,
    "gcd": lambda x, y: torch.gcd(x.long(), y.long()),
    "take": lambda x, y: x.take(y.long()),
    "solve": lambda x, y: torch.linalg.solve(x.view(2, 2), y.view(2, 2)),
    "narrow_copy": lambda x, y: torch.narrow_copy(x, 0, 0, 4, out=y),
    "grid_sample": lambda x, y: torch.nn.functional.grid_sample(
        x.view(1, 1, 2, 2), y.view(1, 1, 2, 2).expand(1, 1, 2, 2), align_corners=False
    ),
    "ormqr": lambda x, y: torch.ormqr(x.view(2, 2), x[:2], y.view(2, 2)),
    "embedding_bag": lambda x, y: torch.nn.functional.embedding_bag(
        y.long().view(1, 4) % 2, x.view(2, 2)
    ),
    "out=": lambda x, y: torch.atanh(x, out=y),
    "out= of the device": lambda x, y: torch.atanh(y, out=x),
}


@pytest.mark.parametrize("name", MIXED)
def test_a_cpu_tensor_among_device_tensors_is_refused(name: str) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            MIXED[name](ones(4), torch.ones(4))


def test_functions_of_python_are_for_cpu_tensors_only() -> None:
    x = ones(3)
    calls: dict[str, Callable[[], object]] = {
        "apply_": lambda: x.apply_(lambda value: value),
        "map_": lambda: x.map_(x, lambda value, _: value),
        "map2_": lambda: x.map2_(x, x, lambda value, *_: value),
    }
    for name, apply in calls.items():
        with pytest.raises(TypeError, match=f"^{name} is only implemented on CPU tensors$"):
            apply()


def test_errors_of_the_call_do_not_mention_later_kernels() -> None:
    torch.openreg._sleep(BUSY)
    with pytest.raises(RuntimeError) as raised:
        empty(DEVICE).uniform_(1, 0)
    assert "Kernels run later" not in str(raised.value)


def test_an_earlier_kernels_error_is_not_taken_for_the_calls() -> None:
    """The next call that waits raises the error, and says that kernels run after their launch."""
    table = ones(4, 2)
    torch.nn.functional.embedding(torch.tensor([1], device=DEVICE), table)
    torch.accelerator.synchronize(DEVICE)
    torch.openreg._sleep(BUSY)
    torch.nn.functional.embedding(torch.tensor([9], device=DEVICE), table)
    with pytest.raises(IndexError, match="Kernels run later"):
        empty(DEVICE).uniform_(1, 0)
    torch.accelerator.synchronize(DEVICE)


def test_errors_of_deterministic_mode_are_raised_by_the_call() -> None:
    def put(device: torch.device) -> Tensor:
        index = torch.tensor([0, 0], device=device)
        return torch.zeros(3, device=device).put_(index, torch.ones(2, device=device))

    put(DEVICE)
    torch.use_deterministic_algorithms(True)
    try:
        assert call(put, DEVICE) == call(put, torch.device("cpu"))
    finally:
        torch.use_deterministic_algorithms(False)


def test_kernels_with_new_arguments_do_not_wait_in_a_capture() -> None:
    x = ones(4, dtype=torch.int16)
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        y = torch.bitwise_left_shift(x, 3)
    x.fill_(2)
    graph.replay()
    assert y.tolist() == [16] * 4


def test_a_host_argument_may_change_after_the_call() -> None:
    losses = torch.randn(6, 2, 5, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    targets = torch.tensor([[1, 2], [3, 4]])
    expected = torch.nn.functional.ctc_loss(
        losses, targets, torch.tensor([6, 5]), torch.tensor([2, 1]), reduction="none"
    )
    losses, targets = losses.to(DEVICE), targets.to(DEVICE)
    for _ in range(2):
        steps, lengths = torch.tensor([6, 5]), torch.tensor([2, 1])
        torch.openreg._sleep(BUSY)
        found = torch.nn.functional.ctc_loss(losses, targets, steps, lengths, reduction="none")
        steps.fill_(0)
        lengths.fill_(0)
        torch.testing.assert_close(found.cpu(), expected)


def test_an_out_with_an_offset_is_given_enough_memory() -> None:
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    expected = x.kthvalue(2)
    for start in (0, 9):
        values = torch.zeros(9, device=DEVICE)[start:start]
        indices = torch.zeros(9, device=DEVICE, dtype=torch.int64)[start:start]
        torch.kthvalue(x.to(DEVICE), 2, out=(values, indices))
        assert values.untyped_storage().nbytes() >= 4 * (values.storage_offset() + 4)
        assert torch.equal(values.cpu(), expected.values)
        assert torch.equal(indices.cpu(), expected.indices)


def test_a_large_integer_is_rounded_once() -> None:
    # 2^53 + 2^29 + 1 is slightly above the midpoint between two float32 values. Rounding it to
    # double first would turn it into the midpoint, which then rounds down.
    scalar = 2**53 + 2**29 + 1
    for dtype in (torch.float32, torch.float64):
        x = torch.tensor([1.0, 3.0], dtype=dtype)
        for operation in (torch.mul, torch.add, torch.eq, torch.clamp_min):
            found = operation(x.to(DEVICE), scalar)
            assert torch.equal(found.cpu(), operation(x, scalar))


def test_elements_under_a_mask_are_written_without_a_wait() -> None:
    x = torch.arange(6.0).view(2, 3)
    y = x.to(DEVICE)
    x[x > 2] = 7.0
    x[x < 1] = torch.tensor([5.0])
    x[:, torch.tensor([True, False, True])] += 1
    mask, few, columns = y > 2, None, torch.tensor([True, False, True], device=DEVICE)
    torch.openreg.set_sync_debug_mode("error")
    try:
        y[mask] = 7.0
        few = y < 1
        y[few] = ones(1) * 5
        y.index_put_((few,), ones(1), accumulate=True)
    finally:
        torch.openreg.set_sync_debug_mode("default")
    y.index_put_((few,), -ones(1), accumulate=True)
    y[:, columns] += 1
    assert torch.equal(y.cpu(), x)
    with pytest.raises(IndexError, match="does not match the shape of the indexed tensor"):
        y[torch.ones(3, dtype=torch.bool, device=DEVICE)] = 1


# Uses of a tensor of three elements whose storage has lost its memory.
USES: dict[str, Callable[[Tensor], object]] = {
    "cpu": lambda x: x.cpu(),
    "cpu into pinned memory": lambda x: torch.empty(3, pin_memory=True).copy_(x, non_blocking=True),
    "to another device": lambda x: x.to(f"openreg:{torch.openreg.device_count() - 1}", copy=True),
    "double": lambda x: x.double(),
    "item": lambda x: x[0].item(),
    "tolist": lambda x: x.tolist(),
    "repr": repr,
    "clone": lambda x: x.clone(),
    "copy_": lambda x: x.copy_(ones(3)),
    "copy_ from the CPU": lambda x: x.copy_(torch.ones(3)),
    "fill_": lambda x: x.fill_(2),
    "uniform_": lambda x: x.uniform_(),
    "add": lambda x: x + 1,
    "add_": lambda x: x.add_(1),
    "add with out": lambda x: torch.add(ones(3), 1, out=x),
    "add as the second operand": lambda x: ones(3) + x,
    "sum": lambda x: x.sum(),
    "mv": lambda x: torch.mv(ones(2, 3), x),
    "index": lambda x: x[torch.tensor([0, 2], device=DEVICE)],
    "sort": lambda x: x.sort(),
    "fallback": lambda x: torch.special.bessel_j0(x),
    "foreach": lambda x: torch._foreach_add_([x, ones(3)], 1),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_a_tensor_whose_storage_has_no_memory_is_refused(use: Callable[[Tensor], object]) -> None:
    x = ones(3)
    x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=r"storage of (0 bytes|size 0)|unallocated"):
        use(x)
    torch.accelerator.synchronize(DEVICE)  # raises if an error is pending
    x.untyped_storage().resize_(12)
    assert x.copy_(ones(3)).tolist() == [1, 1, 1]


def test_a_tensor_without_elements_needs_no_memory() -> None:
    x = ones(2, 0)
    x.untyped_storage().resize_(0)
    assert (x + 1).sum().item() == 0
    assert x.cpu().shape == x.clone().shape == (2, 0)
