# SPDX-License-Identifier: BSD-3-Clause
"""Tests recurrent networks: oneDNN layers (lstm.cc), and the cells of aten/ (rnn_cells.cc)."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_leaves

from tests.differential import check, check_error, to_device

NETWORKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "lstm": (nn.LSTM, {}),
    "lstm, batch first": (nn.LSTM, {"batch_first": True}),
    "lstm, 3 layers": (nn.LSTM, {"num_layers": 3}),
    "lstm, both directions": (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
    "lstm without bias": (nn.LSTM, {"bias": False}),
    "lstm with projections": (nn.LSTM, {"proj_size": 2, "bidirectional": True}),
    "gru": (nn.GRU, {"num_layers": 2, "bidirectional": True}),
    "gru without bias": (nn.GRU, {"bias": False, "batch_first": True}),
    "rnn, tanh": (nn.RNN, {"num_layers": 2}),
    "rnn, relu": (nn.RNN, {"nonlinearity": "relu", "bidirectional": True}),
}
FEATURES, HIDDEN = 5, 4


class Network:
    """A recurrent network as a function of tensors. The parameters are arguments too."""

    def __init__(self, name: str, dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(0)
        kind, options = NETWORKS[name]
        self.module: Any = kind(FEATURES, HIDDEN, **options).to(dtype)
        self.names = [name for name, _ in self.module.named_parameters()]
        self.parameters = [p.detach().requires_grad_() for p in self.module.parameters()]

    def __call__(self, x: Any, states: Any, *parameters: Tensor) -> Any:
        weights = dict(zip(self.names, parameters, strict=True))
        return torch.func.functional_call(self.module, weights, (x, states))

    def states(self, batch: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        """Returns random initial states."""
        layers = self.module.num_layers * (1 + self.module.bidirectional)
        sizes = [self.module.proj_size or HIDDEN]
        sizes += [HIDDEN] if isinstance(self.module, nn.LSTM) else []
        return [torch.randn(layers, batch, n, dtype=dtype, requires_grad=True) for n in sizes]

    def run(self, x: Tensor, *rest: Tensor) -> Any:
        """Calls the network. The initial states precede the parameters in `rest`."""
        count = len(rest) - len(self.parameters)
        states: Any = rest[:count] if count == 2 else rest[0] if count else None
        return self(x, states, *rest[count:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NETWORKS)
def test_sequences_and_gradients(name: str, dtype: torch.dtype) -> None:
    network = Network(name, dtype)
    for steps, batch in [(3, 3), (7, 3), (3, 3), (1, 1)]:  # new and repeated sizes
        x = torch.randn(steps, batch, FEATURES, dtype=dtype, requires_grad=True)
        first = x.shape[0] if network.module.batch_first else x.shape[1]
        check(network.run, x, *network.states(first, dtype), *network.parameters, strides=False)
        check(network.run, x, *network.parameters, backward=False)
    x = torch.randn(4, FEATURES, dtype=dtype, requires_grad=True)
    check(network.run, x, *network.parameters)


@pytest.mark.parametrize("name", NETWORKS)
def test_inference(name: str) -> None:
    network = Network(name)
    x = torch.randn(3, 3, FEATURES)
    with torch.no_grad():
        check(network.run, x, *network.states(3), *network.parameters)
    with torch.inference_mode():
        check(network.run, x, *(p.detach() for p in network.parameters))


@pytest.mark.parametrize("name", NETWORKS)
def test_packed_sequences(name: str) -> None:
    network = Network(name)

    def run(x: Tensor, *parameters: Tensor) -> Any:
        packed = pack_padded_sequence(x, torch.tensor([4, 2, 1]), network.module.batch_first)
        output, states = network(packed, None, *parameters)
        return pad_packed_sequence(output, network.module.batch_first)[0], states

    shape = (3, 4) if network.module.batch_first else (4, 3)
    check(run, torch.randn(*shape, FEATURES, requires_grad=True), *network.parameters)


def test_views_as_input() -> None:
    network = Network("lstm")
    x = torch.randn(FEATURES, 6, 3).permute(1, 2, 0)[::2].detach().requires_grad_()
    check(network.run, x, *network.states(3), *network.parameters, strides=False)


def test_gradients_of_gradients() -> None:
    network = Network("lstm")

    def penalty(x: Tensor, *parameters: Tensor) -> Tensor:
        output = network.run(x, *parameters)[0]
        (gradient,) = torch.autograd.grad(output.square().sum(), x, create_graph=True)
        return gradient.square().sum()

    check(penalty, torch.randn(3, 2, FEATURES, requires_grad=True), *network.parameters)


def test_dropout_between_layers_is_drawn_on_the_device() -> None:
    lstm = nn.LSTM(FEATURES, HIDDEN, 2, dropout=0.5).to("openreg")
    x = torch.randn(6, 3, FEATURES, device="openreg")
    torch.manual_seed(1)
    first, second = lstm(x)[0], lstm(x)[0]
    torch.manual_seed(1)
    assert torch.equal(lstm(x)[0], first)
    assert not torch.equal(first, second)
    lstm.eval()
    assert torch.equal(lstm(x)[0], lstm(x)[0])


def test_autocast_computes_in_half_precision() -> None:
    lstm = nn.LSTM(FEATURES, HIDDEN).to("openreg")
    x = torch.randn(6, 3, FEATURES, device="openreg")
    with torch.autocast("openreg", dtype=torch.bfloat16):
        assert lstm(x)[0].dtype == torch.bfloat16


def wrong_arguments(name: str) -> list[list[Tensor]]:
    """Returns argument lists for torch.lstm or torch.gru with mismatched sizes or dtypes."""
    network = Network(name)
    x, weights = torch.randn(2, 3, FEATURES), network.parameters
    return [
        [torch.randn(2, 3, FEATURES + 1), *network.states(3), *weights],
        [x, *network.states(2), *weights],
        [x.double(), *network.states(3), *weights],
        [x, *network.states(3), *weights[:3]],
    ]


@pytest.mark.parametrize("number", range(4))
def test_errors(number: int) -> None:
    def gru(x: Tensor, state: Tensor, *weights: Tensor) -> Any:
        return torch.gru(x, state, list(weights), True, 1, 0.0, True, False, False)

    check_error(gru, *wrong_arguments("gru")[number])
    # Do not compare LSTM errors with the CPU, which does not check some sizes and dtypes.
    x, hx, cx, *weights = (t.to("openreg") for t in wrong_arguments("lstm")[number])
    with pytest.raises(RuntimeError):
        torch.lstm(x, [hx, cx], weights, True, 1, 0.0, True, False, False)


def test_the_operator_of_a_layer_reports_what_it_supports() -> None:
    lstm: Any = nn.LSTM(FEATURES, HIDDEN).to("openreg")
    x, state = torch.randn(2, 3, FEATURES, device="openreg"), torch.zeros(3, HIDDEN).to("openreg")
    tensors = [x, *lstm._flat_weights, state, state]
    gru = 3
    with pytest.raises(NotImplementedError, match=r"call torch\.lstm, torch\.gru"):
        torch.ops.aten.mkldnn_rnn_layer(
            *tensors, False, [], gru, HIDDEN, 1, True, False, False, True
        )


@pytest.mark.parametrize("name", list(NETWORKS))
def test_gradients_of_some_results(name: str) -> None:
    """Runs backward of a layer without gradients for some or all of its results."""
    network = Network(name)
    x = torch.randn(3, 3, FEATURES, requires_grad=True)  # valid for both values of batch_first
    states = network.states(3)

    def results(x: Tensor, *rest: Tensor) -> list[Tensor]:
        return list(tree_leaves(network.run(x, *rest)))

    for chosen in range(len(results(x, *states, *network.parameters))):
        check(lambda *all_, n=chosen: results(*all_)[n], x, *states, *network.parameters)
    moved = [to_device(t) for t in (x, *states, *network.parameters)]
    undefined: Any = torch._C._functions.UndefinedGrad()
    outputs = [undefined(output) for output in results(*moved)]
    gradients = torch.autograd.grad(outputs, moved, outputs, allow_unused=True)
    torch.openreg.synchronize()
    assert set(gradients) == {None}
