# SPDX-License-Identifier: BSD-3-Clause
"""The comparison detects mistakes planted in results, gradients and random numbers."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.common_device_type import tol, toleranceOverride
from torch.testing._internal.common_dtype import _dispatch_dtypes
from torch.testing._internal.common_modules import FunctionInput, ModuleInfo, ModuleInput
from torch.testing._internal.common_optimizers import OptimizerInfo, OptimizerInput
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo, SampleInput
from torch_device_conformance.comparison.comparison import apart, judge
from torch_device_conformance.comparison.entry import Entry, tolerances
from torch_device_conformance.comparison.evidence import AGREES, CPU_FAILS, DIFFERS, Evidence
from torch_device_conformance.database.modules import Module
from torch_device_conformance.database.operators import Operator, copy_to
from torch_device_conformance.database.optimizers import OptimizerWay
from torch_device_conformance.mode.modes import entries

OPENREG = torch.device("openreg")


def samples(
    op: OpInfo, device: str, dtype: torch.dtype, requires_grad: bool, **_: Any
) -> Iterator[SampleInput]:
    for shape in ((3, 4), (1,), (0, 2)):
        x = torch.randn(shape, device=device, dtype=dtype, requires_grad=requires_grad)
        yield SampleInput(x)


def missing(x: Tensor) -> Tensor:
    """Raises an error on every device."""
    raise NotImplementedError("no such kernel")


def planted(function: Callable[[Tensor], Any], **kwargs: Any) -> OpInfo:
    """Returns an operator entry for `function`, which torch's databases do not contain."""
    return OpInfo(
        "planted",
        op=function,
        dtypes=_dispatch_dtypes((torch.float32,)),
        sample_inputs_func=samples,
        supports_out=False,
        **kwargs,
    )


def evaluate(op: OpInfo, kind: type[Operator] = Operator) -> Evidence:
    """Compares the results of an operator entry on the device with those on the CPU."""
    return evaluate_entry(kind(op))


def evaluate_entry(entry: Entry) -> Evidence:
    """Compares the results of an entry on the device with those on the CPU."""
    return judge(entry, torch.float32, OPENREG)


def on_device(
    wrong: Callable[[Tensor], Any], right: Callable[[Tensor], Any]
) -> Callable[[Tensor], Any]:
    """Returns a function that calls `right` for CPU tensors and `wrong` for other tensors."""
    return lambda x: right(x) if x.device.type == "cpu" else wrong(x)


def test_right_result_agrees() -> None:
    outcome = evaluate(planted(lambda x: (x * 2, [x.sum()])))
    assert (outcome.status, outcome.message, outcome.samples) == (AGREES, "", 3)


def inaccurate(x: Tensor) -> Tensor:
    """Returns x, exactly in double precision, but with an error of up to 4 in single precision."""
    return (x + 1e8) - 1e8


@pytest.mark.parametrize(
    "on_openreg",
    [lambda x: x + 0, lambda x: inaccurate(x) + x * 2],
    ids=["more accurate", "as inaccurate"],
)
def test_results_agree_if_the_cpu_is_not_more_accurate(
    on_openreg: Callable[[Tensor], Tensor],
) -> None:
    outcome = evaluate(planted(on_device(on_openreg, inaccurate), supports_autograd=False))
    assert (outcome.status, outcome.message) == (AGREES, "")


