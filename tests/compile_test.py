# SPDX-License-Identifier: BSD-3-Clause
"""Tests torch.compile(backend="openreg"): captured graphs, and reasons for recompilation."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.device_interface import get_interface_for_device
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
from torch_openreg_compile.backend import openreg
from torch_openreg_compile.validation import GraphError

from tests import child

DEVICE = "openreg"


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch.openreg.set_device(0)


@pytest.fixture
def counter() -> CompileCounterWithBackend:
    """Returns the backend with counters for graphs (frame_count) and operators (op_count)."""
    return CompileCounterWithBackend("openreg")


def poly(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * x + 1


def test_importing_the_package_loads_no_compiler() -> None:
    printed = child.output(
        """
        import sys, torch, torch_openreg
        torch.ones(2, device="openreg").sum().item()
        compiler = {"torch._dynamo", "torch._inductor", "openreg_graph"}
        print(compiler & set(sys.modules))
        import torch._dynamo.device_interface as interfaces
        print(sorted(name for name in interfaces.device_interfaces if name.startswith("openreg")))
        print("torch_openreg_compile.inductor" in sys.modules)
        import torch._inductor.compile_fx
        from torch._inductor.codegen.common import get_scheduling_for_device
        print(get_scheduling_for_device("openreg").__name__)
        """
    )
    assert printed.splitlines() == [
        "set()",
        "['openreg', 'openreg:0', 'openreg:1']",
        "False",
        "OpenRegScheduling",
    ]


def test_compiler_before_the_package() -> None:
    printed = child.output(
        """
        import torch._dynamo.device_interface as interfaces
        import torch_openreg
        print(interfaces.get_interface_for_device("openreg:1").device_count())
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert printed == "2"


def test_is_listed() -> None:
    assert "openreg" in torch._dynamo.list_backends()


def test_device_interface_is_the_device() -> None:
    interface = get_interface_for_device(torch.device(DEVICE, 1))
    assert interface.device_count() == torch.openreg.device_count()
    assert interface.is_available()
    with interface.device(1):
        assert interface.current_device() == 1
        x = torch.ones(1, device=DEVICE)
    assert x.device.index == 1
    assert interface.exchange_device(1) == 0
    assert interface.maybe_exchange_device(0) == 1
    assert interface.get_device_properties(1).name == torch.openreg.get_device_name(1)
    assert interface.Worker.get_device_properties("openreg:1") == interface.get_device_properties(1)
    assert interface.get_raw_stream(0) == 0
    side = torch.openreg.Stream()
    interface._set_stream_by_id(side.stream_id, side.device_index, side.device_type)
    assert interface.current_stream() == side
    assert interface.get_raw_stream(0) == side.stream_id
    interface.set_stream(torch.openreg.default_stream())
    interface.synchronize()
    assert interface.memory_allocated(1) >= x.nbytes
    assert interface.is_dtype_supported(torch.bfloat16)


@pytest.mark.parametrize("device", ["openreg:0", "openreg:1"])
def test_end_to_end(device: str, counter: CompileCounterWithBackend) -> None:
    x = torch.randn(4, 3)
    result = torch.compile(poly, backend=counter, fullgraph=True)(x.to(device))
    assert result.device == torch.device(device)
    torch.testing.assert_close(result.cpu(), poly(x))
    assert (counter.frame_count, counter.op_count) == (1, 3)


def test_tensors_of_two_devices_in_one_graph(counter: CompileCounterWithBackend) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + 1).to("openreg:1") * y

    x, y = torch.randn(3, device="openreg:0"), torch.randn(3, device="openreg:1")
    result = torch.compile(function, backend=counter, fullgraph=True)(x, y)
    assert result.device.index == 1
    torch.testing.assert_close(result.cpu(), (x.cpu() + 1) * y.cpu())


def test_devices_are_guarded(counter: CompileCounterWithBackend) -> None:
    compiled = torch.compile(poly, backend=counter)
    for device in ("openreg:0", "openreg:1", "openreg:0", "cpu"):
        assert compiled(torch.ones(2, device=device)).device.type == device.split(":")[0]
    assert counter.frame_count == 3


def test_an_untraced_real_tensor_is_rejected() -> None:
    gm = torch.fx.symbolic_trace(poly)
    with pytest.raises(GraphError, match=r"'x': the input is on openreg:1 and has no FakeTensor"):
        openreg(gm, [torch.ones(2, device="openreg:1")])


def test_default_device(counter: CompileCounterWithBackend) -> None:
    def function() -> torch.Tensor:
        return torch.ones(2) + torch.arange(2)

    compiled = torch.compile(function, backend=counter, fullgraph=True)
    for device in ("openreg:1", "openreg:0", "openreg:1"):
        with torch.device(device):
            result = compiled()
        assert result.device == torch.device(device)
        assert result.tolist() == [1, 2]
    assert counter.frame_count == 2


