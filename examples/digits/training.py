# SPDX-License-Identifier: BSD-3-Clause
"""Trains the classifier on one device and records the results."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from examples.digits.model import DigitClassifier
from examples.digits.quantization import quantize

BATCH = 64
LEARNING_RATE = 2e-3


@dataclass(frozen=True)
class Digits:
    """scikit-learn's handwritten digits, split into a training and a test part.

    Images are float32 of shape (n, 1, 8, 8) with values in 0..1. Labels are int64 of shape (n,).
    """

    train: TensorDataset
    test: TensorDataset

    @staticmethod
    def load() -> "Digits":
        """Splits the 1,797 images. Four fifths are for training, with the same share of each digit.

        The split is always the same, because some splits are harder than others.
        """
        images, labels = load_digits(return_X_y=True)
        parts = train_test_split(
            images.reshape(-1, 1, 8, 8) / 16.0,
            labels,
            test_size=0.2,
            stratify=labels,
            random_state=0,
        )
        train_images, test_images, train_labels, test_labels = map(torch.as_tensor, parts)
        return Digits(
            TensorDataset(train_images.float(), train_labels),
            TensorDataset(test_images.float(), test_labels),
        )


def can_pin() -> bool:
    """Returns whether a device can copy from pinned memory."""
    try:
        return torch.empty(1, pin_memory=True).is_pinned()
    except RuntimeError:  # there is no device, or its driver has no pinned memory
        return False


def training_batches(digits: Digits, seed: int) -> DataLoader[Any]:
    """Returns the shuffled training batches. They depend only on the seed, not on the device."""
    return DataLoader(
        digits.train,
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        pin_memory=can_pin(),
        generator=torch.Generator().manual_seed(seed),
    )


class Mode(Enum):
    """A way to train or test a network. The value is part of a run's name."""

    PLAIN = ""
    AMP = " with autocast"
    COMPILED = ", compiled"
    INT8 = ", int8"


@dataclass
class Record:
    """The results of one training run.

    Attributes:
        device: the run's device.
        mode: how the network was trained or tested.
        losses: the training loss of each step.
        epoch_seconds: the time of each epoch, including queued device work.
        predictions: the predicted digit for each test image, int64 (n,).
        accuracy: the share of test images that are classified correctly.
        peak_bytes: the peak of device memory in use; None on the CPU, which has no statistics.
        fallbacks: the number of calls to each operator that ran on the CPU because it has no
            kernel; None on the CPU.
        graphs: the number of compiled graphs in a step of the trained network; None if it is not
            compiled.
    """

    device: torch.device
    mode: Mode = Mode.PLAIN
    losses: list[float] = field(default_factory=list)
    epoch_seconds: list[float] = field(default_factory=list)
    predictions: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    accuracy: float = 0.0
    peak_bytes: int | None = None
    fallbacks: dict[str, int] | None = None
    graphs: int | None = None

    @property
    def name(self) -> str:
        """The device and the mode, as text."""
        return f"{self.device}{self.mode.value}"

    @property
    def seconds(self) -> float:
        """The total training time."""
        return sum(self.epoch_seconds)


def loss_of(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Runs the forward pass and returns the loss of the batch as a 0-dim tensor."""
    return F.cross_entropy(model(images), labels)


def update(optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
    """Updates the parameters from the gradients."""
    scaler.step(optimizer)
    scaler.update()


def step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    images: Tensor,
    labels: Tensor,
    loss_of: Callable[[nn.Module, Tensor, Tensor], Tensor] = loss_of,
    update: Callable[[torch.optim.Optimizer, torch.amp.GradScaler], None] = update,
) -> Tensor:
    """Runs one training step, with autocast to float16 if the scaler is enabled.

    Returns:
        The loss, a 0-dim tensor on the device. Reading it waits for the device.
    """
    optimizer.zero_grad(set_to_none=True)
    with precision(images.device, scaler.is_enabled()):
        loss = loss_of(model, images, labels)
    scaler.scale(loss).backward()
    update(optimizer, scaler)
    return loss.detach()


def precision(device: torch.device, amp: bool) -> torch.autocast:
    """Returns a mixed-precision region, which is disabled unless `amp` is set."""
    return torch.autocast(device.type, dtype=torch.float16, enabled=amp)


def new_optimizer(
    model: nn.Module, learning_rate: float | Tensor = LEARNING_RATE
) -> torch.optim.Optimizer:
    """Creates the optimizer of this example for a model's parameters."""
    return torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=1e-2)


