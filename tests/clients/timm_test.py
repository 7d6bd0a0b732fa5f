# SPDX-License-Identifier: BSD-3-Clause
"""Tests timm: networks, optimizers, augmentations and weight averages."""

from typing import Any

import numpy as np
import pytest
import timm
import timm.optim
import torch
from timm.data.mixup import Mixup
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from timm.utils import ModelEmaV3
from torch import Tensor, nn

from tests.clients.comparison import (
    DEVICE,
    assert_same,
    assert_same_tensors,
    assert_trains_alike,
    on_device,
    to_device,
)

#: The arguments that make each network small. Many families also have a small network named test_*.
NETWORKS: dict[str, dict[str, Any]] = {
    "test_resnet": {},
    "test_vit": {},
    "test_vit_relpos": {},
    "test_convnext": {},
    "test_efficientnet": {},
    "test_byobnet": {},
    "test_nfnet": {},
    "test_maxvit": {},
    "test_mambaout": {},
    "resnet18": {"channels": (8, 16, 24, 32)},
    "swin_tiny_patch4_window7_224": {
        "img_size": 32,
        "window_size": 4,
        "embed_dim": 16,
        "depths": (2, 1),
        "num_heads": (2, 4),
        "drop_path_rate": 0.0,
    },
}


def network(name: str) -> Any:
    return timm.create_model(name, num_classes=5, drop_rate=0.0, **NETWORKS[name])


def batch(name: str) -> tuple[Tensor, Tensor]:
    size = NETWORKS[name].get("img_size", 160 if name.startswith("test_") else 64)
    return torch.randn(2, 3, size, size), torch.tensor([1, 4])


def loss(model: nn.Module, batch: Any) -> Tensor:
    value: Tensor = LabelSmoothingCrossEntropy(0.1)(model(batch[0]), batch[1])
    return value


@pytest.mark.parametrize("name", NETWORKS)
def test_trains(name: str) -> None:
    # In eval mode, batch norm uses stored statistics. Statistics of a few values would amplify
    # rounding errors.
    model = network(name).eval()
    assert_trains_alike(model, batch(name), loss, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["resnet18", "test_efficientnet"])
def test_trains_with_batch_statistics(name: str) -> None:
    pictures, _ = batch(name)
    data = torch.cat([pictures, torch.randn(14, *pictures.shape[1:])]), torch.arange(16) % 5
    assert_trains_alike(network(name).train(), data, loss, steps=2, rtol=2e-3, atol=1e-3)


def test_trains_channels_last() -> None:
    model = network("resnet18").eval().to(memory_format=torch.channels_last)
    pictures, labels = batch("resnet18")
    pictures = pictures.to(memory_format=torch.channels_last)
    assert_trains_alike(model, (pictures, labels), loss, rtol=1e-3, atol=1e-4)


OPTIMIZERS = ["sgd", "adamw", "lamb", "lion", "adafactor", "nadamw", "madgrad", "muon", "rmsproptf"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str) -> None:
    model = network("test_vit").eval()
    data = batch("test_vit")
    pairs = ((on_device(model), to_device(data)), (model, data))
    optimizers = [timm.optim.create_optimizer_v2(m, opt=name, lr=1e-3) for m, _ in pairs]
    # Make only one step: many optimizers use the sign of a value, which rounding errors may flip.
    for (m, d), optimizer in zip(pairs, optimizers, strict=True):
        loss(m, d).backward()
        optimizer.step()
    assert_same_tensors(pairs[0][0].state_dict(), model.state_dict(), rtol=1e-3, atol=2e-3)


def test_mixup_and_average() -> None:
    model = network("test_vit")
    pictures, labels = batch("test_vit")
    found = []
    for m in (on_device(model), model):
        place = next(m.parameters()).device
        np.random.seed(0)
        mixup = Mixup(mixup_alpha=0.5, cutmix_alpha=1.0, num_classes=5)
        x, y = mixup(pictures.clone().to(place), labels.to(place))
        average = ModelEmaV3(m, decay=0.5)
        with torch.no_grad():
            for parameter in m.parameters():
                parameter.add_(0.1)
        average.update(m)
        found.append(SoftTargetCrossEntropy()(average.module.eval()(x), y).detach())
    assert_same(*found, rtol=1e-4, atol=1e-5)


def test_features() -> None:
    model = timm.create_model("resnet18", features_only=True, **NETWORKS["resnet18"]).eval()
    pictures = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        for ours, theirs in zip(
            on_device(model)(pictures.to(DEVICE)), model(pictures), strict=True
        ):
            assert_same(ours, theirs, rtol=1e-4, atol=1e-4)


def test_compiles() -> None:
    model = network("test_vit").eval()
    pictures, _ = batch("test_vit")
    with torch.no_grad():
        compiled: Any = torch.compile(on_device(model))
        assert_same(compiled(pictures.to(DEVICE)), model(pictures), rtol=1e-4, atol=1e-4)
