# SPDX-License-Identifier: BSD-3-Clause
"""Tests pointwise operators: the fast path, and arguments that are not eligible for it.

The tests cover the operators in aten/structured/operators.yaml that use the fast path.
"""

import math
import pathlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from tests.differential import check, check_error, is_queued

LIST = pathlib.Path(__file__).parents[1] / "aten/structured/operators.yaml"
OPERATORS = [
    operator
    for family in yaml.safe_load(LIST.read_text())
    if "pointwise" in family
    for operator in family["operators"]
]

SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4, 5), (0, 3), (65, 1001)]
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, -1e-40, 1.0, -1.0, 0.5, 1.5, 88.8, 3e38]
# Values for scalar parameters that have no default. Parameters that are not listed get 0.5.
SCALARS = {"value": 0.7, "weight": 0.3, "beta": 1.3, "threshold": 0.2}


def overload(operator: str) -> Any:
    """Returns the overload of an operator by its name, such as "add.Tensor"."""
    name, _, rest = operator.partition(".")
    return getattr(getattr(torch.ops.aten, name), rest or "default")


def in_place(operator: str) -> Any | None:
    """Returns the in-place variant of an operator, or None if it has none."""
    name, _, rest = operator.partition(".")
    packet = getattr(torch.ops.aten, f"{name}_", None)
    return None if packet is None else getattr(packet, rest or "default", None)


def arguments(function: Any, shape: tuple[int, ...], dtype: torch.dtype) -> list[Any]:
    """Returns random tensors and scalars for all parameters that have no default."""
    return [
        torch.randn(shape, dtype=dtype)
        if str(argument.type) == "Tensor"
        else SCALARS.get(argument.name, 0.5)
        for argument in function._schema.arguments
        if argument.default_value is None and not argument.kwarg_only
    ]


def test_list_names_the_operators_of_training() -> None:
    assert {"add.Tensor", "mul.Tensor", "div.Tensor", "sigmoid", "gt.Scalar"} <= set(OPERATORS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("operator", OPERATORS)
def test_tensors_of_one_dtype_and_layout(operator: str, dtype: torch.dtype) -> None:
    function = overload(operator)
    for shape in SHAPES:
        check(function, *arguments(function, shape, dtype))


@pytest.mark.parametrize("operator", [o for o in OPERATORS if in_place(o) is not None])
def test_in_place(operator: str) -> None:
    function: Any = in_place(operator)
    for shape in SHAPES:
        check(function, *arguments(function, shape, torch.float32))


@pytest.mark.parametrize("operator", OPERATORS)
def test_special_values(operator: str) -> None:
    function = overload(operator)
    values = torch.tensor(SPECIAL)
    grid = [x.flatten().contiguous() for x in torch.meshgrid(values, values, indexing="ij")]
    given = arguments(function, (1,), torch.float32)
    tensors = (grid[i % 2] for i in range(len(given)))
    check(function, *(next(tensors) if isinstance(x, Tensor) else x for x in given))


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("layout", ["transposed", "sliced", "broadcast", "negative"])
def test_other_layouts_are_not_eligible(operator: str, layout: str) -> None:
    function = overload(operator)
    given = arguments(function, (4, 4), torch.float32)
    change: dict[str, Callable[[Tensor], Tensor]] = {
        "transposed": lambda x: x.t(),
        "sliced": lambda x: x[:, ::2],
        "broadcast": lambda x: x[:1],
        "negative": lambda x: x._neg_view(),
    }
    last = max(i for i, x in enumerate(given) if isinstance(x, Tensor))

    def call(*operands: Any) -> Any:
        changed = [
            change[layout](x) if isinstance(x, Tensor) and (i == last or layout == "sliced") else x
            for i, x in enumerate(operands)
        ]
        return function(*changed)

    check(call, *given)


def halves_added(x: Tensor) -> Tensor:
    x[0].add_(x[1])
    return x


NUMBER_CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "x * 2": lambda x: x * 2,
    "2.5 * x": lambda x: 2.5 * x,
    "1 - x": lambda x: 1 - x,
    "x + True": lambda x: x + True,
    "x / 3": lambda x: x / 3,
    "3 / x": lambda x: 3 / x,
    "x - inf": lambda x: x - math.inf,
    "x * nan": lambda x: x * math.nan,
    "x * 1e300": lambda x: x * 1e300,
    "x + 1j": lambda x: x + 1j,
    "x > 0": lambda x: x > 0,
    "x > 1e300": lambda x: x / 0 > 1e300,
    "x == 0.1": lambda x: x == 0.1,
    "x != inf": lambda x: x != math.inf,
    "x <= True": lambda x: x <= True,
    "x + 2**53+1": lambda x: x + (2**53 + 1),
    "alpha": lambda x: torch.sub(x, x * 2, alpha=2.5),
    "integer alpha": lambda x: torch.add(x, 1, alpha=-3),
    "zero-dim number": lambda x: x.add(torch.tensor(1.5)),
    "zero-dim double": lambda x: x.mul(torch.tensor(0.1, dtype=torch.float64)),
    "clamp to nan": lambda x: x.clamp_min(math.nan),
    "clamp to inf": lambda x: x.clamp_max(math.inf),
    "rsub": lambda x: torch.rsub(x, 4, alpha=2),
    "in place": lambda x: x.add_(1.5).mul_(2).sub_(0.5, alpha=3).div_(7),
    "in place, itself": lambda x: x.add_(x).mul_(x),
    "in place, views": lambda x: x.view(-1).add_(x.view(-1)),
    "in place, of one storage": lambda x: halves_added(torch.stack([x, x * 2])),
    "compare in place": lambda x: x.gt_(0.5),
    "sizes of one": lambda x: x.as_strided((1, x.numel()), (1, 1)) * 2,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4)])
