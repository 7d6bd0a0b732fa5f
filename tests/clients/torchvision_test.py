# SPDX-License-Identifier: BSD-3-Clause
"""Tests torchvision without its C++ operators: networks and transforms on the device."""

from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor, nn
from torchvision import tv_tensors
from torchvision.transforms import v2

from tests.clients.comparison import DEVICE, assert_same, assert_trains_alike

NETWORKS = [
    "resnet18",
    "mobilenet_v3_small",
    "shufflenet_v2_x0_5",
    "squeezenet1_1",
    "efficientnet_b0",
    "mnasnet0_5",
]


def loss(model: nn.Module, batch: Any) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


@pytest.mark.parametrize("name", NETWORKS)
def test_trains(name: str) -> None:
    model = torchvision.models.get_model(name, num_classes=5).eval()
    batch = torch.randn(2, 3, 64, 64), torch.tensor([1, 4])
    assert_trains_alike(model, batch, loss, steps=2, rtol=1e-3, atol=1e-4)


def test_transformers_train() -> None:
    settings: dict[str, Any] = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 32}
    model = torchvision.models.VisionTransformer(32, 8, num_classes=5, **settings).eval()
    batch = torch.randn(2, 3, 32, 32), torch.tensor([1, 4])
    assert_trains_alike(model, batch, loss, rtol=1e-3, atol=1e-4)
    swin = torchvision.models.SwinTransformer(
        [4, 4], 16, [1, 1], [2, 4], [4, 4], stochastic_depth_prob=0.0, num_classes=5
    )
    assert_trains_alike(swin.eval(), batch, loss, rtol=1e-3, atol=1e-4)


def test_segmentation_trains() -> None:
    model = torchvision.models.segmentation.lraspp_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=3
    ).eval()

    def pixel_loss(m: nn.Module, batch: Any) -> Tensor:
        return nn.functional.cross_entropy(m(batch[0])["out"], batch[1])

    batch = torch.randn(1, 3, 64, 64), torch.randint(3, (1, 64, 64))
    assert_trains_alike(model, batch, pixel_loss, steps=1, rtol=1e-3, atol=1e-4)


TRANSFORMS: dict[str, Any] = {
    "resize": lambda: v2.Resize((13, 17), antialias=True),
    "nearest": lambda: v2.Resize(11, interpolation=v2.InterpolationMode.NEAREST_EXACT),
    "bicubic": lambda: v2.Resize(40, interpolation=v2.InterpolationMode.BICUBIC),
    "crop": lambda: v2.CenterCrop(20),
    "pad": lambda: v2.Pad(3, padding_mode="reflect"),
    "flip": lambda: v2.RandomHorizontalFlip(1.0),
    "rotate": lambda: v2.RandomRotation((30, 30)),
    "affine": lambda: v2.RandomAffine((10, 10), translate=(0.0, 0.0), shear=(5, 5)),
    "blur": lambda: v2.GaussianBlur(3, (1.0, 1.0)),
    "normalize": lambda: v2.Normalize([0.5, 0.4, 0.3], [0.2, 0.2, 0.3]),
    "gray": lambda: v2.Grayscale(3),
    "posterize": lambda: v2.Compose(
        [v2.ToDtype(torch.uint8, scale=True), v2.RandomPosterize(3, 1.0)]
    ),
    "equalize": lambda: v2.Compose([v2.ToDtype(torch.uint8, scale=True), v2.RandomEqualize(1.0)]),
    "autocontrast": lambda: v2.RandomAutocontrast(1.0),
    "sharpness": lambda: v2.RandomAdjustSharpness(2.0, 1.0),
    "solarize": lambda: v2.RandomSolarize(0.5, 1.0),
    "color": lambda: v2.ColorJitter((1.2, 1.2), (0.9, 0.9), (1.1, 1.1), (0.1, 0.1)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    picture = torch.rand(3, 32, 32)
    results = []
    for place in (DEVICE, torch.device("cpu")):
        torch.manual_seed(3)
        results.append(TRANSFORMS[name]()(tv_tensors.Image(picture.to(place))))
    assert isinstance(results[0], tv_tensors.Image)
    assert_same(
        results[0].as_subclass(Tensor), results[1].as_subclass(Tensor), rtol=1e-4, atol=1e-4
    )


def test_boxes() -> None:
    """Tests box functions that need no C++ operators: formats, areas, overlaps and losses."""
    first = torch.tensor([[0.0, 0.0, 4.0, 4.0], [1.0, 2.0, 5.0, 7.0]])
    second = torch.tensor([[1.0, 1.0, 3.0, 5.0]])
    ops = torchvision.ops
    for compute in (ops.box_iou, ops.generalized_box_iou, ops.distance_box_iou):
        assert_same(compute(first.to(DEVICE), second.to(DEVICE)), compute(first, second))
    assert_same(
        ops.box_convert(first.to(DEVICE), "xyxy", "cxcywh"),
        ops.box_convert(first, "xyxy", "cxcywh"),
    )
    logits, targets = torch.randn(5), torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
    assert_same(
        ops.sigmoid_focal_loss(logits.to(DEVICE), targets.to(DEVICE)),
        ops.sigmoid_focal_loss(logits, targets),
    )


def test_missing_operators_are_reported() -> None:
    """C++ operators raise torchvision's error, because PyPI's build requires a torch with CUDA."""
    if torch.version.cuda is not None:
        pytest.skip("this torch is built for CUDA, as torchvision is")
    boxes = torch.rand(3, 4, device=DEVICE)
    with pytest.raises(RuntimeError, match="Couldn't load custom C"):
        torchvision.ops.nms(boxes, boxes[:, 0], 0.5)
