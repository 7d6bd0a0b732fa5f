# SPDX-License-Identifier: BSD-3-Clause
"""Tests products of quantized matrices (int8, int4, float8). Grouped products share some tests."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.testing import assert_close

from tests.differential import Function, check, check_error, is_queued, to_device
from tests.graph_capture import capture
from tests.graph_capture import quiet_devices as quiet_devices
from tests.kernel_cache import own_cache as own_cache

DEVICE = "openreg"
FLOAT8 = torch.float8_e4m3fn
REDUCED = [torch.float32, torch.bfloat16, torch.float16]


def int8(*sizes: int) -> Tensor:
    return torch.randint(-128, 128, sizes, dtype=torch.int8)


def float8(*sizes: int) -> Tensor:
    return torch.randn(sizes).to(FLOAT8)


# ------------------------------------------------------------------------------------ int8 products


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(0, 40),
    k=st.integers(0, 70),
    n=st.integers(0, 40),
    unsigned=st.booleans(),
    transposed=st.tuples(st.booleans(), st.booleans()),
)
def test_int_mm(m: int, k: int, n: int, unsigned: bool, transposed: tuple[bool, bool]) -> None:
    left = int8(k, m).t() if transposed[0] else int8(m, k)
    right = int8(n, k).t() if transposed[1] else int8(k, n)
    if unsigned:
        left = left.view(torch.uint8)
    # Do not compare with the CPU: if a one-row matrix has strides (1, 1), the CPU returns
    # uninitialized memory.
    result = torch._int_mm(to_device(left), to_device(right))
    assert result.dtype == torch.int32
    assert result.is_contiguous()
    assert torch.equal(result.cpu().long(), left.long() @ right.long())


def test_int_mm_to_a_given_tensor() -> None:
    left, right = int8(5, 32), int8(32, 7)
    check(
        lambda a, b, out: torch._int_mm(a, b, out=out),
        left,
        right,
        torch.empty(5, 7, dtype=torch.int32),
    )
    for out in (
        torch.empty(5, 7),
        torch.empty(0, dtype=torch.int32),
        torch.empty(5, 8, dtype=torch.int32),
        torch.empty(7, 5, dtype=torch.int32).t(),
    ):
        check_error(
            lambda a, b, out: torch._int_mm(a, b, out=out),
            left,
            right,
            out,
            words="Expected result",
        )


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        (int8(5), int8(5, 7), "Expected self to be of dimension 2 but got 1"),
        (int8(3, 5), int8(5, 7, 2), "Expected mat2 to be of dimension 2 but got 3"),
        (int8(3, 5), int8(4, 7), "self.size(1) needs to match mat2.size(0) but got 5 and 4"),
        (int8(3, 5).float(), int8(5, 7), "Expected self dtype to be int8 or uint8 but got float"),
        (int8(3, 5), int8(5, 7).int(), "Expected mat2 dtype to be of type int8 but got int"),
    ],
)
def test_wrong_arguments_of_int_mm(left: Tensor, right: Tensor, words: str) -> None:
    check_error(torch._int_mm, left, right, words=words)


@settings(max_examples=40, deadline=None)
@given(
    m=st.integers(0, 20),
    k=st.one_of(st.integers(1, 70), st.sampled_from([32, 64, 96])),
    n=st.integers(0, 70),
    dtype=st.sampled_from(REDUCED),
    gaps=st.booleans(),
)
def test_weight_int8pack_mm(m: int, k: int, n: int, dtype: torch.dtype, gaps: bool) -> None:
    x = torch.randn(m, 2 * k).to(dtype)[:, k:] if gaps else torch.randn(m, k).to(dtype)
    weight, scales = int8(n, k), (torch.rand(n) / 64).to(dtype)
    result = torch._weight_int8pack_mm(*map(to_device, (x, weight, scales)))
    expected = x.double() @ weight.double().t() * scales.double()
    rtol = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    assert result.dtype == dtype
    assert_close(result.cpu().double(), expected, rtol=rtol, atol=rtol * float(k) ** 0.5)
    # For other widths, the CPU kernel reads out of bounds: it crashes or returns NaN.
    if k % 32 == 0:
        check(torch._weight_int8pack_mm, x, weight, scales)


@pytest.mark.parametrize(
    ("x", "weight", "scales", "words"),
    [
        (torch.ones(3, 5).double(), int8(7, 5), torch.ones(7), "either 32-bit or 16-bit float"),
        (torch.ones(2, 3, 5), int8(7, 5), torch.ones(7), "expect A to be 2D tensor"),
        (torch.ones(5, 3).t(), int8(7, 5), torch.ones(7), "A must be contiguous on the last dim"),
        (torch.ones(3, 5), int8(7, 5).int(), torch.ones(7), "expect B to be int8 tensor"),
        (torch.ones(3, 5), int8(5, 7).t(), torch.ones(7), "expect B to be contiguous"),
        (torch.ones(3, 5), int8(7, 6), torch.ones(7), "expect B.size(1) == 5"),
        (torch.ones(3, 5), int8(7, 5), torch.ones(8), "scales to be 1d tensor with size 7"),
        (torch.ones(3, 5), int8(7, 5), torch.ones(7).half(), "expected scalar type Float but"),
    ],
)
def test_wrong_arguments_of_weight_int8pack_mm(
    x: Tensor, weight: Tensor, scales: Tensor, words: str
) -> None:
    check_error(torch._weight_int8pack_mm, x, weight, scales, words=words)


# ------------------------------------------------------------------------------------ int4 products


def two_a_byte(numbers: Tensor) -> Tensor:
    """Packs each pair of columns into bytes, with the first column in the upper bits."""
    return (numbers[:, ::2] << 4 | numbers[:, 1::2]).to(torch.uint8)


def int4(n: int, k: int, group: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Returns random int4 values, their scales and zero points, and the weight they represent."""
    numbers = torch.randint(0, 16, (n, k), dtype=torch.int32)
    scales_and_zeros = torch.rand(k // group, n, 2).to(dtype)
    scales, zeros = scales_and_zeros.double().repeat_interleave(group, 0).unbind(2)
    return numbers, scales_and_zeros, ((numbers - 8) * scales.t() + zeros.t())


def packed(numbers: Tensor, tiles: int) -> Tensor:
    return torch._convert_weight_to_int4pack(two_a_byte(numbers).to(DEVICE), tiles)


@settings(max_examples=40, deadline=None)
@given(
    m=st.integers(0, 9),
    n=st.integers(0, 5),
    k=st.integers(1, 3),
    group=st.sampled_from([32, 64, 128, 256]),
    tiles=st.sampled_from([2, 4, 8]),
    dtype=st.sampled_from(REDUCED),
    gaps=st.booleans(),
)
def test_weight_int4pack_mm(
    m: int, n: int, k: int, group: int, tiles: int, dtype: torch.dtype, gaps: bool
) -> None:
    n, k = 8 * n, k * max(group, 16 * tiles)
    numbers, scales_and_zeros, weight = int4(n, k, group, dtype)
    x = torch.randn(m, 2 * k if gaps else k).to(dtype)[:, :k]
    result = torch._weight_int4pack_mm(
        to_device(x), packed(numbers, tiles), group, to_device(scales_and_zeros)
    )
    assert result.dtype == dtype
    rtol = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    expected = x.double() @ weight.t()
    assert_close(result.cpu().double(), expected, rtol=rtol, atol=rtol * float(k) ** 0.5)


def test_weight_int4pack_mm_is_that_of_the_cpu() -> None:
    """Compares with the results of the CPU's operator, which packs the same weight differently."""
    numbers, scales_and_zeros, _ = int4(1024, 512, 64, torch.bfloat16)
    for m in (1, 33):
        x = torch.randn(m, 512).bfloat16()
        expected = torch._weight_int4pack_mm_for_cpu(
            x, torch._convert_weight_to_int4pack_for_cpu(numbers, 2), 64, scales_and_zeros
        )
        result = torch._weight_int4pack_mm(
            to_device(x), packed(numbers, 8), 64, to_device(scales_and_zeros)
        )
        assert_close(result.cpu(), expected, rtol=2e-2, atol=2e-1)


def test_tiles_of_a_packed_weight_are_a_packed_weight() -> None:
    numbers, scales_and_zeros, weight = int4(32, 256, 64, torch.float32)
    whole = packed(numbers, 4)
    assert whole.shape == (4, 4, 32, 2)
    assert torch.equal(packed(numbers[8:24, 64:192], 4), whole[1:3, 1:3])
    x = torch.randn(3, 128)
    part = torch._weight_int4pack_mm(
        x.to(DEVICE),
        whole[1:3, 1:3].contiguous(),
        64,
        scales_and_zeros[1:3, 8:24].contiguous().to(DEVICE),
    )
    assert_close(part.cpu(), x @ weight[8:24, 64:192].float().t(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("weight", "tiles", "words"),
    [
        (torch.ones(8, dtype=torch.uint8), 2, "expected a matrix, but got 1 dimensions"),
        (torch.ones(8, 16, dtype=torch.int32), 2, "expected a uint8 weight"),
        (torch.ones(8, 16, dtype=torch.uint8), 3, "innerKTiles must be 2, 4 or 8, but is 3"),
        (torch.ones(9, 16, dtype=torch.uint8), 2, "rows must be a multiple of 8, but is 9"),
        (torch.ones(8, 16, dtype=torch.uint8), 4, "columns must be a multiple of 64"),
    ],
)
def test_wrong_weights_are_not_packed(weight: Tensor, tiles: int, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        torch._convert_weight_to_int4pack(weight.to(DEVICE), tiles)


def test_wrong_arguments_of_weight_int4pack_mm() -> None:
    numbers, scales_and_zeros, _ = int4(16, 128, 64, torch.float32)
    x, weight, scales = torch.randn(3, 128, device=DEVICE), packed(numbers, 4), scales_and_zeros
    scales = scales.to(DEVICE)
    for words, arguments in {
        "expected the input to be a matrix": (x[0], weight, 64, scales),
        "expected a float32, float16 or bfloat16 input, but got Double": (
            x.double(),
            weight,
            64,
            scales,
        ),
        "the input has 64 columns, but the weight has 128": (x[:, :64], weight, 64, scales),
        "expected a contiguous weight from _convert_weight_to_int4pack": (x, x, 64, scales),
        "but got Int of sizes": (x, weight.transpose(0, 1), 64, scales),
        "qGroupSize must be 32, 64, 128 or 256, but is 16": (x, weight, 16, scales),
        "128 columns are not a multiple of qGroupSize 256": (x, weight, 256, scales),
        r"scales and zeros of sizes \[4, 16, 2\]": (x, weight, 32, scales),
        "scales and zeros with the input's dtype BFloat16": (x.bfloat16(), weight, 64, scales),
    }.items():
        with pytest.raises(RuntimeError, match=words):
            torch._weight_int4pack_mm(*arguments)
    with pytest.raises(RuntimeError, match="same device"):
        torch._weight_int4pack_mm(x, weight, 64, scales.cpu())


# ---------------------------------------------------------------------------------- float8 products


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(0, 20),
    k=st.integers(1, 40),
    n=st.integers(1, 20),
    rowwise=st.booleans(),
    bias=st.booleans(),
    out=st.sampled_from([*REDUCED, FLOAT8]),
    right=st.sampled_from([FLOAT8, torch.float8_e5m2]),
    second=st.booleans(),
)
def test_scaled_mm(
    m: int,
    k: int,
    n: int,
    rowwise: bool,
    bias: bool,
    out: torch.dtype,
    right: torch.dtype,
    second: bool,
) -> None:
    a, b = float8(m, k), float8(n, k).to(right).t()
    scales = (torch.rand(m, 1), torch.rand(1, n)) if rowwise else (torch.rand(()), torch.rand(1))
    extra = torch.randn(n) if bias else None
    recipe = functional.ScalingType.RowWise if rowwise else functional.ScalingType.TensorWise

    def product(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *bias: Tensor) -> Tensor:
        given = bias[0] if bias else None
        if second:
            result = functional.scaled_mm(
                a, b, scale_a, recipe, scale_b, recipe, bias=given, output_dtype=out
            )
        else:
            result = torch._scaled_mm(a, b, scale_a, scale_b, bias=given, out_dtype=out)
        # torch.testing has no tolerance for float8, so convert it to float.
        return result.float() if out == FLOAT8 else result

    check(product, a, b, *scales, *([] if extra is None else [extra]))
    if out == torch.float32:
        result = product(
            *map(to_device, (a, b, *scales)), *([] if extra is None else [extra.to(DEVICE)])
        )
        expected = (a.double() * scales[0]) @ (b.double() * scales[1])
        expected = expected if extra is None else expected + extra
        assert_close(result.cpu().double(), expected, rtol=1e-4, atol=1e-4)


def test_scaled_mm_scales_its_result() -> None:
    for scale in (torch.tensor(2.0), torch.tensor([0.5])):
        check(
            lambda a, b, s, r: torch._scaled_mm(
                a, b, s, s, scale_result=r, out_dtype=FLOAT8
            ).float(),
            float8(4, 32),
            float8(16, 32).t(),
            torch.tensor(1.5),
            scale,
        )


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_scaled_mm_to_a_given_tensor() -> None:
    a, b, s = float8(4, 32), float8(16, 32).t(), torch.tensor(0.5)
    for out in (
        torch.empty(4, 16),
        torch.empty(16, 4).t(),
        torch.empty(0),
        torch.empty(4, 32)[:, ::2],
        torch.empty(4, 16).bfloat16(),
    ):
        check(
            lambda a, b, s, out: torch._scaled_mm(a, b, s, s, out_dtype=out.dtype, out=out),
            a, b, s, out,
        )  # fmt: skip
        check(
            lambda a, b, s, out: torch._scaled_mm_v2(
                a, b, [s], [0], [], [s], [0], [], None, out.dtype, out=out
            ),
            a, b, s, out,
        )  # fmt: skip
    check_refusal(
        lambda a, b, s, out: torch._scaled_mm(a, b, s, s, out_dtype=torch.half, out=out),
        a, b, s, torch.empty(4, 16), words="out_dtype must match output matrix type",
    )  # fmt: skip


def check_refusal(function: Function, *arguments: Any, words: str) -> None:
    """Checks that a call fails on both sides. On the device, the message must contain `words`.

    The processor determines which of torch's two CPU implementations of _scaled_mm runs. Their
    exceptions differ in type and text.
    """
    refusals = (RuntimeError, ValueError)
    with pytest.raises(refusals):
        function(*arguments)
    with pytest.raises(refusals, match=re.escape(words)):
        function(*(to_device(a) if isinstance(a, Tensor) else a for a in arguments))


ONE = torch.tensor(1.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": float8(32)}, "mat1 must be a matrix"),
        ({"b": float8(32)}, "mat2 must be a matrix"),
        ({"b": float8(31, 16)}, "mat1 and mat2 shapes cannot be multiplied (4x32 and 31x16)"),
        ({"a": torch.ones(4, 32)}, "Invalid scaling configuration."),
        (
            {"a": torch.ones(4, 32), "b": torch.ones(32, 16)},
            "Expected mat1 to be Float8 matrix got Float",
        ),
        ({"scale_a": torch.ones(4, 1)}, "Invalid scaling configuration."),
        ({"scale_a": torch.ones(4)}, "Invalid scaling configuration."),
        (
            {"scale_a": torch.ones(8, 1)[::2], "scale_b": torch.ones(1, 16)},
            "Invalid scaling configuration.",
        ),
        (
            {"scale_a": torch.ones(4, 1).double(), "scale_b": torch.ones(1, 16).double()},
            "Invalid scaling configuration.",
        ),
        ({"bias": torch.ones(15)}, "Bias must be size 16 but got 15"),
        ({"scale_result": torch.ones(2)}, "scale_result must be a float scalar"),
    ],
)
def test_wrong_arguments_of_scaled_mm(change: dict[str, Any], words: str) -> None:
    check_refusal(torch._scaled_mm, *scaled_mm_arguments(change), words=words)


@pytest.mark.parametrize("change", [{"bias": torch.ones(16).double()}, {"out_dtype": torch.int32}])
def test_scaled_mm_accepts_the_same_dtypes_as_the_cpu(change: dict[str, Any]) -> None:
    arguments = scaled_mm_arguments(change)
    try:
        torch._scaled_mm(*arguments)
    except RuntimeError:  # only oneDNN refuses these dtypes
        check_error(torch._scaled_mm, *arguments, words="itensor_view_from_dense expects")
    else:
        check(torch._scaled_mm, *arguments)


def scaled_mm_arguments(change: dict[str, Any]) -> list[Any]:
    """Returns the arguments of a valid call of _scaled_mm, some of which are replaced."""
    arguments = {
        "a": float8(4, 32),
        "b": float8(16, 32).t(),
        "scale_a": ONE,
        "scale_b": ONE,
        "bias": None,
        "scale_result": None,
        "out_dtype": torch.bfloat16,
        **change,
    }
    return list(arguments.values())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": float8(32)}, "mat_a must be a matrix"),
        ({"b": float8(31, 16)}, "mat_a and mat_b shapes cannot be multiplied (4x32 and 31x16)"),
        ({"scale_a": torch.ones(2)}, "scale_a must have 1 Float element"),
        ({"recipe_a": [1]}, "Invalid scaling configuration."),
        (
            {"recipe_a": [1], "recipe_b": [1], "scale_a": torch.ones(5, 1)},
            "scale_a must have shape [4, 1], got [[5, 1]]",
        ),
        ({"swizzle_a": [1], "swizzle_b": [1]}, "does not support swizzle."),
    ],
)
def test_wrong_arguments_of_scaled_mm_v2(change: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {
        "a": float8(4, 32),
        "b": float8(16, 32).t(),
        "scale_a": ONE,
        "recipe_a": [0],
        "swizzle_a": [],
        "scale_b": torch.ones(1, 1),
        "recipe_b": [0],
        "swizzle_b": [],
        **change,
    }

    def product(
        a: Tensor, b: Tensor, scale_a: Tensor, ra: Any, sa: Any, scale_b: Tensor, rb: Any, sb: Any
    ) -> Tensor:
        return torch._scaled_mm_v2(a, b, [scale_a], ra, sa, [scale_b], rb, sb, None, torch.bfloat16)

    check_error(product, *arguments.values(), words=words)


# --------------------------------------------------------------------- tests shared by all products


def _int4_arguments() -> tuple[Any, ...]:
    numbers, scales_and_zeros, _ = int4(16, 128, 64, torch.bfloat16)
    return torch.randn(3, 128).bfloat16(), packed(numbers, 2).cpu(), 64, scales_and_zeros


OPERATORS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "_int_mm": (torch._int_mm, lambda: (int8(4, 32), int8(32, 8))),
    "_weight_int8pack_mm": (
        torch._weight_int8pack_mm,
        lambda: (torch.randn(4, 32).bfloat16(), int8(8, 32), torch.rand(8).bfloat16()),
    ),
    "_convert_weight_to_int4pack": (
        torch._convert_weight_to_int4pack,
        lambda: (torch.randint(0, 256, (8, 32), dtype=torch.uint8), 4),
    ),
    "_weight_int4pack_mm": (torch._weight_int4pack_mm, _int4_arguments),
    "_scaled_mm": (
        lambda a, b, s: torch._scaled_mm(a, b, s, s, out_dtype=torch.bfloat16),
        lambda: (float8(16, 32), float8(16, 32).t(), torch.tensor(0.5)),
    ),
    "_scaled_mm, by row": (
        lambda a, b, s, t: torch._scaled_mm(a, b, s, t, out_dtype=torch.bfloat16),
        lambda: (float8(16, 32), float8(16, 32).t(), torch.rand(16, 1), torch.rand(1, 16)),
    ),
    "_scaled_mm_v2": (
        lambda a, b, s: torch._scaled_mm_v2(a, b, [s], [0], [], [s], [0], [], None, torch.bfloat16),
        lambda: (float8(16, 32), float8(16, 32).t(), torch.tensor(0.5)),
    ),
    "_grouped_mm": (
        lambda a, b, offs: torch._grouped_mm(a, b, offs=offs),
        lambda: (
            torch.randn(8, 16).bfloat16(),
            torch.randn(3, 16, 7).bfloat16().mT.contiguous().mT,
            torch.tensor([1, 2, 8], dtype=torch.int32),
        ),
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_does_not_wait_or_fall_back(name: str) -> None:
    function, make = OPERATORS[name]
    arguments = [to_device(a) if isinstance(a, Tensor) else a for a in make()]
    with torch.openreg.fallback.policy("error"):
        expected = function(*arguments)  # warm-up: the first call may wait
        torch.openreg.synchronize()
        torch.openreg._sleep(200_000_000)
        actual = function(*arguments)
        assert not torch.openreg.current_stream().query()
    assert torch.equal(actual.cpu(), expected.cpu())


def test_is_queued_and_then_right() -> None:
    for name in ("_int_mm", "_weight_int8pack_mm", "_scaled_mm_v2"):
        function, make = OPERATORS[name]
        assert is_queued(function, *make()), name


@pytest.mark.parametrize("name", OPERATORS)
def test_graphs_compute_with_new_numbers(name: str) -> None:
    function, make = OPERATORS[name]
    arguments, others = (
        [to_device(a) if isinstance(a, Tensor) else a for a in make()] for _ in "ab"
    )
    graph, result = capture(lambda: function(*arguments))
    for argument, other in zip(arguments, others, strict=True):
        if isinstance(argument, Tensor):
            argument.copy_(other)
    for _ in range(2):
        graph.replay()
        assert torch.equal(result.cpu(), function(*others).cpu())


@pytest.mark.parametrize("name", OPERATORS)
def test_fake_tensors_are_like_real_ones(name: str) -> None:
    function, make = OPERATORS[name]
    arguments = [to_device(a) if isinstance(a, Tensor) else a for a in make()]
    real = function(*arguments)
    with FakeTensorMode() as mode:
        fake = function(*[mode.from_tensor(a) if isinstance(a, Tensor) else a for a in arguments])
    assert (fake.dtype, fake.shape, fake.stride(), fake.device) == (
        real.dtype,
        real.shape,
        real.stride(),
        real.device,
    )


@pytest.mark.parametrize("name", OPERATORS)
def test_tensors_of_the_cpu_are_refused(name: str) -> None:
    function, make = OPERATORS[name]
    arguments = make()
    for place, argument in enumerate(arguments):
        if isinstance(argument, Tensor) and argument.dim() > 0 and len(arguments) > 2:
            mixed = [to_device(a) if isinstance(a, Tensor) else a for a in arguments]
            mixed[place] = argument
            with pytest.raises(RuntimeError, match="same device"):
                function(*mixed)


@pytest.mark.parametrize("name", OPERATORS)
def test_compiled(name: str) -> None:
    """Compiles the operator between two generated kernels, and compares with eager mode."""
    function, make = OPERATORS[name]
    arguments = [to_device(a) if isinstance(a, Tensor) else a for a in make()]

    def run(*arguments: Any) -> Tensor:
        result: Tensor = function(*arguments).float() * 2
        return result

    torch._dynamo.reset()
    compiled = torch.compile(run, fullgraph=True)
    assert_close(compiled(*arguments), run(*arguments))
