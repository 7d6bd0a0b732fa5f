# SPDX-License-Identifier: BSD-3-Clause
"""Checks that each mode detects a mistake planted for it, and accepts a correct operator."""

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.testing._internal.common_dtype import _dispatch_dtypes
from torch.testing._internal.opinfo.core import ErrorInput, OpInfo, SampleInput
from torch_device_conformance.comparison.comparison import judge
from torch_device_conformance.comparison.evidence import AGREES, CPU_FAILS, DIFFERS, Evidence
from torch_device_conformance.mode import modes

from tests.sweep.modes import OPERATOR_MODES
from tests.sweep.verdicts import MODES

modes.load(MODES)

# The kit's own modes are also tested here, because their tests plant mistakes in the same way.
MODE_TYPES = {**modes.OPERATOR_MODES, **OPERATOR_MODES}

Function = Callable[..., Any]


def samples(
    op: OpInfo, device: str, dtype: torch.dtype, requires_grad: bool, **_: Any
) -> Iterator[SampleInput]:
    for shape in ((3, 4), (2, 3)):
        x = torch.randn(shape, device=device, dtype=dtype)
        yield SampleInput(x.requires_grad_(requires_grad))


def wrong_inputs(op: OpInfo, device: str, **_: Any) -> Iterator[ErrorInput]:
    yield ErrorInput(SampleInput(torch.ones(0, device=device)), error_regex="")


def planted(function: Function, **kwargs: Any) -> OpInfo:
    """Returns an operator entry like those in torch's database, with samples defined here."""
    return OpInfo(
        "planted",
        op=function,
        dtypes=_dispatch_dtypes((torch.float32, torch.complex64)),
        sample_inputs_func=samples,
        error_inputs_func=wrong_inputs,
        supports_forward_ad=True,
        **kwargs,
    )


def outcome(mode: str, op: OpInfo, dtype: torch.dtype = torch.float32) -> Evidence:
    """Compares an operator's results on the device with those on the CPU, in one mode."""
    return judge(MODE_TYPES[mode](op), dtype, torch.device("openreg"))


def on_device(wrong: Function, right: Function) -> Function:
    """Returns a function that calls ``wrong`` on the device and ``right`` on the CPU."""
    return lambda x, **kwargs: (right if x.device.type == "cpu" else wrong)(x, **kwargs)


def when(condition: Callable[[Tensor], bool]) -> Function:
    """Returns a function whose result on the device is wrong if `condition` is true."""
    return on_device(lambda x: x * 2 if condition(x) else x * 1, lambda x: x * 1)


def refuse(kind: type[Exception], words: str) -> Function:
    """Returns a function that raises an error if the tensor is empty."""

    def function(x: Tensor) -> Tensor:
        if not x.numel():
            raise kind(words)
        return x * 1

    return function


def to_out(x: Tensor, out: Tensor | None = None) -> Tensor:
    return torch.mul(x, 2, out=out)


def copy_to_out(x: Tensor, out: Tensor | None = None) -> Tensor:
    return x * 2 if out is None else out.copy_(x * 2)


def select_nothing(x: Tensor) -> Tensor:
    """If the tensor is empty, calls a kernel that raises an error: the index is out of range."""
    table = torch.ones(4, device=x.device)
    index = torch.full((1,), 0 if x.numel() else 9, device=x.device)
    table.index_select(0, index * 0)  # the first kernel with new dtypes is synchronous
    return x.sum() * table.index_select(0, index)


def new_memory(x: Tensor, out: Tensor | None = None) -> Tensor:
    result = x * 2
    if out is None or out.dtype != result.dtype or out.requires_grad:
        return to_out(x, out=out)
    out.set_(result.untyped_storage(), 0, result.shape, result.stride())
    return out


def one_more_warning(x: Tensor, out: Tensor | None = None) -> Tensor:
    if out is not None and out.shape != x.shape:
        warnings.warn("resized", stacklevel=1)
    return to_out(x, out=out)


def another_result(x: Tensor, out: Tensor | None = None) -> Tensor:
    result = to_out(x, out=out)
    return result if out is None else result[...]


def gram(x: Tensor) -> Tensor:
    return x @ x.mT


def double(x: Tensor) -> Tensor:
    return x * 2


uncaptured: Function = torch._dynamo.disable(double)


