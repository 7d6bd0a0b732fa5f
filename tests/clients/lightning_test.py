# SPDX-License-Identifier: BSD-3-Clause
"""Tests Lightning's Trainer and Fabric with the classes that torch_openreg.lightning registers."""

from pathlib import Path
from typing import Any

import lightning.fabric
import lightning.pytorch as pl
import pytest
import torch
import torchmetrics
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset
from torch_openreg.lightning import register

from tests import child
from tests.clients.comparison import DEVICE, assert_same_tensors

register(pl)
register(lightning.fabric)

pytestmark = pytest.mark.filterwarnings("ignore:.*num_workers.*")


class Classifier(pl.LightningModule):  # type: ignore[misc]
    """A network that learns to predict whether the sum of its inputs is positive."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        self.accuracy = torchmetrics.Accuracy(task="binary")
        self.losses: list[float] = []
        self.seen: set[torch.device] = set()
        self.dtypes: set[torch.dtype] = set()

    def training_step(self, batch: Any, _: int) -> Tensor:
        x, y = batch
        self.seen.add(x.device)
        scores = self.network(x)
        self.dtypes.add(scores.dtype)
        loss = nn.functional.cross_entropy(scores, y)
        self.losses.append(loss.item())
        self.log("train_loss", loss)
        return loss

    def _evaluate(self, batch: Any, name: str) -> None:
        x, y = batch
        self.accuracy(self.network(x).argmax(1), y)
        self.log(name, self.accuracy)

    def validation_step(self, batch: Any, _: int) -> None:
        self._evaluate(batch, "validation_accuracy")

    def test_step(self, batch: Any, index: int) -> None:
        self._evaluate(batch, "test_accuracy")

    def predict_step(self, batch: Any, _: int) -> Tensor:
        scores: Tensor = self.network(batch[0])
        return scores

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return [optimizer], [schedule]


def loader() -> DataLoader[Any]:
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=16, pin_memory=True)


def trainer(folder: Path, device: str = "openreg", **settings: Any) -> Any:
    defaults: dict[str, Any] = {
        "accelerator": device,
        "devices": 1,
        "max_epochs": 3,
        "default_root_dir": folder,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    if device == "openreg":
        defaults["strategy"] = "openreg"
    return pl.Trainer(**(defaults | settings))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"accumulate_grad_batches": 2, "gradient_clip_val": 0.1},
        {"precision": "bf16-mixed"},
        {"precision": "64-true"},
        {"precision": "bf16-true"},
    ],
    ids=["plain", "accumulates", "mixed", "double", "bfloat16"],
)
def test_fits(tmp_path: Path, settings: dict[str, Any]) -> None:
    ours, theirs = Classifier(), Classifier()
    trainer(tmp_path, **settings).fit(ours, loader(), loader())
    trainer(tmp_path, "cpu", **settings).fit(theirs, loader(), loader())
    assert ours.seen == {DEVICE}
    assert ours.dtypes == theirs.dtypes
    tolerance = 2e-2 if "bf16" in settings.get("precision", "") else 1e-4
    assert_close(ours.losses, theirs.losses, rtol=tolerance, atol=tolerance)


def test_fits_in_float16(tmp_path: Path) -> None:
    """Trains with a GradScaler. The CPU, which has none in Lightning, trains in float32."""
    ours, theirs = Classifier(), Classifier()
    run = trainer(tmp_path, precision="16-mixed")
    run.fit(ours, loader())
    trainer(tmp_path, "cpu").fit(theirs, loader())
    assert ours.dtypes == {torch.float16}
    assert run.strategy.precision_plugin.scaler.get_scale() > 1
    assert_close(ours.losses, theirs.losses, rtol=2e-2, atol=2e-2)


def test_evaluates(tmp_path: Path) -> None:
    model = Classifier()
    results = []
    for device in ("openreg", "cpu"):
        run = trainer(tmp_path, device)
        results.append(
            [
                run.validate(model, loader(), verbose=False)[0],
                run.test(model, loader(), verbose=False)[0],
                torch.cat(run.predict(model, loader())).cpu(),
            ]
        )
    assert results[0][:2] == results[1][:2]
    assert_close(results[0][2], results[1][2], rtol=1e-4, atol=1e-5)


def test_resumes(tmp_path: Path) -> None:
    whole = Classifier()
    trainer(tmp_path, max_epochs=4).fit(whole, loader())
    run = trainer(tmp_path, max_epochs=2)
    run.fit(Classifier(), loader())
    run.save_checkpoint(tmp_path / "half.ckpt")
    resumed = Classifier()
    trainer(tmp_path, max_epochs=4).fit(resumed, loader(), ckpt_path=tmp_path / "half.ckpt")
    assert len(resumed.losses) == len(whole.losses) // 2
    assert_close(resumed.losses, whole.losses[len(resumed.losses) :], rtol=1e-5, atol=1e-6)


def test_callbacks(tmp_path: Path) -> None:
    """Tests the callbacks for checkpoints, early stopping and weight averaging."""
    checkpoints = pl.callbacks.ModelCheckpoint(
        tmp_path, monitor="validation_accuracy", mode="max", save_last=True
    )
    run = trainer(
        tmp_path,
        enable_checkpointing=True,
        callbacks=[
            checkpoints,
            pl.callbacks.EarlyStopping("validation_accuracy", mode="max", patience=1),
            pl.callbacks.StochasticWeightAveraging(1e-2),
        ],
    )
    model = Classifier()
    run.fit(model, loader(), loader())
    saved = torch.load(checkpoints.last_model_path, weights_only=False)["state_dict"]
    loaded = Classifier.load_from_checkpoint(checkpoints.last_model_path, map_location="openreg")
    assert run.current_epoch >= 1
    assert_same_tensors(loaded.state_dict(), {name: tensor.cpu() for name, tensor in saved.items()})


@pytest.mark.parametrize("devices", [[1], "1,"])
def test_second_device(tmp_path: Path, devices: Any) -> None:
    assert torch.openreg.device_count() > 1
    model = Classifier()
    trainer(tmp_path, devices=devices, max_epochs=1).fit(model, loader())
    assert model.seen == {torch.device("openreg", 1)}


@pytest.mark.refused  # this process itself does not use the devices
def test_several_processes(tmp_path: Path) -> None:
    """Each process trains on its own device with half of the batches. All weights end up equal."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    run = child.script(program)
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.split("\n")[:2]) == ["0 openreg:0 True", "1 openreg:1 True"]


