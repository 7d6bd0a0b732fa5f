# SPDX-License-Identifier: BSD-3-Clause
"""Trains a replica of the digits network in each process, and records the results."""

import hashlib
import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, DistributedSampler
from torch_openreg.trace import events
from tqdm import tqdm

from examples.ddp.timeline import Span, spans
from examples.digits.model import DigitClassifier
from examples.digits.training import BATCH, Digits, loss_of, new_optimizer, predict

# The number of profiled steps, and how many of the first steps are ignored. The profiler starts at
# a different time in each process, and the other processes wait in these first steps.
PROFILED_STEPS, SETTLING_STEPS = 8, 3

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Task:
    """The parameters of a run, which are the same for all processes.

    Attributes:
        shards: the number of parts of each batch; a multiple of the number of processes.
        epochs: the number of passes over the training images.
        seed: the seed for initial weights and batches.
        bucket_kib: the size of a gradient bucket in KiB.
        trace: the trace file of the first process; None means no trace.
    """

    shards: int
    epochs: int
    seed: int
    bucket_kib: int
    trace: Path | None = None


@dataclass
class Replica:
    """The results of one process.

    Attributes:
        losses: the training loss of each step, averaged over all shards.
        epoch_seconds: the time of each epoch, including queued device work.
        accuracy: the share of test images that are classified correctly.
        digest: the hash of the trained parameters.
        gradient_bytes: the number of bytes that are reduced in each step.
        spans: the device work in the profiled steps.
    """

    losses: list[float] = field(default_factory=list)
    epoch_seconds: list[float] = field(default_factory=list)
    accuracy: float = 0.0
    digest: str = ""
    gradient_bytes: int = 0
    spans: list[Span] = field(default_factory=list)


def main(task: Task) -> Replica:
    """Trains as one of the processes that torch's elastic launcher has started."""
    device = join()
    try:
        return train(task, device)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def join() -> torch.device:
    """Creates the process group, unless this is the only process.

    Returns:
        The device of this process, which is now current.
    """
    device = torch.device("openreg", int(os.environ["LOCAL_RANK"]) % torch.openreg.device_count())
    torch.accelerator.set_device_index(device.index)
    if int(os.environ["WORLD_SIZE"]) > 1:
        # This uses occl, the device's backend. The store's address is in environment variables.
        dist.init_process_group(device_id=device)
    return device


def train(task: Task, device: torch.device) -> Replica:
    """Trains a new network, alone or with the other processes of the default group."""
    rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(max(1, cores // size))
    digits = Digits.load()
    per_process = task.shards // size
    own = range(rank * per_process, (rank + 1) * per_process)
    loaders = [loader(digits, task, shard) for shard in own]
    # The first step also initializes libraries and the communicator. Run this step before the
    # measurement. Use a separate network for it, so that the measured network does not learn from
    # it.
    Learner(task, device).step(next(batches(loaders, 0)))
    torch.manual_seed(task.seed)
    learner = Learner(task, device)
    # The learning rate decreases to zero, as in the digits example.
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(learner.optimizer, T_max=task.epochs)
    record = Replica(gradient_bytes=sum(p.nbytes for p in learner.model.parameters()))
    steps = task.epochs * len(loaders[0])
    what = f"training on {size} process{'es' * (size > 1)}"
    # Only the first process shows a progress bar.
    with tqdm(total=steps, desc=what, unit="step", disable=True if rank else None) as bar:
        for epoch in range(task.epochs):
            start = time.perf_counter()
            losses = torch.stack([learner.step(batch) for batch in batches(loaders, epoch)])
            if size > 1:
                dist.all_reduce(losses, dist.ReduceOp.AVG)
            record.losses += losses.tolist()  # the only synchronization in an epoch
            record.epoch_seconds.append(time.perf_counter() - start)
            schedule.step()
            bar.set_postfix_str(f"loss {record.losses[-1]:.4f}", refresh=False)
            bar.update(len(losses))
    record.digest = digest(learner.network)
    predictions = torch.cat(list(predict(learner.network, digits.test, device)))
    record.accuracy = (predictions == digits.test.tensors[1]).double().mean().item()
    record.spans = profiled(learner, loaders, task.trace if rank == 0 else None, rank)
    return record


def loader(digits: Digits, task: Task, shard: int) -> DataLoader[Any]:
    """Returns the loader of one shard. All shards together contain each image at most once."""
    sampler: DistributedSampler[Any] = DistributedSampler(
        digits.train, num_replicas=task.shards, rank=shard, seed=task.seed, drop_last=True
    )
    return DataLoader(
        digits.train,
        batch_size=BATCH // task.shards,
        sampler=sampler,
        drop_last=True,
        pin_memory=True,
    )


def batches(loaders: list[DataLoader[Any]], epoch: int) -> Iterator[list[Batch]]:
    """Yields the batches of an epoch, each as a list of shards."""
    for each in loaders:
        assert isinstance(each.sampler, DistributedSampler)
        each.sampler.set_epoch(epoch)
    for shards in zip(*loaders, strict=True):
        yield [(images, labels) for images, labels in shards]


class Learner:
    """A new network with its optimizer and loss."""

    def __init__(self, task: Task, device: torch.device) -> None:
        self.device = device
        self.network = DigitClassifier().to(device)
        self.model: nn.Module = self.network
        if dist.is_initialized():
            self.model = DistributedDataParallel(
                self.network,
                device_ids=[device],
                # A bucket of the default size (25 MiB) would contain all gradients of this network
                # (211 KiB). Its reduction would start after backward, without any overlap.
                bucket_cap_mb=task.bucket_kib / 1024,
                gradient_as_bucket_view=True,
            )
        self.optimizer = new_optimizer(self.model)

    def step(self, shards: list[Batch]) -> Tensor:
        """Runs one training step, with the mean gradients over all shards of all processes.

        Returns:
            The mean loss over the shards, on the device.
        """
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        for number, (images, labels) in enumerate(shards, 1):
            with self.without_communication() if number < len(shards) else nullcontext():
                with record_function("forward"):
                    loss = loss_of(
                        self.model,
                        images.to(self.device, non_blocking=True),
                        labels.to(self.device, non_blocking=True),
                    )
                with record_function("backward"):
                    (loss / len(shards)).backward()
                losses.append(loss.detach())
        with record_function("optimizer"):
            self.optimizer.step()
        return torch.stack(losses).mean()

    def without_communication(self) -> Any:
        """Returns a context manager in which gradients are accumulated locally."""
        if isinstance(self.model, DistributedDataParallel):
            return self.model.no_sync()
        return nullcontext()


def digest(network: nn.Module) -> str:
    """Returns a hash of the bits of all parameters."""
    state = hashlib.sha256()
    for parameter in network.parameters():
        state.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()


def profiled(
    learner: Learner, loaders: list[DataLoader[Any]], trace: Path | None, rank: int
) -> list[Span]:
    """Runs more steps under the profiler and returns the device work of these steps."""
    learner.model.train()
    with tempfile.TemporaryDirectory() as folder:
        path = trace or Path(folder, "trace.json")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiler:
            for shards in itertools.islice(batches(loaders, 0), PROFILED_STEPS):
                with record_function("step"):
                    learner.step(shards)
                    # Wait, so that all work of a step runs within the step and appears in the
                    # step's image.
                    torch.accelerator.synchronize()
        profiler.export_chrome_trace(str(path))
        return [span for span in spans(events.read(path), rank) if span.step >= SETTLING_STEPS]
