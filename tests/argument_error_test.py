# SPDX-License-Identifier: BSD-3-Clause
"""What the arguments tell is raised by the call, in torch's words, also behind a busy stream."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

DEVICE = torch.device("openreg", 0)

# Long enough that no kernel of the call runs before the call returns.
BUSY = 100_000_000  # nanoseconds


def ones(*sizes: int, **options: Any) -> Tensor:
    return torch.ones(*sizes, device=DEVICE, **options)


def call(function: Callable[[torch.device], object], device: torch.device) -> str:
    """The type and the text of the error that a call raises by itself."""
    if device == DEVICE:
        torch.openreg._sleep(BUSY)
    try:
        function(device)
    except Exception as error:
        torch.accelerator.synchronize(DEVICE)  # nothing is left
        return f"{type(error).__name__}: {error}"
    raise AssertionError("the call raised nothing")


def empty(device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(3, device=device, dtype=dtype)


# A call that the CPU refuses, and one of the same sizes and dtypes that it takes.
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
        accepted(DEVICE)  # what was learned from it must not hide the error
    assert call(refused, DEVICE) == expected


DTYPES: dict[str, Callable[[torch.device], object]] = {
    "normal_": lambda d: empty(d, torch.int64).normal_(),
    "randn_like": lambda d: torch.randn_like(torch.ones(3, device=d, dtype=torch.int64)),
    "uniform_": lambda d: empty(d, torch.int64).uniform_(),
    "exponential_": lambda d: empty(d, torch.int64).exponential_(),
    "cdist": lambda d: torch.cdist(full(d).half(), full(d).half()),
    "gcd": lambda d: torch.gcd(torch.ones(3, device=d), torch.ones(3, device=d)),
    "smooth_l1_loss_backward": lambda d: torch.ops.aten.smooth_l1_loss_backward(
        torch.ones(3, device=d), *2 * [torch.ones(3, device=d, dtype=torch.int64)], 1, 1.0
    ),
    "mse_loss_backward": lambda d: torch.ops.aten.mse_loss_backward(
        torch.ones(3, device=d), *2 * [torch.ones(3, device=d, dtype=torch.int64)], 1
    ),
    "huber_loss": lambda d: torch.nn.functional.huber_loss(full(d).bool(), full(d).bool()),
}


@pytest.mark.parametrize("name", DTYPES)
def test_a_dtype_without_a_kernel_is_refused_by_the_call(name: str) -> None:
    expected = call(DTYPES[name], torch.device("cpu"))
    for _ in range(2):
        assert call(DTYPES[name], DEVICE) == expected


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


def test_errors_of_the_call_do_not_speak_of_later_kernels() -> None:
    torch.openreg._sleep(BUSY)
    with pytest.raises(RuntimeError) as raised:
        empty(DEVICE).uniform_(1, 0)
    assert "Kernels run later" not in str(raised.value)


def test_an_earlier_kernels_error_is_not_taken_for_the_calls() -> None:
    """It is raised by the call that waits, with the words for an error of an earlier kernel."""
    table = ones(4, 2)
    torch.nn.functional.embedding(torch.tensor([1], device=DEVICE), table)
    torch.accelerator.synchronize(DEVICE)
    torch.openreg._sleep(BUSY)
    torch.nn.functional.embedding(torch.tensor([9], device=DEVICE), table)
    with pytest.raises(IndexError, match="Kernels run later"):
        empty(DEVICE).uniform_(1, 0)
    torch.accelerator.synchronize(DEVICE)


def test_what_deterministic_mode_refuses_is_refused_by_the_call() -> None:
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
    # 2^53 + 2^29 + 1 lies behind the middle of two floats; as a double it lies in the middle.
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
