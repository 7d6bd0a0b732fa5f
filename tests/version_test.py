# SPDX-License-Identifier: BSD-3-Clause
"""Autograd detects every write to a tensor that it has saved, by the tensor's version counter."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.differential import to_device

CHANGED = "modified by an inplace operation"


def _list() -> list[Tensor]:
    return [torch.rand(3, device="openreg") + 1 for _ in range(2)]


WRITES: dict[str, Callable[[list[Tensor]], Any]] = {
    "add": lambda x: torch._foreach_add_(x, 1.0),
    "add, scalars": lambda x: torch._foreach_add_(x, [1.0, 2.0]),
    "add, lists": lambda x: torch._foreach_add_(x, _list(), alpha=2.0),
    "add, tensor": lambda x: torch._foreach_add_(x, torch.ones((), device="openreg")),
    "sub": lambda x: torch._foreach_sub_(x, _list()),
    "mul": lambda x: torch._foreach_mul_(x, 2.0),
    "mul, scalars": lambda x: torch._foreach_mul_(x, [1.0, 2.0]),
    "mul, lists": lambda x: torch._foreach_mul_(x, _list()),
    "mul, tensor": lambda x: torch._foreach_mul_(x, torch.ones((), device="openreg")),
    "div": lambda x: torch._foreach_div_(x, 2.0),
    "div, scalars": lambda x: torch._foreach_div_(x, [1.0, 2.0]),
    "div, lists": lambda x: torch._foreach_div_(x, _list()),
    "addcdiv": lambda x: torch._foreach_addcdiv_(x, _list(), _list(), 2.0),
    "addcdiv, scalars": lambda x: torch._foreach_addcdiv_(x, _list(), _list(), [1.0, 2.0]),
    "addcmul": lambda x: torch._foreach_addcmul_(x, _list(), _list(), 2.0),
    "addcmul, scalars": lambda x: torch._foreach_addcmul_(x, _list(), _list(), [1.0, 2.0]),
    "lerp": lambda x: torch._foreach_lerp_(x, _list(), 0.5),
    "sqrt": torch._foreach_sqrt_,
    "neg": torch._foreach_neg_,
    "reciprocal": torch._foreach_reciprocal_,
    "zero": torch._foreach_zero_,
    "copy": lambda x: torch._foreach_copy_(x, _list()),
    "exp": torch._foreach_exp_,
}


@pytest.mark.parametrize("name", list(WRITES))
def test_foreach_operators_count_one_write_a_tensor(name: str) -> None:
    weight = torch.ones(3, device="openreg", requires_grad=True)
    targets = [weight * 2, weight * 3]
    squares = [x * x for x in targets]
    view = targets[0][:1]
    results = WRITES[name](targets)
    assert all(x is y for x, y in zip(results, targets, strict=True))
    assert [x._version for x in (*targets, view)] == [1, 1, 1]
    for square in squares:
        with pytest.raises(RuntimeError, match=CHANGED):
            square.sum().backward()


def test_a_repeated_tensor_counts_two_writes() -> None:
    x = torch.ones(3, device="openreg")
    torch._foreach_add_([x, x], 1.0)
    assert x._version == 2
    assert x.tolist() == [3.0] * 3


def test_inference_tensors_have_no_version() -> None:
    with torch.inference_mode():
        made = torch.ones(3, device="openreg")
    normal = torch.ones(3, device="openreg")
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside"):
        torch._foreach_add_([made], 1.0)
    with torch.inference_mode():
        torch._foreach_mul_([made, normal], 2.0)
    assert normal._version == 1
    assert normal.tolist() == [2.0] * 3


@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {}])
@pytest.mark.parametrize(
    "kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop]
)
def test_a_graph_ends_with_the_step_of_an_optimizer(kind: Any, options: dict[str, Any]) -> None:
    for device in ("cpu", "openreg"):
        weight = torch.ones(3, requires_grad=True)
        weight = weight if device == "cpu" else to_device(weight)
        optimizer = kind([weight], lr=0.1, **options)
        loss = (weight * weight).sum()
        loss.backward(retain_graph=True)
        optimizer.step()
        with pytest.raises(RuntimeError, match=CHANGED):
            loss.backward()


def test_fused_optimizers_count_the_same_writes_as_on_the_cpu() -> None:
    versions = []
    for device in ("cpu", "openreg"):
        weight = torch.ones(3, device=device, requires_grad=True)
        weight.grad = torch.ones(3, device=device)
        optimizer = torch.optim.AdamW([weight], fused=True)
        optimizer.step()
        state = optimizer.state[weight]
        versions.append([weight._version, *(state[name]._version for name in sorted(state))])
    assert versions[0] == versions[1]
