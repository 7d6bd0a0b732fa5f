# SPDX-License-Identifier: BSD-3-Clause
"""Tests generated code with measured candidates (max_autotune) and frozen weights (freezing).

Each C++ compilation takes seconds, so a test compiles as few kernels as possible.
"""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._inductor import config
from torch._inductor.ir import ChoiceCaller
from torch._inductor.kernel.custom_op import CustomOpConfig, register_custom_op_autotuning
from torch._inductor.select_algorithm import add_feedback_saver, clear_feedback_savers
from torch._inductor.utils import run_and_get_code

from tests.kernel_cache import own_cache as own_cache

DEVICE = "openreg"
MEASURED = "max-autotune-no-cudagraphs"
DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)


@pytest.fixture
def freezing() -> Iterator[None]:
    with config.patch(freezing=True), torch.no_grad():
        yield


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


class Images(nn.Module):
    """A convolution with a normalization that can be folded into it, followed by a product."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 10)
        # Set nontrivial statistics: those of a new layer would leave nothing to fold.
        with torch.no_grad():
            for name, value in self.norm.state_dict().items():
                if name in ("weight", "running_var"):
                    value.uniform_(0.5, 2)
                elif name in ("bias", "running_mean"):
                    value.uniform_(-1, 1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.norm(self.conv(x)).relu().mean((2, 3)))
        return result


def features() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 12)).eval()


def images() -> nn.Module:
    return Images().eval()


#: For each model, a function that creates it, and its input.
MODELS = {"linear": (features, random(4, 16)), "conv": (images, random(2, 3, 8, 8))}


def prepared(
    name: str, dtype: torch.dtype = torch.float32, device: str = DEVICE
) -> tuple[nn.Module, Tensor]:
    """Returns a model and its input on a device."""
    make, x = MODELS[name]
    return make().to(device, dtype), x.to(device, dtype)


def same(result: Tensor, expected: Tensor) -> None:
    loose = result.dtype == torch.bfloat16
    rtol, atol = (2e-2, 2e-2) if loose else (1e-4, 1e-5)
    torch.testing.assert_close(result, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODELS)
def test_measured_models_agree_with_eager(name: str, dtype: torch.dtype) -> None:
    model, x = prepared(name, dtype)
    with torch.no_grad():
        same(torch.compile(model, mode=MEASURED, fullgraph=True)(x), model(x))
    assert counters["stats"]["unique_graphs"] == 1


def test_measured_training_agrees_with_eager() -> None:
    eager, x = prepared("linear")
    model = copy.deepcopy(eager)
    torch.compile(model, mode=MEASURED, fullgraph=True)(x).square().sum().backward()
    eager(x).square().sum().backward()
    for found, expected in zip(model.parameters(), eager.parameters(), strict=True):
        assert found.grad is not None
        assert expected.grad is not None
        same(found.grad, expected.grad)


def test_product_with_a_repeated_bias_is_one_operator() -> None:
    # torch has two operators for such a product, and on CUDA it would measure both.
    def function(bias: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        return torch.addmm(bias.expand(x.shape[0], -1), x, weight)

    inputs = [tensor.to(DEVICE) for tensor in (random(8), random(4, 16), random(16, 8))]
    with config.patch(max_autotune=True):
        same(torch.compile(function, fullgraph=True)(*inputs), function(*inputs))


@pytest.mark.parametrize("frozen", [False, True])
def test_dynamic_shapes_compile_once(frozen: bool) -> None:
    model, _ = prepared("linear")
    compiled = torch.compile(model, dynamic=True, fullgraph=True)
    with config.patch(max_autotune=not frozen, freezing=frozen), torch.no_grad():
        _, (code,) = run_and_get_code(compiled, random(5, 16).to(DEVICE))
        for rows in (3, 70, 17):
            x = random(rows, 16).to(DEVICE)
            same(compiled(x), model(x))
    assert ("_frozen_param" in code) == frozen
    assert counters["stats"]["unique_graphs"] == 1


@torch.library.custom_op("openreg_tuning_test::shifted", mutates_args=())
def shifted(x: Tensor) -> Tensor:
    """Adds 1 slowly: the launch returns immediately, but the device works for 50 ms."""
    torch.openreg._sleep(50_000_000)
    return x + 1


@shifted.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def added(x: Tensor) -> Tensor:
    return x + 1


# torch caches measured times per device type, so each device needs a different size.
@pytest.mark.parametrize(("device", "size"), [("openreg:0", 8), ("openreg:1", 9)])
def test_candidates_are_measured_until_the_device_is_done(device: str, size: int) -> None:
    measured: dict[str, float] = {}

    def save(timings: dict[ChoiceCaller, float], *others: Any) -> None:
        measured.update((str(choice), milliseconds) for choice, milliseconds in timings.items())

    register_custom_op_autotuning(shifted, configs=[CustomOpConfig(added)])
    add_feedback_saver(save)
    try:
        x = random(size).to(device)
        compiled = torch.compile(lambda x: shifted(x) * 2, mode=MEASURED, fullgraph=True)
        with torch.get_device_module(DEVICE).device(device):
            result, codes = run_and_get_code(compiled, x)
    finally:
        clear_feedback_savers()
    same(result, (x + 1) * 2)
    assert len(measured) == 2
    (slow,) = (time for name, time in measured.items() if "fallback" in name)
    (fast,) = (time for name, time in measured.items() if "fallback" not in name)
    assert slow >= 50 > fast > 0
    assert "torch.ops.openreg_tuning_test" not in codes[-1]  # torch selected the other candidate


@pytest.mark.parametrize("options", [{"mode": MEASURED}, {"options": {"freezing": True}}])
def test_changed_weights_count_unless_they_are_frozen(options: dict[str, Any]) -> None:
    # The options of a call cannot freeze weights: torch freezes during tracing, before it reads the
    # options.
    model, x = prepared("conv")
    assert isinstance(model, Images)
    compiled = torch.compile(model, fullgraph=True, **options)
    with torch.no_grad():
        same(compiled(x), model(x))
        model.conv.weight.neg_()
        same(compiled(x), model(x))


@pytest.mark.usefixtures("freezing")
@pytest.mark.parametrize(
    ("device", "dtype"),
    [("openreg:0", torch.float32), ("openreg:0", torch.bfloat16), ("openreg:1", torch.float32)],
)
def test_frozen_convolution_has_its_normalization_folded(device: str, dtype: torch.dtype) -> None:
    model, x = prepared("conv", dtype, device)
    assert isinstance(model, Images)
    expected = model(x)
    compiled = torch.compile(model, fullgraph=True)
    result, (code,) = run_and_get_code(compiled, x)
    assert result.device == torch.device(device)
    same(result, expected)
    assert counters["inductor"]["binary_folding_conv"] == 4  # - mean, * scale, * weight, + bias
    assert re.search(r"^ +\w+, = args$", code, re.MULTILINE)  # the image is the only argument
    index = torch.device(device).index
    constants = re.findall(r"^_frozen_param\d+ = None  # (device\(.*?\))", code, re.MULTILINE)
    assert constants
    assert set(constants) == {f"device(type='openreg', index={index})"}
    # The folded weight is a separate tensor, so a change to the module must not affect the result.
    model.conv.weight.zero_()
    assert torch.equal(compiled(x), result)


@pytest.mark.usefixtures("freezing")
@pytest.mark.parametrize("dtype", DTYPES)
def test_frozen_and_measured_products(dtype: torch.dtype) -> None:
    model, x = prepared("linear", dtype)
    with config.patch(max_autotune=True):
        result, (code,) = run_and_get_code(torch.compile(model, fullgraph=True), x)
    same(result, model(x))
    assert re.search(r"^ +\w+, = args$", code, re.MULTILINE)


@pytest.mark.usefixtures("freezing")
def test_frozen_weights_in_generated_cpp() -> None:
    model, x = prepared("linear", device="openreg:1")
    with config.patch(cpp_wrapper=True):
        result, (code,) = run_and_get_code(torch.compile(model, fullgraph=True), x)
    same(result, model(x))
    assert "_frozen_param" in code
    assert "aoti_torch_openreg_addmm_out" in code


@pytest.mark.usefixtures("freezing")
def test_frozen_products_of_one_input_are_one() -> None:
    weights = [random(16, 24).to(DEVICE) for _ in range(3)]

    class Projections(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList(weights)

        def forward(self, x: Tensor) -> list[Tensor]:
            return [x @ weight for weight in self.weights]

    x = random(4, 16).to(DEVICE)
    results, (code,) = run_and_get_code(torch.compile(Projections(), fullgraph=True), x)
    for result, weight in zip(results, weights, strict=True):
        same(result, x @ weight)
    assert code.count("extern_kernels.mm(") == 1


@pytest.mark.usefixtures("freezing")
def test_cached_code_uses_the_constants_of_each_model() -> None:
    for cached in (False, True):
        torch._dynamo.reset()
        counters.clear()
        model, x = prepared("linear")  # each model has its own weights
        result, (code,) = run_and_get_code(torch.compile(model, fullgraph=True), x)
        same(result, model(x))
        assert "_frozen_param" in code
        assert counters["inductor"]["fxgraph_cache_hit"] == int(cached)


@pytest.mark.usefixtures("freezing")
def test_discarded_weights() -> None:
    model, x = prepared("linear")
    expected = model(x)
    with config.patch(freezing_discard_parameters=True):
        compiled = torch.compile(model, fullgraph=True)
        same(compiled(x), expected)
        same(compiled(x), expected)
    with pytest.raises(RuntimeError, match="original parameters have been discarded"):
        model(x)


def test_training_is_not_frozen() -> None:
    eager, x = prepared("conv")
    eager.train()
    model = copy.deepcopy(eager)
    with config.patch(freezing=True):
        compiled = torch.compile(model, fullgraph=True)
        for _ in range(2):
            found, expected = compiled(x), eager(x)
            same(found, expected)
            for trained, result in ((model, found), (eager, expected)):
                trained.zero_grad()
                result.square().sum().backward()
                torch.optim.SGD(trained.parameters(), lr=0.01).step()
    for name, value in eager.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-3, atol=1e-4)