def test_fake_tensors_have_the_device() -> None:
    seen: list[torch.Tensor] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        seen.extend(node.meta["example_value"] for node in gm.graph.nodes if node.op != "output")
        return gm.forward

    torch.compile(poly, backend=backend)(torch.ones(2, 3, device="openreg:1"))
    assert {str(value.device) for value in seen} == {"openreg:1"}
    assert {tuple(value.shape) for value in seen} == {(2, 3)}
    with FakeTensorMode():
        x = torch.empty(2, 3, device=DEVICE)
        assert poly(x @ x.t()).device == torch.device("openreg:0")


def test_guards(counter: CompileCounterWithBackend) -> None:
    compiled = torch.compile(poly, backend=counter, dynamic=False)
    x = torch.ones(4, 6, device=DEVICE)
    for value, graphs in [
        (x, 1),
        (x + 1, 1),  # a tensor with the same metadata
        (x[:2], 2),  # a different shape
        (x.double(), 3),  # a different dtype
        (torch.ones(6, 4, device=DEVICE).t(), 4),  # different strides
        (x, 4),
    ]:
        torch.testing.assert_close(compiled(value), poly(value))
        assert counter.frame_count == graphs


def test_dynamic_shapes(counter: CompileCounterWithBackend) -> None:
    compiled = torch.compile(poly, backend=counter, dynamic=True, fullgraph=True)
    for size in (3, 5, 17):
        x = torch.randn(size, 2)
        torch.testing.assert_close(compiled(x.to(DEVICE)).cpu(), poly(x))
    assert counter.frame_count == 1


def test_autograd(counter: CompileCounterWithBackend) -> None:
    gradients = []
    for function in (poly, torch.compile(poly, backend=counter, fullgraph=True)):
        x = torch.linspace(0, 1, 5, device=DEVICE, requires_grad=True)
        torch.autograd.backward(function(x).sum())
        assert x.grad is not None
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        result: torch.Tensor = self.norm(self.linear(x)).relu()
        return result


