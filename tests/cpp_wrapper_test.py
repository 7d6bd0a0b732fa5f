# SPDX-License-Identifier: BSD-3-Clause
"""Tests graphs compiled entirely to C++: with ``cpp_wrapper``, and as ahead-of-time packages.

Each compilation takes seconds, so each test puts as many operators as possible into one graph.
"""

import copy
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._inductor import config
from torch._inductor.utils import run_and_get_code
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_map_only

from tests.kernel_cache import own_cache as own_cache

DEVICE = "openreg"
OTHER = "openreg:1"
CONSTANTS_AT_LOAD = {"aot_inductor.package_constants_in_so": False}


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def moved(value: Any, device: str) -> Any:
    return tree_map_only(Tensor, lambda tensor: tensor.to(device), value)


def check(function: Callable[..., Any], *inputs: Any, device: str = DEVICE, **options: Any) -> str:
    """Compares a function compiled to C++ with eager mode on the CPU, and returns the C++ code."""
    expected = function(*inputs)
    with config.patch(cpp_wrapper=True):
        compiled = torch.compile(function, fullgraph=True, **options)
        result, codes = run_and_get_code(compiled, *moved(inputs, device))
    torch.testing.assert_close(moved(result, "cpu"), expected)
    return "\n".join(codes)


def test_kernels_operators_and_numbers_of_the_cpu_on_another_device() -> None:
    scale = torch.tensor(3.0)  # stays on the CPU; only its value is passed to the kernels

    def function(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        y = F.gelu(x @ weight + 1) * scale
        return y.softmax(-1), y.argsort(-1)

    code = check(function, random(6, 8), random(8, 5), device=OTHER)
    assert "openreg_generated::launch(" in code
    assert "aoti_torch_openreg_mm_out" in code
    assert "cached_torch_device_type_privateuse1" in code


def test_shapes_may_change() -> None:
    torch._dynamo.reset()
    with config.patch(cpp_wrapper=True):
        compiled = torch.compile(lambda x: (x.sin() + 1).sum(-1), fullgraph=True, dynamic=True)
        for rows in (3, 100, 7):
            x = random(rows, 2 * rows)
            torch.testing.assert_close(compiled(x.to(DEVICE)).cpu(), (x.sin() + 1).sum(-1))


def test_convolutions_train() -> None:
    def train(device: str, compiler: Callable[[nn.Module], Any]) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
        ).to(device)
        images = random(2, 3, 4, 4).to(memory_format=torch.channels_last).to(device)
        loss = compiler(model)(images).square().mean()
        loss.backward()
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        return [loss.detach().cpu(), *(gradient.cpu() for gradient in gradients)]

    with config.patch(cpp_wrapper=True):
        result = train(DEVICE, torch.compile)
    torch.testing.assert_close(result, train("cpu", lambda model: model))


def test_an_input_may_be_written_to() -> None:
    def function(x: Tensor) -> Tensor:
        x.add_(1)
        return x.t() * 2

    x = random(4, 5)
    there = x.to(DEVICE)
    with config.patch(cpp_wrapper=True):
        result = torch.compile(function, fullgraph=True)(there)
    torch.testing.assert_close(result.cpu(), function(x))
    torch.testing.assert_close(there.cpu(), x)


@torch.library.custom_op("openreg_cpp_wrapper_test::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Model(nn.Module):
    """Contains parameters, a buffer, and an operator without a C function.

    torch compiles constants of up to 8 elements into the code.
    """

    offset: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 12)
        self.register_buffer("offset", torch.arange(12.0))

    def forward(self, x: Tensor) -> Tensor:
        """Maps a tensor of shape (N, 6) to one of shape (N, 12)."""
        hidden: Tensor = self.linear(twice(x))
        return F.silu(hidden) + self.offset


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> tuple[Model, str]:
    """Returns a CPU model and the path of its package, which accepts any number of rows."""
    torch.manual_seed(0)
    model = Model()
    there = Model()
    there.load_state_dict(model.state_dict())
    program = torch.export.export(
        there.to(DEVICE),
        (random(3, 6).to(DEVICE),),
        dynamic_shapes={"x": {0: torch.export.Dim("rows", min=2, max=64)}},
    )
    path = tmp_path_factory.mktemp("package") / "model.pt2"
    torch._inductor.aoti_compile_and_package(
        program, package_path=str(path), inductor_configs=CONSTANTS_AT_LOAD
    )
    return model, str(path)


