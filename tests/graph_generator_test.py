# SPDX-License-Identifier: BSD-3-Clause
"""Random numbers in graphs: replays draw the numbers that eager calls draw."""

import pytest
import torch
import torch_openreg as torch_openreg

from tests.graph_capture import NAP, capture
from tests.graph_capture import quiet_devices as quiet_devices


def test_each_replay_draws_the_numbers_of_eager_mode() -> None:
    x = torch.empty(100, device="openreg")

    def work() -> torch.Tensor:
        noise = torch.nn.functional.dropout(x.uniform_(), 0.5)
        return noise + torch.randn(100, device="openreg") + torch.rand(100, device="openreg")

    graph, result = capture(work)
    torch.openreg.manual_seed(7)
    eager = [work().cpu() for _ in range(3)]
    torch.openreg.manual_seed(7)
    torch.openreg._sleep(NAP // 10)
    replayed = []
    for _ in range(3):
        graph.replay()
        replayed.append(result.clone())
    for ours, theirs in zip(replayed, eager, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=0)
    assert not torch.equal(eager[0], eager[1])
    state = torch.openreg.get_rng_state()
    graph.replay()
    again = result.clone()
    torch.openreg.set_rng_state(state)
    graph.replay()
    assert torch.equal(result.cpu(), again.cpu())


def test_replays_and_eager_share_one_sequence() -> None:
    x = torch.empty(10, device="openreg")
    graph, _ = capture(lambda: x.uniform_())
    torch.openreg.manual_seed(3)
    expected = [torch.empty(10, device="openreg").uniform_().cpu() for _ in range(3)]
    torch.openreg.manual_seed(3)
    graph.replay()
    first = x.clone()
    second = torch.empty(10, device="openreg").uniform_()
    graph.replay()
    for ours, theirs in zip((first, second, x), expected, strict=True):
        assert torch.equal(ours.cpu(), theirs)


def test_generators_have_to_be_registered() -> None:
    generator = torch.Generator("openreg")
    x = torch.empty(10, device="openreg")
    graph = torch.openreg.OpenRegGraph()
    with (
        torch.openreg.graph(graph),
        pytest.raises(RuntimeError, match="register_generator_state"),
    ):
        x.uniform_(generator=generator)
    graph.reset()
    graph.register_generator_state(generator)
    with torch.openreg.graph(graph):
        x.uniform_(generator=generator)
        with pytest.raises(RuntimeError, match="while a graph that uses it is being captured"):
            generator.manual_seed(3)
    for seed in (5, 6):
        generator.manual_seed(seed)
        expected = torch.empty(10, device="openreg").uniform_(generator=generator).cpu()
        generator.manual_seed(seed)
        graph.replay()
        assert torch.equal(x.cpu(), expected)
    with pytest.raises(RuntimeError, match="only generators of device openreg"):
        torch.openreg.OpenRegGraph().register_generator_state(torch.Generator())