PROGRAM = """
import torch
from tests.clients import torchvision_operators
from torch.utils.data import DataLoader, TensorDataset

import lightning.pytorch as pl
from torch_openreg.lightning import register

register(pl)  # or pytorch_lightning, lightning.fabric


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(8, 2)

    def training_step(self, batch, _):
        loss = torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_train_end(self):
        weights = self.all_gather(self.layer.weight)
        print(self.global_rank, self.device, bool((weights[0] == weights[1]).all()), flush=True)


if __name__ == "__main__":
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))
    data = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=8)
    pl.Trainer(
        accelerator="openreg", strategy="openreg_ddp", devices=2, precision="bf16-mixed",
        max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Model(), data)
"""


@pytest.mark.refused
def test_refuses_the_cpu(tmp_path: Path) -> None:
    """Without the strategy, Lightning would train on the CPU, so an error is raised."""
    with pytest.raises(ValueError, match="strategy='openreg'"):
        trainer(tmp_path, strategy="auto").fit(Classifier(), loader())


@pytest.mark.refused
def test_refuses_missing_devices(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="device index 99 is out of range"):
        trainer(tmp_path, devices=[99])


@pytest.mark.refused
@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ("several", r'selects no device: .* such as \[0, 1\] or "0,1"'),
        (",", "selects no device"),
        ("0", "selects no device"),
        (-2, "selects no device"),
        ([0, 0], "selects a device more than once"),
    ],
)
def test_refuses_devices_that_select_none_or_one_twice(devices: Any, message: str) -> None:
    """Calls the accelerator, because Trainer and Fabric reject some of these values themselves."""
    accelerator = pl.accelerators.AcceleratorRegistry.get("openreg")
    with pytest.raises(ValueError, match=message):
        accelerator.parse_devices(devices)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_fabric(precision: str) -> None:
    results = []
    for device in ("openreg", "cpu"):
        settings = {"strategy": "openreg"} if device == "openreg" else {}
        fabric = lightning.fabric.Fabric(
            accelerator=device, devices=1, precision=precision, **settings
        )
        fabric.launch()
        torch.manual_seed(0)
        network: Any = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        network, optimizer = fabric.setup(network, torch.optim.SGD(network.parameters(), lr=0.1))
        losses = []
        for x, y in fabric.setup_dataloaders(loader()):
            assert x.device.type == device
            loss = nn.functional.cross_entropy(network(x), y)
            fabric.backward(loss)
            fabric.clip_gradients(network, optimizer, max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        results.append(losses)
    tolerance = 2e-2 if precision == "bf16-mixed" else 1e-4
    assert_close(*results, rtol=tolerance, atol=tolerance)