class Learner:
    """A new network with its optimizer and loss.

    Args:
        device: the network's device.
        mode: how the network is trained.
    """

    def __init__(self, device: torch.device, mode: Mode) -> None:
        self.device = device
        self.model = DigitClassifier().to(device)
        scaler = torch.amp.GradScaler(device.type, enabled=mode is Mode.AMP)
        if mode is Mode.COMPILED:
            # The learning rate is a tensor. A number would be compiled into the code, which would
            # then be compiled again in each epoch.
            self.optimizer = new_optimizer(self.model, torch.tensor(LEARNING_RATE))
            self._step = partial(
                step,
                self.model,
                self.optimizer,
                scaler,
                # Compiling the loss also compiles backward.
                loss_of=torch.compile(loss_of, fullgraph=True),
                update=torch.compile(update),
            )
        else:
            self.optimizer = new_optimizer(self.model)
            self._step = partial(step, self.model, self.optimizer, scaler)

    def step(self, images: Tensor, labels: Tensor) -> Tensor:
        """Runs one step with a batch from the CPU. See the function ``step``."""
        return self._step(
            images.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)
        )


def train(
    digits: Digits,
    device: torch.device,
    epochs: int,
    seed: int,
    mode: Mode = Mode.PLAIN,
    progress: Callable[[int, float], None] = lambda steps, loss: None,
) -> Record:
    """Trains and then tests a new network.

    Initial weights and batches are created on the CPU from the seed, so they are the same for every
    device.

    Args:
        digits: the images.
        device: the device to train on.
        epochs: the number of passes over the training images.
        seed: the seed for weights and batches.
        mode: PLAIN; AMP for mixed precision (autocast to float16, scaled gradients); COMPILED for
            compiled forward, backward and optimizer; or INT8 to test with int8 linear layers.
        progress: a function called after each epoch with its number of steps and its mean loss.

    Returns:
        The run's results.
    """
    record = Record(device, mode)
    accelerator = torch.get_device_module(device) if device.type != "cpu" else None
    torch.manual_seed(seed)
    learner = Learner(device, mode)
    # The learning rate decreases to zero, because large steps at the end would make the accuracy
    # random.
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(learner.optimizer, T_max=epochs)
    batches = training_batches(digits, seed)
    # The first step also initializes the device and libraries, and compiles the code. Run this step
    # before the measurement. Use a separate network for it, so that the measured network does not
    # learn from it. For the measured network, only the optimizer is compiled again.
    first_batch = digits.train[:BATCH]
    Learner(device, mode).step(*first_batch).item()
    if accelerator is not None:
        accelerator.fallback.reset()
        torch.accelerator.reset_peak_memory_stats(device)
    for _ in range(epochs):
        start = time.perf_counter()
        losses = [learner.step(images, labels) for images, labels in batches]
        # Read the losses once per epoch, because reading a loss in each step would wait in each
        # step.
        values = torch.stack(losses).tolist()
        record.epoch_seconds.append(time.perf_counter() - start)
        record.losses += values
        schedule.step()
        progress(len(values), sum(values) / len(values))
    if mode is Mode.INT8:
        quantize(learner.model)
    with precision(device, mode is Mode.AMP):
        record.predictions = torch.cat(list(predict(learner.model, digits.test, device)))
    record.accuracy = (record.predictions == digits.test.tensors[1]).double().mean().item()
    if accelerator is not None:
        record.peak_bytes = torch.accelerator.max_memory_allocated(device)
        stats = accelerator.fallback.stats()
        record.fallbacks = {name: fallback.calls for name, fallback in stats.items()}
    if mode is Mode.COMPILED:
        learner.model.train()
        record.graphs = compiled_graphs(lambda: learner.step(*first_batch))
    return record


def compiled_graphs(function: Callable[[], object]) -> int:
    """Counts the compiled graphs that a call runs, by means of torch's profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        function()
    return sum(
        event.count
        for event in profile.key_averages()
        if event.key.startswith("## Call CompiledFxGraph")
    )


@torch.inference_mode()
def predict(model: nn.Module, images: TensorDataset, device: torch.device) -> Iterator[Tensor]:
    """Yields the predicted digits of each batch on the CPU, as int64 (batch,)."""
    model.eval()
    for batch, _ in DataLoader(images, batch_size=4 * BATCH):
        yield model(batch.to(device)).argmax(dim=1).cpu()