def test_module_with_parameters_and_buffers(counter: CompileCounterWithBackend) -> None:
    eager = Net().to(DEVICE)
    net = Net().to(DEVICE)
    net.load_state_dict(eager.state_dict())
    compiled = torch.compile(net, backend=counter, fullgraph=True)
    x = torch.randn(8, 3, device=DEVICE)
    for _ in range(2):
        expected, result = eager(x), compiled(x)
        torch.testing.assert_close(result, expected)
        torch.autograd.backward(expected.sum())
        torch.autograd.backward(result.sum())
    for weight, expected in zip(net.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(weight.grad, expected.grad)
    for buffer, expected in zip(net.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(buffer, expected)
    assert net.calls.item() == 2
    assert counter.frame_count == 1


def test_training_step() -> None:
    losses = []
    for backend in (None, "openreg"):
        torch.manual_seed(1)
        net = Net().to(DEVICE)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        model = torch.compile(net, backend=backend) if backend else net
        x = torch.randn(16, 3).to(DEVICE)
        history = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = (model(x) - 1).square().mean()
            torch.autograd.backward(loss)
            optimizer.step()
            history.append(loss.item())
        losses.append(history)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0][-1] < losses[0][0]


def test_mutation(counter: CompileCounterWithBackend) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        x[0] = 7
        return x.sum()

    x = torch.zeros(3, device=DEVICE)
    result = torch.compile(function, backend=counter, fullgraph=True)(x)
    assert x.tolist() == [7, 1, 1]
    assert result.item() == 9


def test_transfers_are_traced(counter: CompileCounterWithBackend) -> None:
    def function(x: torch.Tensor, host: torch.Tensor) -> torch.Tensor:
        there = host.to(DEVICE) + x
        return there.cpu() + host

    x, host = torch.ones(2, device=DEVICE), torch.arange(2.0)
    result = torch.compile(function, backend=counter, fullgraph=True)(x, host)
    assert result.device.type == "cpu"
    assert result.tolist() == [1, 3]


def test_item_and_explicit_breaks_break(counter: CompileCounterWithBackend) -> None:
    def with_item(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum().item() > 0 else x - 1

    def with_break(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    x = torch.ones(2, device=DEVICE)
    for function in (with_item, with_break):
        counter.clear()
        torch._dynamo.reset()
        compiled = torch.compile(function, backend=counter)
        torch.testing.assert_close(compiled(x), function(x))
        assert counter.frame_count == 2
        torch._dynamo.reset()
        with pytest.raises((torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError)):
            torch.compile(function, backend=counter, fullgraph=True)(x)


def test_explain() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    report = torch._dynamo.explain(function)(torch.ones(2, device=DEVICE))
    assert (report.graph_count, report.graph_break_count) == (2, 1)


def test_autocast_inside(counter: CompileCounterWithBackend) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            return x @ x

    x = torch.ones(2, 2, device=DEVICE)
    assert torch.compile(function, backend=counter, fullgraph=True)(x).dtype == torch.bfloat16


def test_autocast_outside_is_guarded(counter: CompileCounterWithBackend) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    compiled = torch.compile(function, backend=counter, fullgraph=True)
    x = torch.ones(2, 2, device=DEVICE)
    with torch.autocast(DEVICE):
        assert compiled(x).dtype == torch.float16
    assert compiled(x).dtype == torch.float32
    with torch.autocast(DEVICE):
        assert compiled(x).dtype == torch.float16
    assert counter.frame_count == 2


@torch.library.custom_op("openreg_test::halve", mutates_args=(), device_types=DEVICE)
def halve(x: torch.Tensor) -> torch.Tensor:
    return x / 2


@halve.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_custom_operator(counter: CompileCounterWithBackend) -> None:
    compiled = torch.compile(lambda x: halve(x) + 1, backend=counter, fullgraph=True)
    assert compiled(torch.ones(2, device=DEVICE)).tolist() == [1.5, 1.5]


def test_functional_transforms(counter: CompileCounterWithBackend) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gradient = torch.func.grad(lambda y: poly(y).sum())(x)
        return gradient, torch.func.vmap(torch.dot)(x[None], x[None])

    x = torch.linspace(0, 1, 4, device=DEVICE)
    for ours, eager in zip(
        torch.compile(function, backend=counter, fullgraph=True)(x), function(x), strict=True
    ):
        torch.testing.assert_close(ours, eager)


@pytest.mark.parametrize("backend", ["openreg", "aot_eager", "aot_eager_decomp_partition"])
def test_checkpointed_dropout(backend: str) -> None:
    """The gradient uses the same mask as the result, and each call draws a new mask."""

    @torch.compile(backend=backend)
    def function(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(lambda y: F.dropout(y.exp()), x, use_reentrant=False)
        return result

    torch.manual_seed(3)
    kept = []
    for index in (0, 0, 1):
        x = torch.ones(1000, device=f"openreg:{index}", requires_grad=True)
        result = function(x)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        assert torch.equal(gradient != 0, result != 0)
        kept.append((result != 0).cpu())
    assert all(400 < mask.sum() < 600 for mask in kept)
    assert not torch.equal(kept[0], kept[1])


def test_checkpointing(counter: CompileCounterWithBackend) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(lambda y: F.dropout(poly(y), 0.5), x, use_reentrant=False)
        return result

    def run(function: Callable[[torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(3)
        x = torch.linspace(0, 1, 64, device=DEVICE, requires_grad=True)
        result = function(x)
        torch.autograd.backward(result.sum())
        assert x.grad is not None
        return result.detach(), x.grad

    compiled = torch.compile(function, backend=counter, fullgraph=True)
    for ours, eager in zip(run(compiled), run(function), strict=True):
        torch.testing.assert_close(ours, eager)
    assert counter.frame_count == 1


def test_random_numbers_follow_the_seed(counter: CompileCounterWithBackend) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch.rand_like(x)  # the result is unused, but the call advances the generator
        return F.dropout(x) + torch.rand_like(x)

    x = torch.ones(32, device=DEVICE)
    torch.manual_seed(5)
    expected = function(x)
    torch.manual_seed(5)
    result = torch.compile(function, backend=counter, fullgraph=True)(x)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


def test_export_and_run(counter: CompileCounterWithBackend) -> None:
    net = Net().to(DEVICE).eval()
    x = torch.randn(4, 3, device=DEVICE)
    expected = net(x)
    program = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.testing.assert_close(program.module()(x), expected)
    torch.testing.assert_close(
        torch.compile(program.module(), backend=counter)(x[:2]), expected[:2]
    )


def test_streams(counter: CompileCounterWithBackend) -> None:
    compiled = torch.compile(poly, backend=counter, fullgraph=True)
    side = torch.openreg.Stream()
    x = torch.ones(3, device=DEVICE)
    side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        result = compiled(x)
    torch.openreg.current_stream().wait_stream(side)
    torch.testing.assert_close(result, poly(x))


def test_errors_of_the_device_propagate(counter: CompileCounterWithBackend) -> None:
    compiled = torch.compile(torch.add, backend=counter)
    with pytest.raises(RuntimeError, match="openreg:0"):
        compiled(torch.ones(2, device="openreg:0"), torch.ones(2, device="openreg:1"))
