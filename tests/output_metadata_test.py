# SPDX-License-Identifier: BSD-3-Clause
"""If output metadata is cached, only an operator's first call makes the host wait."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch_openreg.openreg import fallback

from tests import child
from tests.differential import DEVICE, check, to_device

Arguments = tuple[Tensor, ...]
Make = Callable[[], Arguments]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    fallback.reset()
    yield
    fallback.reset()


def reals(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Make:
    """Returns a function that creates random arguments that require gradients."""
    return lambda: tuple(torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes)


def plain(*shapes: tuple[int, ...]) -> Make:
    """Returns a function that creates random arguments that do not require gradients."""
    return lambda: tuple(torch.randn(shape) for shape in shapes)


def _ctc() -> Arguments:
    return torch.randn(9, 2, 5).log_softmax(2).requires_grad_(), torch.randint(1, 5, (2, 3))


def _symmetric() -> Arguments:
    x = torch.randn(4, 4)
    return ((x @ x.t()).requires_grad_(),)


CASES: dict[str, tuple[Callable[..., object], Make]] = {
    "max_pool3d": (lambda x: functional.max_pool3d(x, 2), reals((2, 3, 4, 6, 4))),
    "max_unpool2d": (
        lambda x: functional.max_unpool2d(
            *functional.max_pool2d(x, 2, return_indices=True), (2, 2)
        ),
        reals((2, 3, 4, 6)),
    ),
    "adaptive_avg_pool3d": (
        lambda x: functional.adaptive_avg_pool3d(x, (2, 3, 2)),
        reals((2, 3, 4, 6, 4)),
    ),
    "avg_pool3d": (lambda x: functional.avg_pool3d(x, 2), reals((2, 3, 4, 6, 4))),
    "reflection_pad2d": (
        lambda x: functional.pad(x, (1, 2, 1, 0), mode="reflect"),
        reals((2, 3, 4, 6)),
    ),
    "replication_pad2d": (
        lambda x: functional.pad(x, (1, 2, 1, 0), mode="replicate"),
        reals((2, 3, 4, 6)),
    ),
    "replication_pad3d": (
        lambda x: functional.pad(x, (1, 2, 1, 0, 1, 1), mode="replicate"),
        reals((2, 3, 4, 6, 4)),
    ),
    "im2col": (lambda x: functional.unfold(x, 2), reals((2, 3, 4, 6))),
    "col2im": (lambda x: functional.fold(x, (4, 6), 2), reals((2, 12, 15))),
    "grid_sampler_2d": (
        lambda x, grid: functional.grid_sample(x, grid, align_corners=False),
        reals((2, 3, 4, 6), (2, 5, 5, 2)),
    ),
    "grid_sampler_3d": (
        lambda x, grid: functional.grid_sample(x, grid, align_corners=True),
        reals((2, 3, 4, 6, 4), (2, 2, 3, 3, 3)),
    ),
    "weight_norm": (lambda v, g: torch._weight_norm(v, g, 0), reals((4, 3), (4, 1))),
    "ctc_loss": (
        lambda x, t: torch.ctc_loss(x, t, (9, 8), (3, 2)),
        _ctc,
    ),
    # The inputs of these three cases do not require gradients, because torch's gradient formulas of
    # these operators read data on the host.
    "prod": (lambda x: x.prod(), plain((3, 4))),
    "median": (lambda x: x.median(), plain((3, 5))),
    "masked_scatter": (
        lambda x, y, mask: x.masked_scatter(mask > 0, y),
        plain((3, 4), (12,), (3, 4)),
    ),
    "median.dim": (lambda x: x.median(1), reals((3, 5))),
    "nanmedian.dim": (lambda x: x.nanmedian(1, keepdim=True), reals((3, 5))),
    "mode": (lambda x: x.mode(0), lambda: (torch.randint(0, 3, (9, 4)).float(),)),
    "kthvalue": (lambda x: x.kthvalue(2, 1), reals((3, 5))),
    "cummax": (lambda x: x.cummax(1), reals((3, 5))),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), reals((3, 5))),
    "nansum": (lambda x: x.nansum(1), reals((3, 5))),
    "trace": (lambda x: x.trace(), reals((4, 5))),
    # The input requires gradients and is also the output.
    "i0_": (lambda x: (x * 1).i0_(), reals((5,))),
    "histc": (lambda x: x.histc(4, -1, 1), plain((20,))),
    "searchsorted": (lambda x, y: torch.searchsorted(x.cumsum(0).abs(), y), plain((9,), (4,))),
    "bucketize": (lambda x, y: torch.bucketize(x, y), plain((3, 4), (5,))),
    "take": (
        lambda x, i: x.take(i),
        lambda: (torch.randn(3, 4).requires_grad_(), torch.randint(0, 12, (5,))),
    ),
    "put_": (
        lambda x, i, y: x.put_(i, y),
        lambda: (torch.randn(3, 4), torch.randperm(12)[:5], torch.randn(5)),
    ),
    "index_fill": (
        lambda x, i: x.index_fill(1, i, 2.5),
        lambda: (torch.randn(3, 4).requires_grad_(), torch.tensor([0, 2])),
    ),
    "floor_divide": (lambda x, y: x // y, plain((3, 4), (4,))),
    "count_nonzero": (lambda x: x.count_nonzero(1), plain((3, 4))),
    "matrix_exp": (torch.matrix_exp, reals((2, 3, 3))),
    "solve_triangular": (
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
        reals((3, 3), (3, 2)),
    ),
    "complex fft": (torch.fft.fft2, reals((3, 4, 6), dtype=torch.complex64)),
    "real fft": (lambda x: torch.fft.irfft(torch.fft.rfft(x)), reals((4, 6))),
    "multi_margin_loss": (
        functional.multi_margin_loss,
        lambda: (torch.randn(4, 5).requires_grad_(), torch.randint(0, 5, (4,))),
    ),
    "pdist": (functional.pdist, reals((5, 3))),
    "unfold": (lambda x: x.unfold(1, 3, 2) * 2, reals((3, 9))),
    "cholesky_inverse": (torch.cholesky_inverse, _symmetric),
    "conv_transpose3d": (
        lambda x, w: functional.conv_transpose3d(x, w),
        reals((1, 2, 3, 4, 3), (2, 3, 2, 2, 2)),
    ),
    "pixel_shuffle": (lambda x: functional.pixel_shuffle(x, 2), reals((2, 8, 3, 3))),
    # Structured operators never wait. Cached metadata replaces the call of their meta kernel.
    "lgamma": (torch.lgamma, reals((3, 4))),
    "lgamma_": (lambda x: x.lgamma_(), plain((4, 3))),
    "upsample": (
        lambda x: functional.interpolate(x, scale_factor=2, mode="trilinear"),
        reals((1, 2, 3, 4, 3)),
    ),
    "linalg.qr": (torch.linalg.qr, reals((4, 3))),
    # linalg.solve is not tested, because it waits on every device to report a singular matrix.
    "linalg.solve_ex": (torch.linalg.solve_ex, reals((3, 3), (3, 2))),
    "lu_solve": (
        lambda x, y: torch.linalg.lu_solve(*torch.linalg.lu_factor_ex(x)[:2], y.mT, adjoint=True),
        reals((3, 3), (2, 3), dtype=torch.complex64),
    ),
    "integers to reals": (torch.acos, lambda: (torch.randint(0, 2, (3, 4)),)),
    "out=": (lambda x: torch.erfc(x, out=torch.empty(0, device=x.device)), plain((3, 4))),
    "linspace": (lambda x: torch.linspace(0, 1, 5, device=x.device) * x, plain((5,))),
    "logspace": (lambda x: torch.logspace(0, 1, 5, device=x.device) * x, plain((5,))),
    "eye": (lambda x: torch.eye(3, 4, device=x.device) * x, plain((3, 4))),
    "lazy bits": (
        lambda x: torch.linalg.solve_triangular(x.mH, x.conj(), upper=False),
        reals((3, 3), dtype=torch.complex64),
    ),
}


def synchronous() -> dict[str, int]:
    """Returns how often each operator has waited since the last reset."""
    return {name: r.synchronous for name, r in fallback.stats().items() if r.synchronous > 0}


@pytest.mark.parametrize("name", CASES)
def test_the_second_call_is_right_and_does_not_wait(name: str) -> None:
    function, make = CASES[name]
    check(function, *make())
    fallback.reset()
    check(function, *make())
    assert synchronous() == {}


@pytest.mark.parametrize("name", CASES)
def test_forward_and_backward_run_ahead(name: str) -> None:
    function, make = CASES[name]
    arguments = [to_device(argument) for argument in make()]
    leaves = [argument for argument in arguments if argument.requires_grad]

    def step() -> None:
        results = function(*arguments)
        first = results if isinstance(results, Tensor) else next(iter(results))  # type: ignore[call-overload]
        if leaves and first.requires_grad:
            torch.autograd.grad(first.abs().sum(), leaves, allow_unused=True)

    step()
    torch.openreg.synchronize()
    torch.openreg._sleep(100_000_000)
    step()
    assert not torch.openreg.current_stream().query(), "the step made the host wait"
    torch.openreg.synchronize()


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("randperm", lambda: torch.randperm(9, device=DEVICE)),
        ("multinomial", lambda: torch.multinomial(torch.ones(4, 9, device=DEVICE), 9)),
        ("rrelu", lambda: functional.rrelu(-torch.ones(4, 9, device=DEVICE), training=True)),
        ("poisson", lambda: torch.poisson(torch.full((4, 9), 5.0, device=DEVICE))),
        ("gamma", lambda: torch._standard_gamma(torch.ones(4, 9, device=DEVICE))),
        ("normal", lambda: torch.normal(torch.zeros(4, 9, device=DEVICE), 1.0)),
    ],
)
def test_random_numbers_follow_from_the_seed(name: str, function: Callable[[], Tensor]) -> None:
    torch.openreg.manual_seed(1)
    first, second = function().cpu(), function().cpu()
    assert not torch.equal(first, second), name
    fallback.reset()
    torch.openreg.manual_seed(1)
    assert torch.equal(function().cpu(), first)
    assert torch.equal(function().cpu(), second)
    assert synchronous() == {}


def test_new_arguments_wait_once() -> None:
    def median(x: Tensor) -> Tensor:
        fallback.reset()
        found: Tensor = x.to(DEVICE).median(0).values
        assert torch.equal(found.cpu(), x.median(0).values)
        return x

    x = median(torch.randn(6, 4))
    assert synchronous() == {"aten::median.dim_values": 1}
    median(x + 1)
    assert synchronous() == {}
    for other in (x[:5], x.double(), torch.randn(4, 6).t(), x[:, :3]):
        median(other)
        assert synchronous() == {"aten::median.dim_values": 1}
    median(x)
    assert synchronous() == {}


def test_outputs_are_resized_without_waiting() -> None:
    for _ in range(2):
        fallback.reset()
        values = torch.empty(0, device=DEVICE)
        indices = torch.empty(0, dtype=torch.int64, device=DEVICE)
        results = torch.kthvalue(torch.ones(3, 4, device=DEVICE), 2, 1, out=(values, indices))
        assert results[0] is values
        assert values.tolist() == [1.0] * 3
        assert indices.shape == (3,)
    assert synchronous() == {}
    assert torch.eye(2, device=DEVICE).tolist() == [[1, 0], [0, 1]]


def test_outputs_with_data_are_resized_with_a_warning_each_time() -> None:
    for _ in range(2):
        out = torch.ones(3, device=DEVICE)
        with pytest.warns(UserWarning, match="resized"):
            torch.conj_physical(torch.full((2,), 5.0, device=DEVICE), out=out)
        assert out.tolist() == [5.0, 5.0]


def test_overlapping_arguments_are_refused_at_the_call() -> None:
    base = torch.tensor([5.0, 6, 0, 0, 0, 0], device=DEVICE)
    for _ in range(2):
        torch.nan_to_num(base[:2], out=base[4:])
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.nan_to_num(base[:4], out=base[2:])
    assert base.tolist() == [5, 6, 0, 0, 5, 6]


def test_errors_of_arguments_are_raised_by_each_call() -> None:
    x = torch.zeros(2, 3, device=DEVICE)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of range"):
            x.kthvalue(9, 1)
        with pytest.raises(IndexError, match="out of range"):
            x.median(5)


def test_an_error_of_data_is_raised_by_the_next_synchronization() -> None:
    x = torch.zeros(3, device=DEVICE)
    x.take(torch.tensor([2], device=DEVICE))
    x.take(torch.tensor([7], device=DEVICE))
    with pytest.raises(IndexError, match="out of range"):
        torch.openreg.synchronize()
    assert x.take(torch.tensor([1], device=DEVICE)).tolist() == [0.0]


def test_an_assertion_runs_ahead() -> None:
    x = torch.ones((), dtype=torch.bool, device=DEVICE)
    torch._assert_async(x)
    torch._assert_async(~x)
    with pytest.raises(RuntimeError, match="Expected Tensor with single nonzero value"):
        torch.openreg.synchronize()


def test_deterministic_mode_is_checked_at_the_call() -> None:
    x, index = torch.zeros(3, device=DEVICE), torch.tensor([1], device=DEVICE)
    x.put_(index, x[:1].clone())
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="put_ does not have a deterministic"):
            x.put_(index, x[:1].clone())
    finally:
        torch.use_deterministic_algorithms(False)


def test_arguments_may_change_after_the_call() -> None:
    x = torch.arange(5.0, device=DEVICE)
    x.median()
    torch.openreg._sleep(50_000_000)
    y = x.median()
    x.zero_()
    del x
    torch.full((5,), 9.0, device=DEVICE)
    assert y.item() == 2.0


def test_sizes_that_depend_on_data() -> None:
    """The host waits in every call of an operator whose output size depends on data."""
    for data, size in (([1, 1, 2], 2), ([4, 5, 6], 3), ([0, 0, 0], 1)):
        x = torch.tensor(data, device=DEVICE)
        assert torch.unique(x).numel() == size
        assert torch.bincount(x).numel() == max(data) + 1
        assert x.nonzero().numel() == sum(number != 0 for number in data)
        assert torch.masked_select(x, x > 1).numel() == sum(number > 1 for number in data)
        assert torch.repeat_interleave(x).numel() == sum(data)
    assert synchronous()["aten::bincount"] == 3
    # torch does not tag this operator, although the sum of the lengths determines its output size.
    for lengths in ([0, 1, 3], [0, 2, 4], [0, 1, 2]):
        offsets = [torch.tensor(lengths, device=DEVICE)]
        dense = torch.ones(2, 2, 3, device=DEVICE)
        jagged = torch.ops.aten._padded_dense_to_jagged_forward(dense, offsets)
        assert jagged.shape == (lengths[-1], 3)


def test_lengths_on_the_cpu_are_checked() -> None:
    x = torch.randn(9, 2, 5).log_softmax(2)
    for length in (3, 2, 1):
        targets, lengths = torch.ones(2, 3, dtype=torch.int64), torch.tensor([length, 1])
        expected = torch._ctc_loss(x, targets, torch.tensor([9, 8]), lengths)
        actual = torch._ctc_loss(x.to(DEVICE), targets.to(DEVICE), torch.tensor([9, 8]), lengths)
        assert actual[1].shape == expected[1].shape
        assert torch.allclose(actual[0].cpu(), expected[0])


def test_a_broken_promise_is_an_error_and_then_waits() -> None:
    """If an untagged operator's output size depends on data, one call raises; later ones wait."""
    done = child.run(
        """
        import torch
        library = torch.library.Library("aten", "IMPL")
        library.impl("trace", lambda x: x.new_zeros(int(x.max())), "CPU")
        ones = torch.ones(2, 2, device="openreg")
        assert torch.trace(ones).shape == (1,)
        assert torch.trace(ones).shape == (1,)
        torch.trace(ones * 3)
        try:
            torch.openreg.synchronize()
        except RuntimeError as error:
            assert "aten::trace returned results whose metadata differs" in str(error), error
        else:
            raise AssertionError
        assert torch.trace(ones * 3).shape == (3,)
        assert torch.trace(ones * 2).shape == (2,)
        print("done")
        """
    )
    assert done.stdout.strip() == "done", done.stderr


def test_a_meta_function_is_called_once() -> None:
    done = child.run(
        """
        import torch
        library = torch.library.Library("aten", "IMPL")
        asked = []

        def meta(x, *, out):
            asked.append(tuple(x.shape))
            return out.resize_(x.shape)

        library.impl("special_i0e.out", meta, "Meta")
        x = torch.rand(3, 4)
        for part in (x, x + 1, x[:2], x[1:3]):
            ours = torch.special.i0e(part.to("openreg"))
            torch.testing.assert_close(ours.cpu(), torch.special.i0e(part))
        print(asked)
        """
    )
    assert done.stdout.strip() == "[(3, 4), (2, 4)]", done.stderr
