# SPDX-License-Identifier: BSD-3-Clause
"""Networks train step by step as on the CPU, and no fallback makes the host wait."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.differential import check_error

STEPS = 4


class Residual(nn.Module):
    """A small residual network that uses all kinds of convolutions."""

    def __init__(self, normalization: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False), normalization(8), nn.ReLU()
        )
        self.deep = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False),
            nn.Conv2d(8, 8, 1, bias=False),
            normalization(8),
            nn.ReLU6(inplace=True),
        )
        self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.head = nn.Sequential(
            nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.deep(x)
        x = torch.cat([x, functional.hardswish(self.up(functional.silu(self.down(x))))], dim=1)
        return self.head(x[:, :8] + x[:, 8:])  # type: ignore[no-any-return]


class Classifier(nn.Module):
    """A classifier of token sequences with embeddings, a transformer encoder, and a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(20, 16, padding_idx=0)
        self.positions = nn.Parameter(torch.randn(1, 6, 16) / 4)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        encoded = self.encoder(self.tokens(x) + self.positions, src_key_padding_mask=x == 0)
        return self.head(encoded.mean(dim=1))  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    """A recurrent network over a sequence. A linear layer classifies its last state."""

    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.cells = kind(6, 8, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(x)[0][:, -1])  # type: ignore[no-any-return]


def _mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 16), nn.Tanh(),
        nn.Linear(16, 16), nn.PReLU(16), nn.Linear(16, 5),
    )  # fmt: skip


def _channels_last(network: nn.Module) -> nn.Module:
    return network.to(memory_format=torch.channels_last)  # type: ignore[no-any-return,call-overload]


def _images() -> Tensor:
    return torch.randn(8, 1, 8, 8)


def _words() -> Tensor:
    words = torch.randint(1, 20, (8, 6))
    words[0, 4:] = 0
    return words


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "mlp": (_mlp, lambda: torch.randn(8, 12)),
    "convolutions": (lambda: Residual(nn.BatchNorm2d), _images),
    "group norm": (lambda: Residual(lambda c: nn.GroupNorm(2, c)), _images),
    "channels last": (
        lambda: _channels_last(Residual(nn.BatchNorm2d)),
        lambda: _images().contiguous(memory_format=torch.channels_last),
    ),
    "transformer": (Classifier, _words),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda: torch.randn(8, 4, 6)),
    "gru": (lambda: Recurrent(nn.GRU), lambda: torch.randn(8, 4, 6)),
    "rnn": (lambda: Recurrent(nn.RNN), lambda: torch.randn(8, 4, 6)),
}

OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, nesterov=True),
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=0.01),
}


def _train(network: nn.Module, x: Tensor, target: Tensor, optimizer: str) -> list[Tensor]:
    steps = OPTIMIZERS[optimizer](network)
    losses = []
    for _ in range(STEPS):
        steps.zero_grad()
        loss = functional.cross_entropy(network(x), target, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        steps.step()
        losses.append(loss.detach())
    return losses


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_trains_like_the_cpu_and_does_not_wait(name: str, optimizer: str) -> None:
    make, data = NETWORKS[name]
    torch.manual_seed(0)
    theirs = make()
    ours = make().to("openreg")
    ours.load_state_dict(theirs.state_dict())
    x, target = data(), torch.randint(0, 5, (8,))
    moved, moved_target = x.to("openreg"), target.to("openreg")

    expected = torch.stack(_train(theirs, x, target, optimizer))
    torch.openreg.fallback.reset()
    actual = torch.stack(_train(ours, moved, moved_target, optimizer))
    waits = {
        operator: record.synchronous
        for operator, record in torch.openreg.fallback.stats().items()
        if record.synchronous
    }
    assert not waits, torch.openreg.fallback.report()
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-3, atol=1e-3)
    for (key, mine), other in zip(
        ours.state_dict().items(), theirs.state_dict().values(), strict=True
    ):
        # Adam divides by the magnitude of a gradient. If the gradient is small, rounding errors can
        # therefore change the whole step.
        torch.testing.assert_close(mine.cpu(), other, rtol=2e-2, atol=2e-2, msg=key)


@pytest.mark.parametrize("name", NETWORKS)
def test_infers_like_the_cpu(name: str) -> None:
    make, data = NETWORKS[name]
    torch.manual_seed(0)
    theirs = make().eval()
    ours = make().to("openreg").eval()
    ours.load_state_dict(theirs.state_dict())
    x = data()
    with torch.inference_mode():
        torch.testing.assert_close(ours(x.to("openreg")).cpu(), theirs(x), rtol=1e-4, atol=1e-4)


def test_dropout_trains() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(12, 64), nn.Dropout(0.5), nn.Linear(64, 5)).to("openreg")
    x = torch.randn(32, 12, device="openreg")
    target = torch.randint(0, 5, (32,), device="openreg")
    torch.openreg.fallback.reset()
    losses = torch.stack(_train(network, x, target, "adamw")).cpu()
    assert bool(losses.isfinite().all())
    assert not any(r.synchronous for r in torch.openreg.fallback.stats().values())
    network.eval()
    assert torch.equal(network(x), network(x))


def test_a_lazy_layer_moves_before_its_first_call() -> None:
    x = torch.randn(2, 3, 6, 6)
    moved = nn.LazyConv2d(4, 3).to("openreg")
    moved(x.to("openreg")).sum().backward()
    assert moved.weight.shape == (4, 3, 3, 3)
    assert moved.weight.device.type == "openreg"
    assert moved.weight.grad is not None


def test_parameters_that_move_stay_the_same_objects() -> None:
    layer = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    weight, before = layer.weight, layer.weight.detach().clone()
    layer.to("openreg")
    assert layer.weight is weight
    layer(torch.ones(1, 3, device="openreg")).sum().backward()
    optimizer.step()  # the optimizer was created when the parameters were on the CPU
    assert torch.equal(layer.weight.detach().cpu(), before - 1)
    layer.cpu()
    assert layer.weight is weight
    assert torch.equal(layer.weight.detach(), before - 1)


def test_products_of_two_dtypes_are_refused_at_the_call() -> None:
    x = torch.randn(3, 3)
    check_error(torch.mm, x, x.double())
    check_error(torch.bmm, x[None].double(), x[None])
    check_error(torch.addmm, x, x, x.double())
