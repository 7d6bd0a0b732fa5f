# SPDX-License-Identifier: BSD-3-Clause
"""Tests graphs of training steps, and graphed callables."""

import copy

import pytest
import torch
import torch_openreg as torch_openreg

from tests.graph_capture import quiet_devices as quiet_devices


def test_a_training_step() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    ours = copy.deepcopy(model).to("openreg")
    theirs_optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(5, 8), torch.randn(5, 4)
    static_x, static_y = x.to("openreg"), y.to("openreg")

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(ours(static_x), static_y)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.openreg.Stream()
    side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        for _ in range(3):
            step()
    torch.openreg.current_stream().wait_stream(side)
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph):
        loss = step()
    data = [(x, y)] * 3 + [(torch.randn(5, 8), torch.randn(5, 4)) for _ in range(5)]
    for index, (inputs, targets) in enumerate(data):
        theirs_optimizer.zero_grad()
        expected = torch.nn.functional.mse_loss(model(inputs), targets)
        expected.backward()
        theirs_optimizer.step()
        if index >= 3:
            static_x.copy_(inputs)
            static_y.copy_(targets)
            graph.replay()
            torch.testing.assert_close(loss.detach().cpu(), expected.detach())
    for mine, other in zip(ours.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.detach().cpu(), other.detach())


def test_graphed_callables() -> None:
    torch.manual_seed(0)
    first = torch.nn.Linear(8, 16).to("openreg")
    second = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(16, 4)).to("openreg")
    plain_first, plain_second = copy.deepcopy(first).cpu(), copy.deepcopy(second).cpu()
    graphed_first, graphed_second = torch.openreg.make_graphed_callables(
        (first, second),
        (
            (torch.randn(5, 8, device="openreg"),),
            (torch.randn(5, 16, device="openreg", requires_grad=True),),
        ),
    )
    for _ in range(3):
        x = torch.randn(5, 8)
        ours = graphed_second(graphed_first(x.to("openreg")))
        theirs = plain_second(plain_first(x))
        torch.testing.assert_close(ours.detach().cpu(), theirs.detach())
        for parameter in (*first.parameters(), *second.parameters()):
            parameter.grad = None
        plain_first.zero_grad()
        plain_second.zero_grad()
        ours.square().sum().backward()
        theirs.square().sum().backward()
        for mine, other in zip(
            (*first.parameters(), *second.parameters()),
            (*plain_first.parameters(), *plain_second.parameters()),
            strict=True,
        ):
            assert mine.grad is not None
            torch.testing.assert_close(mine.grad.cpu(), other.grad)
    graphed_first.eval()
    torch.testing.assert_close(  # runs without the graph, so any shape is valid
        graphed_first(torch.ones(2, 8, device="openreg")).detach().cpu(),
        plain_first(torch.ones(2, 8)).detach(),
    )


def test_gradients_of_graphed_callables_accumulate() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 4).to("openreg")
    plain = copy.deepcopy(layer).cpu()
    inputs = [torch.randn(5, 8, requires_grad=True) for _ in range(3)]
    graphed = torch.openreg.make_graphed_callables(
        layer, (torch.randn(5, 8, device="openreg", requires_grad=True),)
    )
    ours = [x.detach().to("openreg").requires_grad_() for x in inputs]
    for x, mine in zip(inputs, ours, strict=True):
        plain(x).square().sum().backward()
        graphed(mine).square().sum().backward()
    for mine, theirs in zip(
        (*layer.parameters(), *ours), (*plain.parameters(), *inputs), strict=True
    ):
        assert mine.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(mine.grad.cpu(), theirs.grad)


def test_casts_of_autocast_are_not_shared_with_a_capture() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 8).to("openreg")
    x = torch.randn(4, 8, device="openreg")
    graph = torch.openreg.OpenRegGraph()
    with torch.autocast("openreg", dtype=torch.bfloat16):
        expected = layer(x)
        with torch.openreg.graph(graph):
            captured = layer(x)
        after = layer(x)  # no replay has computed the cast of the capture
    torch.testing.assert_close(after, expected)
    # A cast from before the capture would have been freed, and this memory would be reused.
    others = [torch.full((8, 8), 9.0, dtype=torch.bfloat16, device="openreg") for _ in range(8)]
    graph.replay()
    torch.testing.assert_close(captured, expected)
    with torch.no_grad():
        layer.weight.mul_(2)
        layer.bias.mul_(2)
    graph.replay()
    torch.testing.assert_close(captured, 2 * expected)
    del others


def test_arguments_that_graphed_callables_reject() -> None:
    module = torch.nn.Linear(2, 2).to("openreg")
    module.register_forward_hook(lambda *_: None)
    x = torch.ones(2, 2, device="openreg")
    with pytest.raises(RuntimeError, match="has hooks"):
        torch.openreg.make_graphed_callables(module, (x,))
    with pytest.raises(TypeError, match="only tensors"):
        torch.openreg.make_graphed_callables(lambda t, n: t * n, (x, 3))
    with pytest.raises(ValueError, match="2 callables"):
        torch.openreg.make_graphed_callables((torch.sin, torch.cos), ((x,),))
