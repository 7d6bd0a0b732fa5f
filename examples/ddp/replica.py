# SPDX-License-Identifier: BSD-3-Clause
"""What each process does: trains its replica of the digits network and records what happened."""

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

# The first of the profiled steps are not looked at: the profiler starts at another time in each
# process, which the others wait for.
PROFILED_STEPS, SETTLING_STEPS = 8, 3

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Task:
    """What all processes of a run are asked for.

    Attributes:
        shards: parts that each batch is cut into; a multiple of the number of processes.
        epochs: passes over the training images.
        seed: of the initial weights and the batches.
        bucket_kib: gradients that are reduced together, in KiB.
        trace: where the first process keeps its trace; None: nowhere.
    """

    shards: int
    epochs: int
    seed: int
    bucket_kib: int
    trace: Path | None = None


@dataclass
class Replica:
    """What one process did.

    Attributes:
        losses: training loss of each step, the mean over all shards.
        epoch_seconds: time of each epoch, the device's queued work included.
        accuracy: share of the test images that the network sees right.
        digest: of the trained parameters, bit by bit.
        gradient_bytes: what is reduced in a step.
        spans: what the device did in the profiled steps.
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
    """Makes the process group, unless this process is the only one.

    Returns:
        The device of this process, now the current one.
    """
    device = torch.device("openreg", int(os.environ["LOCAL_RANK"]) % torch.openreg.device_count())
    torch.accelerator.set_device_index(device.index)
    if int(os.environ["WORLD_SIZE"]) > 1:
        # The backend is the device's, occl; the environment tells the address of the store.
        dist.init_process_group(device_id=device)
    return device


def train(task: Task, device: torch.device) -> Replica:
    """Trains a new network with the other processes of the default group, or alone without one."""
    rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(max(1, cores // size))
    digits = Digits.load()
    per_process = task.shards // size
    own = range(rank * per_process, (rank + 1) * per_process)
    loaders = [loader(digits, task, shard) for shard in own]
    # The first step also sets libraries and the communicator up: done before, on a network of its
    # own.
    Learner(task, device).step(next(batches(loaders, 0)))
    torch.manual_seed(task.seed)
    learner = Learner(task, device)
    # Falling to nothing, as in the digits example.
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(learner.optimizer, T_max=task.epochs)
    record = Replica(gradient_bytes=sum(p.nbytes for p in learner.model.parameters()))
    steps = task.epochs * len(loaders[0])
    what = f"training on {size} process{'es' * (size > 1)}"
    # One bar, under torchrun too.
    with tqdm(total=steps, desc=what, unit="step", disable=True if rank else None) as bar:
        for epoch in range(task.epochs):
            start = time.perf_counter()
            losses = torch.stack([learner.step(batch) for batch in batches(loaders, epoch)])
            if size > 1:
                dist.all_reduce(losses, dist.ReduceOp.AVG)
            record.losses += losses.tolist()  # the only wait of the epoch
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
    """The batches of one shard: together those of all shards have each image at most once."""
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
    """The batches of an epoch, in shards."""
    for each in loaders:
        assert isinstance(each.sampler, DistributedSampler)
        each.sampler.set_epoch(epoch)
    for shards in zip(*loaders, strict=True):
        yield [(images, labels) for images, labels in shards]


class Learner:
    """A new network, with what trains it."""

    def __init__(self, task: Task, device: torch.device) -> None:
        self.device = device
        self.network = DigitClassifier().to(device)
        self.model: nn.Module = self.network
        if dist.is_initialized():
            self.model = DistributedDataParallel(
                self.network,
                device_ids=[device],
                # All gradients of this network, 211 KiB, would fit into one bucket of the usual
                # 25 MiB: it would be full when backward is over, with nothing left to hide behind.
                bucket_cap_mb=task.bucket_kib / 1024,
                gradient_as_bucket_view=True,
            )
        self.optimizer = new_optimizer(self.model)

    def step(self, shards: list[Batch]) -> Tensor:
        """One step: sums the gradients of its shards, and averages over those of all processes.

        Returns:
            The mean loss of the shards, on the device.
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
        """A region whose gradients stay where they are, to be added to."""
        if isinstance(self.model, DistributedDataParallel):
            return self.model.no_sync()
        return nullcontext()


def digest(network: nn.Module) -> str:
    """Names the parameters by their bits."""
    state = hashlib.sha256()
    for parameter in network.parameters():
        state.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()


def profiled(
    learner: Learner, loaders: list[DataLoader[Any]], trace: Path | None, rank: int
) -> list[Span]:
    """What the device does in some more steps."""
    learner.model.train()
    with tempfile.TemporaryDirectory() as folder:
        path = trace or Path(folder, "trace.json")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiler:
            for shards in itertools.islice(batches(loaders, 0), PROFILED_STEPS):
                with record_function("step"):
                    learner.step(shards)
                    # Each step on its own, so that a picture of one has all of it.
                    torch.accelerator.synchronize()
        profiler.export_chrome_trace(str(path))
        return [span for span in spans(events.read(path), rank) if span.step >= SETTLING_STEPS]
