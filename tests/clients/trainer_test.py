# SPDX-License-Identifier: BSD-3-Clause
"""Tests transformers' Trainer, which needs only the variable ACCELERATE_TORCH_DEVICE."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch.testing import assert_close
from torch.utils.data import Dataset

from tests.clients import tiny_models
from tests.clients.comparison import DEVICE, assert_same_tensors

LABELS = 2


class Texts(Dataset[dict[str, Tensor]]):
    """A dataset of random tokens. The label is the parity of the first token."""

    def __init__(self, count: int) -> None:
        self.tokens = torch.randint(3, 90, (count, 12), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = self.tokens[index]
        return {"input_ids": tokens, "labels": tokens[0] % LABELS}


def metrics(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def trainer(
    folder: Path, device: str = "openreg", *, precision: str = "no", **settings: Any
) -> Any:
    """Returns a Trainer for a small BERT with fixed initial weights."""
    torch.manual_seed(0)
    defaults: dict[str, Any] = {
        "per_device_train_batch_size": 8,
        "max_steps": 6,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
        "optim": "sgd",
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ACCELERATE_TORCH_DEVICE", device)
        # Set the variable, because the argument bf16 supports only a fixed list of devices.
        environment.setenv("ACCELERATE_MIXED_PRECISION", precision)
        return transformers.Trainer(
            model=tiny_models.bert(),
            args=transformers.TrainingArguments(output_dir=str(folder), **(defaults | settings)),
            train_dataset=Texts(64),
            eval_dataset=Texts(24),
            compute_metrics=metrics,
        )


def losses(trained: Any) -> list[float]:
    return [entry["loss"] for entry in trained.state.log_history if "loss" in entry]


def assert_same_run(ours: Any, theirs: Any, *, rtol: float, atol: float) -> None:
    """Checks that trained Trainers on the device and on the CPU have equal losses and weights.

    Weights are compared only if the optimizer does not amplify rounding errors. For example, the
    gradient of a key bias consists entirely of rounding errors, which Adam turns into full steps.
    """
    assert ours.args.device.type == "openreg"
    assert theirs.args.device.type == "cpu"
    assert len(losses(ours)) == ours.args.max_steps
    assert_close(losses(ours), losses(theirs), rtol=rtol, atol=atol)
    if ours.args.optim == "sgd":
        assert_same_tensors(
            ours.model.state_dict(), theirs.model.state_dict(), rtol=rtol, atol=atol
        )


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulates": {"gradient_accumulation_steps": 3, "max_grad_norm": 0.5, "warmup_steps": 2},
    "workers": {"dataloader_num_workers": 1, "dataloader_pin_memory": True},
    "checkpoints": {"gradient_checkpointing": True},
    "adamw": {"optim": "adamw_torch"},
    "fused": {"optim": "adamw_torch_fused"},
    "smooth": {"label_smoothing_factor": 0.1, "lr_scheduler_type": "cosine"},
    "adafactor": {"optim": "adafactor"},
    "compiled": {"torch_compile": True},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_trains(tmp_path: Path, name: str) -> None:
    ours = trainer(tmp_path / "ours", **SETTINGS[name])
    ours.train()
    theirs = trainer(tmp_path / "theirs", "cpu", **SETTINGS[name])
    theirs.train()
    assert_same_run(ours, theirs, rtol=1e-3, atol=1e-4)


def test_trains_in_bfloat16(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"precision": "bf16", "gradient_accumulation_steps": 2}
    ours = trainer(tmp_path / "ours", **settings)
    ours.train()
    theirs = trainer(tmp_path / "theirs", "cpu", **settings)
    theirs.train()
    assert ours.accelerator.mixed_precision == "bf16"
    assert_close(losses(ours), losses(theirs), rtol=5e-2, atol=5e-2)


def test_evaluates_and_predicts(tmp_path: Path) -> None:
    results = []
    for device in ("openreg", "cpu"):
        run = trainer(tmp_path, device)
        results.append((run.evaluate(), run.predict(Texts(10)).predictions))
    (found, ours), (expected, theirs) = results
    assert found["eval_accuracy"] == expected["eval_accuracy"]
    assert found["eval_loss"] == pytest.approx(expected["eval_loss"], rel=1e-4)
    assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_resumes(tmp_path: Path) -> None:
    """A run that is stopped and resumed computes the same result as an uninterrupted run."""
    adam: dict[str, Any] = {"optim": "adamw_torch", "learning_rate": 1e-3}
    whole = trainer(tmp_path / "whole", **adam)
    whole.train()
    saving = adam | {"save_strategy": "steps", "save_steps": 3}
    stopped = trainer(tmp_path / "stopped", **saving)
    stopped.add_callback(StopAt(3))
    stopped.train()
    assert stopped.state.global_step == 3
    resumed = trainer(tmp_path / "stopped", **saving)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 6
    assert next(resumed.model.parameters()).device.type == "openreg"
    for name, parameter in whole.model.state_dict().items():
        assert_close(resumed.model.state_dict()[name], parameter, rtol=1e-5, atol=1e-6)
    optimizer = resumed.optimizer.state_dict()["state"]
    assert all(state["exp_avg"].device == DEVICE for state in optimizer.values())


class StopAt(transformers.TrainerCallback):  # type: ignore[misc]
    """A callback that stops training after `step` steps, as a machine failure does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        control.should_training_stop = state.global_step == self.step
        return control


def test_sequence_to_sequence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sequence-to-sequence model generates the same text in evaluation as on the CPU."""
    found = []
    data = [{"input_ids": tiny_models.tokens(7), "labels": tiny_models.tokens(5)} for _ in range(2)]
    for device in ("openreg", "cpu"):
        torch.manual_seed(0)
        monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", device)
        arguments = transformers.Seq2SeqTrainingArguments(
            output_dir=str(tmp_path),
            predict_with_generate=True,
            generation_max_length=8,
            report_to=[],
            disable_tqdm=True,
        )
        run = transformers.Seq2SeqTrainer(model=tiny_models.t5(), args=arguments)
        assert arguments.device.type == device
        found.append(run.predict(data))
    assert (found[0].predictions == found[1].predictions).all()
