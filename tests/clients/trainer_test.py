# SPDX-License-Identifier: BSD-3-Clause
"""transformers' Trainer on the device: ACCELERATE_TORCH_DEVICE is all that it asks for."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.data import Dataset

from tests.clients import tiny_models
from tests.clients.comparison import DEVICE, assert_same_tensors

LABELS = 2


class Texts(Dataset[dict[str, Tensor]]):
    """Random tokens; the label is the parity of the first."""

    def __init__(self, count: int) -> None:
        self.tokens = torch.randint(3, 90, (count, 12), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = self.tokens[index]
        return {"input_ids": tokens, "labels": tokens[0] % LABELS}


def metrics(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def trainer(folder: Path, *, model: nn.Module | None = None, **settings: Any) -> Any:
    """A Trainer of a small BERT, always from the same weights."""
    torch.manual_seed(0)
    defaults: dict[str, Any] = {
        "per_device_train_batch_size": 8,
        "max_steps": 6,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
        # Where that is not said, sums of squares of gradients differ by their order.
        "optim": "adamw_torch",
    }
    return transformers.Trainer(
        model=model or tiny_models.bert(),
        args=transformers.TrainingArguments(output_dir=str(folder), **(defaults | settings)),
        train_dataset=Texts(64),
        eval_dataset=Texts(24),
        compute_metrics=metrics,
    )


def losses(trained: Any) -> list[float]:
    return [entry["loss"] for entry in trained.state.log_history if "loss" in entry]


def assert_same_run(ours: Any, theirs: Any, **tolerance: float) -> None:
    """Both have trained: the same losses and weights, the first on the device."""
    assert ours.args.device == torch.device("openreg", 0) or ours.args.device.type == "openreg"
    assert theirs.args.device.type == "cpu"
    assert len(losses(ours)) == ours.args.max_steps
    assert_close(losses(ours), losses(theirs), **tolerance)
    assert_same_tensors(ours.model.state_dict(), theirs.model.state_dict(), **tolerance)


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulates": {"gradient_accumulation_steps": 3, "max_grad_norm": 0.5, "warmup_steps": 2},
    "workers": {"dataloader_num_workers": 1, "dataloader_pin_memory": True},
    "checkpoints": {"gradient_checkpointing": True},
    "fused": {"optim": "adamw_torch_fused"},
    "smooth": {"label_smoothing_factor": 0.1, "lr_scheduler_type": "cosine"},
    "adafactor": {"optim": "adafactor"},
    "compiled": {"torch_compile": True},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_trains(tmp_path: Path, name: str) -> None:
    ours = trainer(tmp_path / "ours", **SETTINGS[name])
    ours.train()
    theirs = trainer(tmp_path / "theirs", use_cpu=True, **SETTINGS[name])
    theirs.train()
    assert_same_run(ours, theirs, rtol=1e-3, atol=1e-4)


def test_trains_in_bfloat16(tmp_path: Path) -> None:
    settings = {"bf16": True, "gradient_accumulation_steps": 2}
    ours = trainer(tmp_path / "ours", **settings)
    ours.train()
    theirs = trainer(tmp_path / "theirs", use_cpu=True, **settings)
    theirs.train()
    assert_close(losses(ours), losses(theirs), rtol=5e-2, atol=5e-2)


def test_evaluates_and_predicts(tmp_path: Path) -> None:
    ours, theirs = trainer(tmp_path), trainer(tmp_path, use_cpu=True)
    found, expected = ours.evaluate(), theirs.evaluate()
    assert found["eval_accuracy"] == expected["eval_accuracy"]
    assert found["eval_loss"] == pytest.approx(expected["eval_loss"], rel=1e-4)
    assert_close(
        ours.predict(Texts(10)).predictions,
        theirs.predict(Texts(10)).predictions,
        rtol=1e-4,
        atol=1e-4,
    )


def test_resumes(tmp_path: Path) -> None:
    """A run that was stopped and resumed ends as one that was not."""
    whole = trainer(tmp_path / "whole", max_steps=6)
    whole.train()
    saving: dict[str, Any] = {"save_strategy": "steps", "save_steps": 3}
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
    """Ends a training after some steps, as a machine that stops does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        control.should_training_stop = state.global_step == self.step
        return control


def test_sequence_to_sequence(tmp_path: Path) -> None:
    """Evaluation generates."""
    found = []
    for use_cpu in (False, True):
        torch.manual_seed(0)
        arguments = transformers.Seq2SeqTrainingArguments(
            output_dir=str(tmp_path),
            predict_with_generate=True,
            generation_max_length=8,
            use_cpu=use_cpu,
            report_to=[],
            disable_tqdm=True,
        )
        data = [{"input_ids": tiny_models.tokens(7), "labels": tiny_models.tokens(5)} for _ in "12"]
        run = transformers.Seq2SeqTrainer(
            model=tiny_models.t5(), args=arguments, eval_dataset=data
        )
        found.append(run.predict(data))
    assert (found[0].predictions == found[1].predictions).all()