def normalize(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


class Split(torch.autograd.Function):
    """Returns a tensor and its double. Backward wrongly replaces undefined gradients with ones."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return x * 1, x * 2

    @staticmethod
    def backward(ctx: Any, first: Tensor | None, second: Tensor | None) -> Tensor | None:
        if first is None and second is None:
            return None
        one = torch.ones(())
        return (one if first is None else first) + 2 * (one if second is None else second)


def split(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 1, x * 2


class Forgetful(torch.autograd.Function):
    """A square that hides its saved argument from autograd's version check."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.saved = x.detach()
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        doubled: Tensor = 2 * ctx.saved * gradient
        return doubled


def uncast(function: Function) -> Function:
    """Returns a function that calls `function` with autocast for the device disabled."""

    def outside(x: Tensor) -> Any:
        with torch.autocast("openreg", enabled=False):
            return function(x)

    return outside


# Modes that the tests of correct operators below omit. host_memory has a separate test, because its
# samples have more arguments. accelerator_dtypes needs dtypes that only accelerators support.
HOST_MEMORY = "host_memory"
ELSEWHERE = {HOST_MEMORY, modes.ACCELERATOR_DTYPES}


@pytest.mark.parametrize("mode", sorted({*MODE_TYPES} - ELSEWHERE))
def test_right_operator_agrees(mode: str) -> None:
    right = planted(
        # The gradient of a norm is computed by an operator with an output mask.
        normalize
        if mode == "optional"
        else lambda x, out=None: (
            refuse(ValueError, "empty")(x) if out is None else to_out(x, out=out)
        ),
        inplace_variant=lambda x: x.mul_(2),
    )
    known = outcome(mode, right, torch.float64 if mode == "dtypes" else torch.float32)
    assert (known.status, known.message) == (AGREES, "")
    assert known.samples > 0


@pytest.mark.parametrize(
    ("mode", "wrong", "right", "message"),
    [
        ("aliases", lambda x: x + 0, lambda x: x[:1], "relation of output 0 is"),
        ("aliases", lambda x: x.clone()[:1], lambda x: x[:1], "relation of output 0 is"),
        ("aliases", lambda x: x.detach().add_(1), lambda x: x.detach() + 1, "relation|version"),
        ("autocast_bfloat16", uncast(gram), gram, "is torch.float32, expected torch.bfloat16"),
        ("autocast_float16", uncast(gram), gram, "is torch.float32, expected torch.float16"),
        ("autocast_float16", uncast(torch.sum), torch.sum, "float16, expected torch.float32.*low"),
        ("autocast_float16", uncast(lambda x: x.exp().float()), torch.exp, "not close.*lower"),
        ("out", new_memory, to_out, "memory 0 kept: .*right"),
        ("out", one_more_warning, to_out, "warnings is .*resized"),
        ("out", another_result, to_out, "result 0 is given"),
        (
            "errors",
            refuse(TypeError, "no"),
            refuse(ValueError, "no"),
            "raises TypeError: no, expected V",
        ),
        ("errors", refuse(ValueError, "A"), refuse(ValueError, "B"), "is 'A', expected 'B'"),
        ("errors", lambda x: x * 1, refuse(ValueError, "no"), "raises no error, expected Value"),
        ("errors", refuse(ValueError, "no"), lambda x: x * 1, "raises ValueError: no, expected no"),
        ("errors", select_nothing, select_nothing, "raises late: IndexError: index out of range"),
        ("mixed_devices", copy_to_out, to_out, "is 'accepted', expected 'refused'.*out= on the"),
        ("sizes", refuse(ValueError, "no"), lambda x: x * 1, "raises ValueError.*empty"),
        (
            "forward_ad",
            lambda x: 2 * x - forward_ad.unpack_dual(x).primal,
            lambda x: x * 1,
            "derivative 0: Tensor-likes",
        ),
        (
            "double_backward",
            lambda x: 2 * x.detach() * x - x.detach() ** 2,
            lambda x: x * x,
            "second gradient 0 is a NoneType, expected a Tensor",
        ),
        ("undefined", Split.apply, split, r"gradient of \(0,\), 0: Tensor-likes are not close"),
        ("versions", Forgetful.apply, torch.square, "backward after a change of 0 is ''"),
        ("versions", lambda x: x.detach().add_(0) * 1, lambda x: x.detach() * 1, "version of arg"),
        (
            "compiled_aot",
            lambda x: x * (3 if torch.compiler.is_compiling() else 2),
            double,
            "close",
        ),
        ("compiled_aot", uncaptured, double, "torch.compile captured no graph"),
        ("meta", lambda x: x[0] if isinstance(x, FakeTensor) else x * 1, lambda x: x * 1, "output"),
    ],
)
def test_planted_mistake_is_found(
    mode: str, wrong: Function, right: Function, message: str
) -> None:
    found = outcome(mode, planted(on_device(wrong, right)))
    assert found.status == DIFFERS
    assert re.search(message, found.message)


def test_operator_that_torch_compile_captures_on_no_device_has_no_reference() -> None:
    found = outcome("compiled_aot", planted(uncaptured))
    assert found.status == CPU_FAILS
    assert found.message == "torch.compile captures no graph, even on the CPU"


def test_result_that_torch_compile_changes_on_the_cpu_too_agrees() -> None:
    op = planted(lambda x: x * (3 if torch.compiler.is_compiling() else 2))
    assert outcome("compiled_aot", op).status == AGREES


@pytest.mark.parametrize(
    ("mode", "condition"),
    [
        ("noncontiguous", lambda x: x.stride() == (2 * x.shape[1], 2)),
        ("noncontiguous", lambda x: x.stride() == (1, x.shape[0]) and x.storage_offset() == 1),
        ("noncontiguous", lambda x: x.stride(0) == 0),
        ("sizes", lambda x: x.dim() == 0),
        ("conjugates", Tensor.is_conj),
        ("conjugates", Tensor.is_neg),
        ("vmap", torch._C._functorch.is_batchedtensor),
    ],
)
def test_mistake_for_some_tensors_is_found(mode: str, condition: Callable[[Tensor], bool]) -> None:
    found = outcome(mode, planted(when(condition)), torch.complex64)
    assert found.status == DIFFERS
    assert re.search("Tensor-likes are not close|Scalars are not close", found.message)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: x.mul_(3), "Tensor-likes are not close"),
        (lambda x: x.mul(2), "result is given"),
        (lambda x: x.mul_(2).add_(0), "version: Scalars"),
    ],
)
def test_mistake_in_place_is_found(wrong: Function, message: str) -> None:
    op = planted(lambda x: x * 2, inplace_variant=on_device(wrong, lambda x: x.mul_(2)))
    found = outcome("inplace", op)
    assert found.status == DIFFERS
    assert re.search(message, found.message)