@pytest.mark.parametrize("case", NUMBER_CASES)
def test_numbers(case: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = (torch.randn(shape) * 3 + 0.1).to(dtype)
    function = NUMBER_CASES[case]
    try:
        function(x.clone())
    except (RuntimeError, TypeError):
        check_error(function, x)
    else:
        check(function, x)
        assert function(x.clone()).stride() == function(x.to("openreg")).stride()


ERROR_CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "boolean alpha": lambda x: torch.add(x, x, alpha=True),
    "complex alpha": lambda x: torch.add(x, x, alpha=1j),
    "partly the same memory": lambda x: x.view(-1)[1:].add_(x.view(-1)[:-1]),
    "the same memory in other strides": lambda x: x.view(1, 12, 1).sub_(x.view(1, 12, 1)[..., ::4]),
    "expanded output": lambda x: x[0].expand(3, 4).add_(x),
    "sizes": lambda x: x + x[:2, :3],
    "dtype in place": lambda x: x.add_(1j),
    "no place to write": lambda x: x[0].mul_(x),
}


@pytest.mark.parametrize("case", ERROR_CASES)
def test_errors(case: str) -> None:
    check_error(ERROR_CASES[case], torch.randn(3, 4))


def test_other_device() -> None:
    x, y = (torch.ones(3, device=f"openreg:{i}") for i in range(2))
    with pytest.raises(RuntimeError, match="openreg:0 and openreg:1"):
        x + y
    with pytest.raises(RuntimeError, match="openreg:1 and cpu"):
        y.mul_(torch.ones(3))


def test_result_is_on_the_device_of_the_tensors() -> None:
    x = torch.ones(3, device="openreg:1")
    assert torch.openreg.current_device() == 0
    assert (x * 2 > x).device == x.device


def test_is_queued() -> None:
    x, y = torch.randn(2, 5)
    assert is_queued(lambda x, y: (x + y).mul_(2).sigmoid() > 0.5, x, y)


def test_gradients() -> None:
    x = torch.randn(4, 5, requires_grad=True)
    check(lambda x: (x.relu() * 2 + x.sigmoid() / (x.exp() + 1)).tanh().log1p(), x)


def test_many_threads_at_once() -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(50):
            x = (x * 0.5 + 1).sqrt()
        return x

    start = torch.rand(8, 16)
    expected = [chain(x) for x in start]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(chain, start.to("openreg")))
    torch.testing.assert_close([x.cpu() for x in results], expected)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 300])
def test_kaiser_window(length: int, periodic: bool) -> None:
    for dtype in (torch.float32, torch.float64):
        options: dict[str, Any] = {"periodic": periodic, "beta": 7.5, "dtype": dtype}
        expected = torch.kaiser_window(length, **options)
        actual = torch.kaiser_window(length, device="openreg", **options)
        assert torch.equal(actual.cpu(), expected)
