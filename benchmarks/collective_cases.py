# SPDX-License-Identifier: BSD-3-Clause
"""The cases of the collective benchmark: operations by size, and a training step.

A step runs on tensors of one device. The device determines the backend: occl for openreg, Gloo for
the CPU. A step ends when its result is available.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

Call = Callable[[], object]

SIZES = 4, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20
PROCESSES = 2, 4
LATENCY_BOUND = 0.5  # at the smallest size, the ratio of the times (occl / Gloo)
BANDWIDTH_BOUND = 1 / 3  # at the largest size, the same ratio: three times Gloo's bandwidth
TRAINING_BOUND = 0.8
TRAINING = "DDP step"

# A network with 10 M parameters. DDP reduces its 39 MiB of gradients in three buckets.
WIDTH, LAYERS, IMAGES = 1600, 4, 16


@dataclass(frozen=True)
class CollectiveCase:
    """One row in the table.

    Attributes:
        processes: the number of ranks in the group.
        operation: one of OPERATIONS, or TRAINING.
        bytes: the size of each rank's larger buffer: the output of an all-gather, the input of a
            reduce-scatter; 0 for training.
    """

    processes: int
    operation: str
    bytes: int = 0

    @property
    def group(self) -> str:
        """The part of the name before the colon, for --filter."""
        return f"{self.processes} processes"

    @property
    def name(self) -> str:
        """The part of the name after the colon, for --filter."""
        return f"{self.operation} {size_text(self.bytes)}" if self.bytes else self.operation

    @property
    def bound(self) -> float | None:
        """The bound for the ratio to Gloo's time; None if there is no bound."""
        if not self.bytes:
            return TRAINING_BOUND
        return {SIZES[0]: LATENCY_BOUND, SIZES[-1]: BANDWIDTH_BOUND}.get(self.bytes)


def size_text(size: int) -> str:
    """Returns a number of bytes as text with a unit."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def numbers(size: int, device: torch.device) -> Tensor:
    """Returns zeros, because sums of zeros stay zero. The memory is written, so its pages exist."""
    return torch.full((size // 4,), 0.0, device=device)


def all_reduce(size: int, device: torch.device) -> Call:
    """Makes a call that sums a tensor in place over all ranks."""
    tensor = numbers(size, device)
    return lambda: dist.all_reduce(tensor)


def all_gather(size: int, device: torch.device) -> Call:
    """Makes a call in which each rank contributes an equal part of the output."""
    output = numbers(size, device)
    part = numbers(size // dist.get_world_size(), device)
    return lambda: dist.all_gather_single(output, part)


def reduce_scatter(size: int, device: torch.device) -> Call:
    """Makes a call from which each rank receives its part of the sums.

    Gloo in torch 2.13 copies the input, reduces the whole input on all ranks, and keeps one part.
    """
    tensor = numbers(size, device)
    part = numbers(size // dist.get_world_size(), device)
    return lambda: dist.reduce_scatter_single(part, tensor)


def broadcast(size: int, device: torch.device) -> Call:
    """Makes a call that broadcasts from rank 0."""
    tensor = numbers(size, device)
    return lambda: dist.broadcast(tensor, 0)


def all_to_all(size: int, device: torch.device) -> Call:
    """Makes a call in which each rank sends equal parts to all ranks."""
    tensor, output = numbers(size, device), numbers(size, device)
    return lambda: dist.all_to_all_single(output, tensor)


#: Functions that create a call for a size in bytes and a device.
OPERATIONS: dict[str, Callable[[int, torch.device], Call]] = {
    "all-reduce": all_reduce,
    "all-gather": all_gather,
    "reduce-scatter": reduce_scatter,
    "broadcast": broadcast,
    "all-to-all": all_to_all,
}

#: All cases, sorted by the number of processes.
COLLECTIVE_CASES = tuple(
    CollectiveCase(processes, operation, size)
    for processes in PROCESSES
    for operation, sizes in [*((name, SIZES) for name in OPERATIONS), (TRAINING, (0,))]
    for size in sizes
)


def training(device: torch.device) -> Call:
    """Makes a training step: forward, backward with DistributedDataParallel, SGD."""
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    inputs = torch.randn(IMAGES, WIDTH).to(device)
    model = DistributedDataParallel(nn.Sequential(*layers).to(device), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(model(inputs), inputs).backward()
        optimizer.step()

    return step


def make(case: CollectiveCase, device: torch.device) -> Call:
    """Creates the call of a case on a device. The call waits for its result."""
    if case.bytes:
        # If each rank has a part of the larger buffer, each part must have at least one element.
        size = max(case.bytes, 4 * case.processes) if divides(case) else case.bytes
        call = OPERATIONS[case.operation](size, device)
    else:
        call = training(device)
    if device.type == "cpu":
        return call

    def synchronized() -> None:
        call()
        torch.accelerator.synchronize()

    return synchronized


def divides(case: CollectiveCase) -> bool:
    """Returns whether a rank contributes or receives only a part of the larger buffer."""
    return case.operation in ("all-gather", "reduce-scatter", "all-to-all")
