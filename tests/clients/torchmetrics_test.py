# SPDX-License-Identifier: BSD-3-Clause
"""Tests torchmetrics: metrics, functions and collections compute the CPU's values."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchmetrics
from torch import Tensor
from torch.testing import assert_close
from torch.utils._pytree import tree_map_only

from tests.clients.comparison import DEVICE, to_device

CLASSES = 4
ROWS = 24

Batch = tuple[Any, ...]


def scores() -> Tensor:
    return torch.randn(ROWS, CLASSES).softmax(1)


def labels() -> Tensor:
    return torch.randint(CLASSES, (ROWS,))


def multiclass() -> Batch:
    return scores(), labels()


def binary() -> Batch:
    return torch.rand(ROWS), torch.randint(2, (ROWS,))


def multilabel() -> Batch:
    return torch.rand(ROWS, CLASSES), torch.randint(2, (ROWS, CLASSES))


def numbers() -> Batch:
    target = torch.rand(ROWS) + 0.5
    return target + 0.1 * torch.randn(ROWS).clamp(-2, 2), target


def pictures() -> Batch:
    return torch.rand(2, 3, 32, 32), torch.rand(2, 3, 32, 32)


def ranked() -> Batch:
    """Returns a score, a relevance and a query index for each document."""
    return torch.rand(ROWS), torch.randint(2, (ROWS,)), torch.arange(ROWS) // 6


def signals() -> Batch:
    target = torch.randn(2, 200)
    return target + 0.1 * torch.randn(2, 200), target


def clusters() -> Batch:
    return torch.randint(3, (ROWS,)), torch.randint(3, (ROWS,))


_CLASSIFICATION = [
    "Accuracy",
    "AUROC",
    "AveragePrecision",
    "CalibrationError",
    "CohenKappa",
    "ConfusionMatrix",
    "F1Score",
    "FBetaScore",
    "HammingDistance",
    "HingeLoss",
    "JaccardIndex",
    "MatthewsCorrCoef",
    "Precision",
    "PrecisionRecallCurve",
    "ROC",
    "Recall",
    "Specificity",
    "StatScores",
]
_NOT_MULTILABEL = {"CalibrationError", "CohenKappa", "HingeLoss"}


def _classification(name: str, task: str) -> Callable[[], Any]:
    settings: dict[str, Any] = {"task": task}
    if task != "binary":
        settings["num_classes" if task == "multiclass" else "num_labels"] = CLASSES
    if name == "FBetaScore":
        settings["beta"] = 0.5
    return lambda: getattr(torchmetrics, name)(**settings)


_BATCHES = {"binary": binary, "multiclass": multiclass, "multilabel": multilabel}
_PLAIN: dict[Callable[[], Batch], dict[str, dict[str, Any]]] = {
    numbers: {
        "MeanSquaredError": {},
        "MeanAbsoluteError": {},
        "MeanAbsolutePercentageError": {},
        "SymmetricMeanAbsolutePercentageError": {},
        "MeanSquaredLogError": {},
        "R2Score": {},
        "ExplainedVariance": {},
        "PearsonCorrCoef": {},
        "SpearmanCorrCoef": {},
        "KendallRankCorrCoef": {},
        "ConcordanceCorrCoef": {},
        "TweedieDevianceScore": {"power": 1.5},
        "LogCoshError": {},
        "MinkowskiDistance": {"p": 3},
        "RelativeSquaredError": {},
    },
    pictures: {
        "StructuralSimilarityIndexMeasure": {"data_range": 1.0},
        "PeakSignalNoiseRatio": {"data_range": 1.0},
        "UniversalImageQualityIndex": {},
        "TotalVariation": {},
        "SpectralAngleMapper": {},
        "ErrorRelativeGlobalDimensionlessSynthesis": {},
    },
    ranked: {
        "RetrievalMAP": {},
        "RetrievalMRR": {},
        "RetrievalNormalizedDCG": {},
        "RetrievalPrecision": {"top_k": 3},
        "RetrievalRecall": {"top_k": 3},
        "RetrievalHitRate": {"top_k": 3},
    },
    signals: {
        "SignalNoiseRatio": {},
        "ScaleInvariantSignalDistortionRatio": {},
        "SignalDistortionRatio": {"filter_length": 8},
    },
    multiclass: {"KLDivergence": {}},
}


def _plain(name: str, settings: dict[str, Any]) -> Callable[[], Any]:
    for module in (torchmetrics, torchmetrics.image, torchmetrics.audio, torchmetrics.retrieval):
        if hasattr(module, name):
            return lambda: getattr(module, name)(**settings)
    raise LookupError(name)


METRICS: dict[str, tuple[Callable[[], Any], Callable[[], Batch]]] = {
    **{
        f"{task}_{name}": (_classification(name, task), _BATCHES[task])
        for name in _CLASSIFICATION
        for task in _BATCHES
        if not (task == "multilabel" and name in _NOT_MULTILABEL)
    },
    **{
        name: (_plain(name, settings), batch)
        for batch, metrics in _PLAIN.items()
        for name, settings in metrics.items()
    },
}


def arguments(name: str, batch: Batch) -> Batch:
    """Returns a metric's arguments for a batch. For most metrics, they are the batch itself."""
    if name == "TotalVariation":
        return batch[:1]
    if name == "KLDivergence":
        return batch[0], batch[0].roll(1, 0)
    return batch


