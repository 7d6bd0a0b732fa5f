# SPDX-License-Identifier: BSD-3-Clause
"""The kit detects every operator that runs on the CPU instead of the device."""

from collections.abc import Iterator

import pytest
import torch
from torch_device_conformance.subject.routes import Observer, is_traceable, overloads, route
from torch_device_conformance.subject.subject import Subject
from torch_device_conformance.verdict.verdict import COMPOSITE, FALLBACK, MISSING, NATIVE

DEVICE = torch.device("openreg")
KEY = "PrivateUse1"


@pytest.fixture
def observer() -> Observer:
    return Observer(Subject("openreg"), DEVICE)


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    made = torch.library.Library("aten", "IMPL")
    yield made
    made._destroy()


def test_routes_of_the_dispatch_table() -> None:
    assert route("aten::mul.Tensor", KEY) == NATIVE
    assert route("aten::matmul", "CPU") == COMPOSITE
    assert route("aten::logit", KEY) == FALLBACK
    assert route("aten::no_such_operator", KEY) == MISSING
    assert len(overloads()) > 3000


def test_kernel_of_the_device(observer: Observer) -> None:
    x = torch.ones(4, device=DEVICE)
    assert observer.routes(lambda: x * x) == (NATIVE, {"aten::mul.Tensor": NATIVE})


def test_boxed_fallback(observer: Observer) -> None:
    x = torch.rand(4, 4, device=DEVICE)
    assert observer.routes(lambda: torch.logit(x)) == (FALLBACK, {"aten::logit": FALLBACK})


def test_boxed_fallback_inside_another_operator(observer: Observer) -> None:
    x = torch.rand(4, 4, device=DEVICE)
    verdict, routes = observer.routes(lambda: torch.special.logit(x))
    assert (verdict, routes["aten::logit"]) == (FALLBACK, FALLBACK)


def test_silent_copy_to_the_host(observer: Observer, library: torch.library.Library) -> None:
    library.impl("tanh", lambda x: x.cpu().tanh().to(DEVICE), KEY, allow_override=True)
    x = torch.ones(4, device=DEVICE)
    assert observer.routes(lambda: torch.tanh(x))[0] == FALLBACK


def test_reading_a_scalar_is_not_a_fallback(
    observer: Observer, library: torch.library.Library
) -> None:
    kernel = torch.library.get_kernel("aten::tanh", KEY)

    def tanh(keys: torch._C.DispatchKeySet, x: torch.Tensor) -> torch.Tensor:
        x.sum().item()
        result: torch.Tensor = kernel.call_boxed(keys, x)
        return result

    library.impl("tanh", tanh, KEY, with_keyset=True, allow_override=True)
    x = torch.ones(4, device=DEVICE)
    assert observer.routes(lambda: torch.tanh(x))[0] == NATIVE


def test_requested_copy_is_not_a_fallback(observer: Observer) -> None:
    x = torch.ones(4, device=DEVICE)
    assert observer.routes(lambda: x.cpu())[0] != FALLBACK


def test_backward_is_observed(observer: Observer) -> None:
    x = torch.ones(4, device=DEVICE, requires_grad=True)
    _, routes = observer.routes(lambda: x.sigmoid().sum().backward())
    assert routes["aten::sigmoid_backward"] == NATIVE


def test_counter_of_the_backend() -> None:
    counter = "torch_openreg.openreg.fallback:stats"
    observer = Observer(Subject("openreg", fallback_counter=counter), DEVICE)
    x = torch.ones(4, device=DEVICE)
    assert not observer.trace(lambda: x * x).counted
    assert observer.trace(lambda: torch.logit(x)).counted == {"aten::logit": 1}
    assert observer.fallbacks(lambda: torch.logit(x)) == {"aten::logit": 1}


def test_tensors_without_strides_are_not_traced() -> None:
    x = torch.eye(3)
    assert is_traceable((x, [x.to_sparse()], {"layout": torch.sparse_coo}))
    assert not is_traceable((x, [x.to_sparse_csr()], {}))
    assert not is_traceable((x, [], {"layout": torch.sparse_bsc}))