def test_results_differ_if_the_cpu_is_more_accurate() -> None:
    outcome = evaluate(planted(on_device(lambda x: x + 1e3, inaccurate)))
    assert outcome.status == DIFFERS
    assert outcome.largest is not None
    assert outcome.largest > 900


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        (lambda x: x + 1e-4, lambda x: x + 0, "forward: output 0: Tensor-likes are not close"),
        (lambda x: (x + 0, x + 1), lambda x: (x + 0, x + 0), "forward: output 1: Tensor-likes"),
        (lambda x: (x + 0).double(), lambda x: x + 0, "is torch.float64, expected torch.float32"),
        (lambda x: (x + 0)[None], lambda x: x + 0, r"shape is \(1, 3, 4\), expected \(3, 4\)"),
        (
            lambda x: (x + 0).t().contiguous().t(),
            lambda x: x + 0,
            r"strides are \(1, 3\), expected \(4, 1\)",
        ),
        (lambda x: x.cpu(), lambda x: x + 0, "device is cpu, expected openreg"),
        (lambda x: x.detach() + 0, lambda x: x + 0, "requires_grad is False, expected True"),
        (lambda x: (x + 0, x + 0), lambda x: x + 0, "2 outputs, expected 1; only .* output 1"),
        (lambda x: 1.5, lambda x: x + 0, "is a float, expected a Tensor"),
        (
            lambda x: x.numel() + 1,
            lambda x: x.numel(),
            "output 0: Scalars are not close",
        ),
        (lambda x: 2 * x - x.detach(), lambda x: x + 0, "backward: gradient 0: Tensor-likes"),
        (lambda x: x.no_such_method(), lambda x: x + 0, "AttributeError: .*no_such_method"),
    ],
)
def test_planted_difference_is_found(
    wrong: Callable[[Tensor], Any], right: Callable[[Tensor], Any], message: str
) -> None:
    outcome = evaluate(planted(on_device(wrong, right)))
    assert outcome.status == DIFFERS
    assert re.search(message, outcome.message)
    assert outcome.message.endswith("[sample 0]")


class Layer(nn.Module):
    """A layer. If a mistake is planted, it behaves differently on the device."""

    mistake = ""
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.weight
        if self.mistake == "dropout":
            return nn.functional.dropout(y, 0.5, self.training)
        if x.device.type == "cpu":
            return y
        if self.mistake == "buffer":
            self.calls += 1
        if self.mistake == "gradient":
            y = y + self.weight - self.weight.detach()
        mode = "train" if self.training else "eval" if torch.is_grad_enabled() else "inference"
        return y + 1 if self.mistake == mode else y


def layer(mistake: str) -> Module:
    """Returns a module entry for a Layer with a planted mistake."""

    def inputs(_: ModuleInfo, requires_grad: bool, **kwargs: Any) -> list[ModuleInput]:
        x = torch.randn(2, 3, requires_grad=requires_grad)
        return [ModuleInput(FunctionInput(), FunctionInput(x))]

    kind = type("Layer", (Layer,), {"mistake": mistake})
    return Module(ModuleInfo(kind, module_inputs_func=inputs, train_and_eval_differ=True))


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("train", r"forward: output 0: .*\[sample 0\]"),
        ("eval", r"forward: output 0: .*\[sample 1\]"),
        ("inference", r"forward: output 0: .*\[sample 2\]"),
        ("buffer", "forward: calls: Tensor-likes"),
        ("gradient", "backward: weight: Tensor-likes"),
    ],
)
def test_planted_mistake_of_a_module_is_found(mistake: str, message: str) -> None:
    outcome = evaluate_entry(layer(mistake))
    assert outcome.status == DIFFERS
    assert re.match(message, outcome.message)


@pytest.mark.parametrize(("mistake", "compared"), [("", "values"), ("dropout", "distribution")])
def test_right_module_agrees(mistake: str, compared: str) -> None:
    outcome = evaluate_entry(layer(mistake))
    assert (outcome.status, outcome.message, outcome.samples) == (AGREES, "", 3)
    assert outcome.compared == compared


class Descent(torch.optim.SGD):
    """An optimizer. If a mistake is planted, it behaves differently on the device."""

    def __init__(self, parameters: list[Tensor], mistake: str, **flags: bool) -> None:
        super().__init__(parameters, momentum=0.9, **flags)
        self.mistake = mistake

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        first = self.param_groups[0]["params"][0]
        if first.device.type != "cpu":
            if self.mistake == "parameter":
                first += 1e-3
            if self.mistake == "state":
                self.state[first]["momentum_buffer"] *= 2
        return loss


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("", "$"),
        ("parameter", "forward: parameter 0: Tensor-likes"),
        ("state", r"forward: .*parameter 0: Tensor-likes"),
    ],
)
@pytest.mark.parametrize("way", ["", "for_loop", "foreach", "fused"])
def test_planted_mistake_of_an_optimizer_is_found(way: str, mistake: str, message: str) -> None:
    inputs = [OptimizerInput(params=[], kwargs={"mistake": mistake})]
    kind: Any = Descent
    info = OptimizerInfo(
        kind,
        optim_inputs_func=lambda device: inputs,
        supported_impls=("foreach", "fused"),
    )
    outcome = evaluate_entry(OptimizerWay(info, way, capturable=False))
    assert outcome.status == (DIFFERS if mistake else AGREES)
    assert re.match(message, outcome.message)