@pytest.mark.parametrize("name", METRICS)
def test_metric(name: str) -> None:
    make, draw = METRICS[name]
    ours, theirs = make().to(DEVICE), make()
    for _ in range(2):
        batch = arguments(name, draw())
        # forward() returns the metric of its batch, and adds the batch to the state.
        found, expected = ours(*to_device(batch)), theirs(*batch)
        assert_alike(found, expected)
    assert ours.device == DEVICE
    assert_alike(ours.compute(), theirs.compute())
    ours.reset()


def assert_alike(found: Any, expected: Any) -> None:
    devices = []
    tree_map_only(Tensor, lambda tensor: devices.append(tensor.device), found)
    assert set(devices) == {DEVICE}
    found = tree_map_only(Tensor, lambda tensor: tensor.cpu(), found)
    assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_collection() -> None:
    """Tests the clone of a collection whose metrics share states."""
    found = []
    data = [multiclass() for _ in range(3)]
    for place in (DEVICE, torch.device("cpu")):
        names = ("Accuracy", "Precision", "Recall", "F1Score", "AUROC", "ConfusionMatrix")
        settings: dict[str, Any] = {"task": "multiclass", "num_classes": CLASSES}
        metrics = torchmetrics.MetricCollection(
            {name: getattr(torchmetrics, name)(**settings) for name in names}
        ).to(place)
        validation = metrics.clone(prefix="validation_")
        for x, y in data:
            validation.update(x.to(place), y.to(place))
        found.append(validation.compute())
    assert_alike(*found)


def test_aggregation_and_wrappers() -> None:
    values = [torch.rand(4) for _ in range(3)]
    wrapped: dict[str, Callable[[], Any]] = {
        "mean": torchmetrics.MeanMetric,
        "sum": torchmetrics.SumMetric,
        "max": torchmetrics.MaxMetric,
        "cat": torchmetrics.CatMetric,
        "running": lambda: torchmetrics.RunningMean(2),
        "minmax": lambda: torchmetrics.wrappers.MinMaxMetric(torchmetrics.MeanMetric()),
    }
    for make in wrapped.values():
        ours, theirs = make().to(DEVICE), make()
        for value in values:
            ours.update(value.to(DEVICE))
            theirs.update(value)
        assert_alike(ours.compute(), theirs.compute())


def test_state_is_saved() -> None:
    metric = torchmetrics.MeanSquaredError().to(DEVICE)
    metric.persistent(True)
    metric.update(*to_device(numbers()))
    loaded = torchmetrics.MeanSquaredError().to(DEVICE)
    loaded.persistent(True)
    loaded.load_state_dict(metric.state_dict())
    assert loaded.metric_state.keys() == metric.metric_state.keys()
    assert torch.equal(loaded.sum_squared_error, metric.sum_squared_error)


def test_curve_in_many_thresholds() -> None:
    """If thresholds are specified, torchmetrics computes the curve from a histogram."""
    x, y = binary()
    ours, theirs = (torchmetrics.PrecisionRecallCurve("binary", thresholds=20) for _ in range(2))
    assert_alike(ours.to(DEVICE)(x.to(DEVICE), y.to(DEVICE)), theirs(x, y))