def test_dtype_that_only_the_device_accepts_is_found() -> None:
    def strict(x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            raise RuntimeError("\"planted\" not implemented for 'Double'")
        return x * 1

    found = outcome("dtypes", planted(on_device(lambda x: x * 1, strict)), torch.float64)
    assert found.status == DIFFERS
    assert "raises no error, expected RuntimeError" in found.message


def test_permanent_failure_on_the_cpu_does_not_count() -> None:
    def fail(x: Tensor) -> Tensor:
        raise ValueError("never")

    found = outcome("noncontiguous", planted(fail))
    assert (found.status, found.message) == (CPU_FAILS, "ValueError: never")


def with_host_memory(
    op: OpInfo, device: str, dtype: torch.dtype, requires_grad: bool, **_: Any
) -> Iterator[SampleInput]:
    number = torch.tensor(2.0, device=device, dtype=dtype)
    yield SampleInput(torch.ones(3, device=device, dtype=dtype), args=(number, [1, 2]))


def sees_list_later(x: Tensor, number: Tensor, sizes: list[int]) -> Any:
    return x * number, sizes


def sees_list_now(x: Tensor, number: Tensor, sizes: list[int]) -> Any:
    return x * number, [*sizes]


@pytest.mark.parametrize(
    ("wrong", "status", "message"),
    [
        (sees_list_now, AGREES, ""),
        (sees_list_later, DIFFERS, r"1 outputs, expected 3; .*lists"),
    ],
)
def test_host_memory_that_is_read_later_is_found(
    wrong: Function, status: str, message: str
) -> None:
    def function(x: Tensor, number: Tensor, sizes: list[int]) -> Any:
        return (sees_list_now if x.device.type == "cpu" else wrong)(x, number, sizes)

    op = OpInfo(
        "planted",
        op=function,
        dtypes=_dispatch_dtypes((torch.float32,)),
        sample_inputs_func=with_host_memory,
    )
    found = outcome(HOST_MEMORY, op)
    assert found.status == status
    assert re.search(message, found.message)
    assert found.samples > 0 or status == DIFFERS