def test_draws_that_are_equal_by_chance_are_random() -> None:
    def draw(x: Tensor) -> Tensor:
        # On the CPU, draws with the first two seeds are equal, as may happen by chance with few
        # values.
        chance = x.device.type == "cpu" and torch.initial_seed() < 2
        return torch.zeros_like(x) if chance else torch.rand_like(x).round()

    outcome = evaluate(planted(draw))
    assert (outcome.status, outcome.compared) == (AGREES, "distribution")


def test_random_numbers_agree_in_distribution() -> None:
    outcome = evaluate(planted(lambda x: torch.rand_like(x)))
    assert (outcome.status, outcome.compared) == (AGREES, "distribution")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: torch.zeros_like(x),
        lambda x: torch.rand_like(x) + 0.5,
        lambda x: torch.randn_like(x),
        lambda x: torch.rand_like(x) * float("nan"),
    ],
)
def test_wrong_distribution_is_found(wrong: Callable[[Tensor], Tensor]) -> None:
    outcome = evaluate(planted(on_device(wrong, torch.rand_like)))
    assert outcome.status == DIFFERS
    assert outcome.message.startswith("distribution: value 0 is")


def test_distance_of_distributions() -> None:
    x = torch.linspace(0, 1, 100, dtype=torch.double)
    assert apart(x, x) == 0
    assert apart(x, x + 2) == 1
    assert apart(x, x + 0.25) == pytest.approx(0.25, abs=0.011)
    assert apart(x, torch.full_like(x, float("nan"))) == 1
    assert apart(x[:0], x[:0]) == 0
    assert apart(x[:0], x) == 1


def test_unsupported_on_the_cpu_does_not_count() -> None:
    outcome = evaluate(planted(on_device(torch.neg, missing)))
    assert outcome.status == CPU_FAILS
    assert not Operator(planted(torch.neg)).supports(torch.float16)


def test_copy_keeps_strides_offsets_and_sharing() -> None:
    whole = torch.arange(24.0).view(4, 6)
    sample = SampleInput(
        whole[1:, ::2].t(),
        args=(whole[2], [whole.expand(2, 4, 6)], torch.device("cpu"), 3),
        kwargs={"device": "cpu", "mode": "mean"},
    )
    copy = copy_to(sample, OPENREG)
    view, row, (expanded,) = copy.input, copy.args[0], copy.args[1]
    assert view.device.type == "openreg"
    assert view.stride() == (2, 6)
    assert view.storage_offset() == 6
    assert expanded.stride() == (0, 6, 1)
    assert torch.equal(view.cpu(), sample.input)
    row.fill_(-1)  # shares memory with a column of view
    assert torch.equal(view[:, 1].cpu(), torch.full((3,), -1.0))
    assert whole.min() == 0  # changing the copy does not change the sample
    assert copy.args[2] == OPENREG
    assert copy.kwargs == {"device": "openreg", "mode": "mean"}


def asks(test: str, dtype: torch.dtype, rtol: float, atol: float) -> Any:
    """Returns a decorator that sets a test's tolerance, like those in torch's databases."""
    override = toleranceOverride({dtype: tol(atol, rtol)})
    return DecorateInfo(override, test)


def test_tolerance_is_the_widest_of_the_entry() -> None:
    assert entries("op", "eager")["add"].tolerances(torch.float32) == (1.3e-6, 1e-5)
    decorators = [
        asks("TestCommon", torch.float32, 1e-7, 1e-2),
        asks("TestCommon", torch.float64, 1, 1),
        asks("TestGradients", torch.float32, 1e-3, 1e-7),
    ]
    assert tolerances(decorators, torch.float32) == (1e-3, 1e-2)
    assert tolerances(decorators, torch.bfloat16) == (1.6e-2, 1e-5)
    assert tolerances(decorators, torch.int64) == (1.3e-6, 1e-5)