@pytest.mark.parametrize("index", [-1, 0, 1])
def test_a_package_runs_on_each_device(package: tuple[Model, str], index: int) -> None:
    model, path = package
    device = f"openreg:{max(index, 0)}"
    loaded: Any = torch._inductor.aoti_load_package(path, device_index=index)
    names = loaded.get_constant_fqns()
    assert sorted(names) == sorted(model.state_dict())
    constants = {name: model.state_dict()[name].to(device) for name in names}
    loaded.load_constants(constants, check_full_update=True, user_managed=True)
    with torch.no_grad():
        for rows in (2, 3, 50):
            x = random(rows, 6)
            result = loaded(x.to(device))
            assert result.device == torch.device(device)
            torch.testing.assert_close(result.cpu(), model(x))
        constants["offset"].fill_(7)  # the package uses the caller's tensors without copying them
        torch.testing.assert_close(
            loaded(x.to(device)).cpu(), model(x) - model.offset + 7, rtol=1e-4, atol=1e-5
        )


def test_a_profiler_has_the_names_of_a_package_that_is_gone(package: tuple[Model, str]) -> None:
    model, path = package
    loaded: Any = torch._inductor.aoti_load_package(path)
    constants = {name: value.to(DEVICE) for name, value in model.state_dict().items()}
    loaded.load_constants(constants, check_full_update=True, user_managed=True)
    x = random(5, 6).to(DEVICE)
    with profile(activities=[ProfilerActivity.PrivateUse1]) as profiler:
        with torch.no_grad():
            loaded(x)
        torch.openreg.synchronize()
        del loaded
        gc.collect()
    names = {event.name for event in profiler.events()}
    assert any("fused" in name for name in names), names


def test_constants_of_a_package_stay_the_callers(package: tuple[Model, str]) -> None:
    model, path = package
    loaded: Any = torch._inductor.aoti_load_package(path)
    constants = {name: value.to(DEVICE) for name, value in model.state_dict().items()}
    with pytest.raises(RuntimeError):  # torch prints the reason to stderr
        loaded.load_constants(model.state_dict(), check_full_update=True, user_managed=True)
    loaded.load_constants(constants, check_full_update=True, user_managed=True)
    x = random(5, 6)
    torch.testing.assert_close(loaded(x.to(DEVICE)).cpu(), model(x).detach())


class Views(nn.Module):
    """A model whose constants share memory, have an offset and a stride, or are empty."""

    empty: Tensor
    expanded: Tensor
    calls: Tensor
    halves: Tensor
    rows: Tensor

    def __init__(self, model: Model, device: str) -> None:
        super().__init__()
        self.model = copy.deepcopy(model).to(device)
        table = torch.arange(240.0, device=device).reshape(20, 12)
        column = torch.arange(20.0, device=device)[:, None]
        self.register_buffer("rows", table[3:5])
        self.register_buffer("halves", torch.arange(24, dtype=torch.bfloat16, device=device)[::2])
        self.register_buffer("expanded", column.expand(20, 12))
        self.register_buffer("empty", torch.zeros(0, 12, device=device))
        self.register_buffer("calls", torch.zeros(16, device=device))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Maps a tensor of shape (N, 6) to one of shape (N, 12), and counts its calls."""
        self.calls += 1
        y = self.model(x) + self.rows[1] + self.halves + self.expanded.sum(0)
        return torch.cat([y, self.empty]), self.calls * 1


def test_constants_that_are_part_of_the_library(tmp_path: Path) -> None:
    """By default, a package contains its constants and can be loaded on any device."""
    path = str(tmp_path / "model.pt2")
    model = Views(Model(), "cpu")
    x = random(3, 6)
    with torch.no_grad():
        expected = model(x)[0]
        program = torch.export.export(Views(model.model, DEVICE), (x.to(DEVICE),))
        torch._inductor.aoti_compile_and_package(program, package_path=path)
    for index in (0, 1):
        device = f"{DEVICE}:{index}"
        loaded: Any = torch._inductor.aoti_load_package(path, device_index=index)
        for count in (1.0, 2.0):
            result, calls = loaded(x.to(device))
            assert result.device == torch.device(device)
            torch.testing.assert_close(result.cpu(), expected)
            assert calls.tolist() == [count] * 16
        # load_constants() copies the caller's constants from the device. It also copies from the
        # CPU if allow_h2d_copy is set.
        others = {f"model.{name}": value for name, value in model.model.state_dict().items()}
        for more in (7.0, 14.0):
            others["model.offset"] = model.model.offset + more
            given = {name: value.to(device) for name, value in others.items()}
            if more == 7:
                loaded.load_constants(given, check_full_update=False)
            else:
                loaded.load_constants(others, check_full_update=False, allow_h2d_copy=True)
            for value in given.values():
                value.zero_()
            result = loaded(x.to(device))[0].cpu()
            torch.testing.assert_close(result, expected + more)
