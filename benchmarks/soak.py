# SPDX-License-Identifier: BSD-3-Clause
"""Uses the device for a long time and checks for leaks.

The soak runs rounds of several activities: training, graphs, copies on several streams, DLPack, a
pinned DataLoader, recovery from a full device, and sharing with another process. Each round checks
its results. A fifth of the time is a warm-up. At the end, no more bytes may be allocated than at
the start. Resident memory must be within 2% of its value after the warm-up. There must not be more
threads, file descriptors or shared memory files.
"""

import argparse
import ctypes
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

from benchmarks.cases import cnn, training
from benchmarks.importer import Importer
from tools.flags.flags import Flags, output, picture

WARM_UP = 0.2  # The share of the time that is the warm-up.
TOLERANCE = 0.02  # The accepted relative growth of resident memory.
DEVICE = torch.device("openreg")
POOLED = 32  # The number of streams in a device's pool (docs/streams.md).
REPLAYS = 5  # The number of replays of each graph.
STREAMS = 4  # The number of streams per device in a round of copies.


@dataclass(frozen=True)
class Sample:
    """The resources that the process uses at one time.

    Attributes:
        seconds: the time since the start.
        rounds: the number of completed rounds.
        allocated: bytes of device memory in tensors, on all devices.
        resident: the resident bytes of the process, including those of the emulated device, but
            without memory that malloc keeps free.
        threads: the number of the process's threads.
        descriptors: the number of open file descriptors.
        shared: the number of files that are mapped shared: devices, other processes' devices,
            semaphores.
    """

    seconds: float
    rounds: int
    allocated: int
    resident: int
    threads: int
    descriptors: int
    shared: int


def train() -> None:
    """Trains a small network for ten steps. The loss must decrease."""
    step = training(cnn, (16, 3, 32, 32), DEVICE)
    losses = [step().item() for _ in range(10)]
    require(losses[-1] < losses[0], f"the loss did not fall: {losses}")


def differentiate(network: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """Returns a loss and its gradients with respect to the parameters."""
    loss = network(x).square().mean()
    return loss.detach(), *torch.autograd.grad(loss, tuple(network.parameters()))


def replay_batches(network: nn.Module, graph: Any, size: int) -> None:
    """Captures a backward pass and replays it with other inputs."""
    inputs = torch.zeros(size, 3, 32, 32, device=DEVICE)
    differentiate(network, inputs)
    with torch.openreg.graph(graph):  # graph() always captures on the same stream
        results = differentiate(network, inputs)
    for _ in range(REPLAYS):
        inputs.copy_(torch.randn(inputs.shape))
        graph.replay()
        for actual, expected in zip(results, differentiate(network, inputs), strict=True):
            close = torch.allclose(actual, expected, rtol=1e-4, atol=1e-5)
            require(close, "the result of a replay is wrong")


def replay() -> None:
    """Captures a graph for two batch sizes. The graph's memory must be released."""
    torch.openreg.empty_cache()
    before = torch.openreg.memory_reserved()
    network, graph = cnn().to(DEVICE), torch.openreg.OpenRegGraph()
    replay_batches(network, graph, 16)
    graph.reset()
    replay_batches(network, graph, 8)
    del network, graph  # delete them without a reset
    torch.openreg.empty_cache()
    kept = torch.openreg.memory_reserved() - before
    require(kept <= 0, f"{kept:,} bytes are still allocated after the graph was deleted")


def copy_on_streams() -> None:
    """Copies pinned and pageable memory in both directions, on four streams per device at once."""
    jobs = []
    for index in range(torch.openreg.device_count()):
        for number in range(STREAMS):
            host = torch.full((1 << 18,), float(number))
            host = host.pin_memory() if number % 2 else host
            back = torch.empty(1 << 18, pin_memory=True)
            stream = torch.openreg.Stream(index)
            with torch.openreg.stream(stream):
                there = host.to(f"openreg:{index}", non_blocking=True)
                back.copy_(there.add_(1), non_blocking=True)
            jobs.append((stream, number, host, back))
    for stream, number, _, back in jobs:
        stream.synchronize()
        require(bool((back == number + 1).all()), f"the copy on stream {stream} is wrong")


def export() -> None:
    """Exports tensors through DLPack: consumed, unused, on another stream, and to NumPy."""
    tensor = torch.arange(1000.0, device=DEVICE)
    exported = torch.from_dlpack(tensor)
    stream = torch.openreg.Stream()
    tensor.__dlpack__(stream=stream.native_handle)  # the capsule is deleted without being consumed
    with torch.openreg.stream(stream):
        taken = torch.from_dlpack(tensor.__dlpack__(stream=stream.native_handle))
        total = taken.sum().item()
    require(exported.data_ptr() == tensor.data_ptr(), "DLPack made a copy")
    require(total == np.from_dlpack(tensor, device="cpu").sum(), "DLPack exported wrong values")


def load() -> None:
    """Loads batches with a pinned DataLoader that has a worker process."""
    data = TensorDataset(torch.arange(256.0))
    total = 0.0
    for (batch,) in DataLoader(data, batch_size=32, pin_memory=True, num_workers=1):
        total += batch.to(DEVICE, non_blocking=True).sum().item()
    require(total == 255 * 128, f"the sum of the loader's batches is {total}")


def run_out() -> None:
    """Allocates more memory than the device has, then continues to use the device."""
    kept = torch.ones(1 << 20, device=DEVICE)
    _, capacity = torch.openreg.mem_get_info()
    try:
        torch.empty(2 * capacity, dtype=torch.uint8, device=DEVICE)
    except torch.OutOfMemoryError:
        require(kept.sum().item() == 1 << 20, "a tensor changed when the device was out of memory")
    else:
        raise RuntimeError(
            f"allocating 2 * {capacity} bytes succeeded on a device with {capacity} bytes; "
            "expected an OutOfMemoryError"
        )


ACTIVITIES: tuple[Callable[[], None], ...] = (train, replay, copy_on_streams, export, load, run_out)


def require(condition: bool, message: str) -> None:
    """Raises RuntimeError with the message unless the condition holds."""
    if not condition:
        raise RuntimeError(message)


def fill_pools() -> None:
    """Uses each pooled stream once, because a used stream keeps its thread, queue and cache."""
    for _ in range(POOLED // STREAMS):
        copy_on_streams()


def sample(start: float, rounds: int) -> Sample:
    """Samples the process after all work has finished and garbage has been collected."""
    gc.collect()
    count = torch.openreg.device_count()
    for index in range(count):
        torch.openreg.synchronize(index)
    torch.openreg.ipc_collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory that the C library keeps free must not count
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Sample(
        seconds=time.monotonic() - start,
        rounds=rounds,
        allocated=sum(torch.openreg.memory_allocated(index) for index in range(count)),
        resident=pages * os.sysconf("SC_PAGE_SIZE"),
        threads=len(os.listdir("/proc/self/task")),
        descriptors=len(os.listdir("/proc/self/fd")),
        shared=shared_files(Path("/proc/self/maps").read_text()),
    )


def shared_files(maps: str) -> int:
    """Returns the number of files that are mapped shared in the text of /proc/self/maps."""
    mappings = (line.split(maxsplit=5) for line in maps.splitlines())
    # A file may be mapped in several parts. Its device and inode identify it.
    return len({(fields[3], fields[4]) for fields in mappings if fields[1].endswith("s")})


def soak(seconds: float) -> tuple[list[Sample], int]:
    """Runs rounds for the given time, but at least three rounds.

    Returns:
        Samples before the first round and after each round, and the index of the sample after the
        warm-up.

    Raises:
        RuntimeError: if the result of a round is wrong.
    """
    fill_pools()
    start = time.monotonic()
    samples = [sample(start, 0)]
    warm = 0
    total = round(seconds)
    with Importer() as importer, tqdm(total=total, unit="s", disable=None, leave=False) as bar:
        while samples[-1].seconds < seconds or len(samples) < 4:
            for activity in (*ACTIVITIES, importer.share):
                bar.set_postfix_str(activity.__name__)
                activity()
            samples.append(sample(start, len(samples)))
            if warm == 0 and samples[-1].seconds >= WARM_UP * seconds:
                warm = len(samples) - 1
            bar.update(min(round(samples[-1].seconds), total) - bar.n)
    return samples, min(warm, len(samples) - 2)


def faults(first: Sample, warm: Sample, last: Sample) -> list[str]:
    """Returns a sentence for each leak."""
    found = []
    if last.allocated != first.allocated:
        found.append(
            f"{last.allocated - first.allocated:,} bytes of device memory leaked in tensors"
        )
    growth = last.resident - warm.resident
    if growth > TOLERANCE * warm.resident:
        found.append(
            f"resident memory grew by {100 * growth / warm.resident:.1f}%, "
            f"beyond {100 * TOLERANCE:g}%"
        )
    for name, more in (
        ("threads", last.threads - warm.threads),
        ("file descriptors", last.descriptors - warm.descriptors),
        ("shared memory files", last.shared - warm.shared),
    ):
        if more > 0:
            found.append(f"{more} more {name} than after the warm-up")
    return found


def table(first: Sample, warm: Sample, last: Sample) -> str:
    """Formats the figures of three samples as aligned text."""
    lines = [f"{'':22}{'start':>14}{'warm':>14}{'end':>14}"]
    for name, unit, scale in (
        ("seconds", "", 1.0),
        ("rounds", "", 1.0),
        ("allocated", " KiB", 1024.0),
        ("resident", " MiB", 1048576.0),
        ("threads", "", 1.0),
        ("descriptors", "", 1.0),
        ("shared", " files", 1.0),
    ):
        figures = (getattr(moment, name) / scale for moment in (first, warm, last))
        lines.append(f"{name + unit:22}" + "".join(f"{figure:>14,.1f}" for figure in figures))
    return "\n".join(lines)


def chart(samples: list[Sample], warm: int, path: Path) -> None:
    """Draws resident and allocated memory over time."""
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    axes = figure.subplots()
    seconds = [one.seconds for one in samples]
    axes.plot(seconds, [one.resident / 2**20 for one in samples], label="resident")
    axes.plot(seconds, [one.allocated / 2**20 for one in samples], label="allocated on devices")
    axes.axvline(samples[warm].seconds, color="black", linewidth=0.8, label="end of the warm-up")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("MiB")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def minutes(text: str) -> float:
    """Parses the value of --minutes, a positive number."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of minutes")
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the soak.

    Returns:
        0, or 1 if there is a leak or a wrong result.
    """
    parser = Flags("soak", __doc__)
    parser.add_argument("--minutes", type=minutes, default=10.0, help="how long")
    parser.add_argument("--json", type=output, metavar="FILE", help="write the figures to FILE")
    parser.add_argument(
        "--plot", type=picture, metavar="FILE", help="draw memory over time to FILE"
    )
    flags = parser.parse_args(argv)
    torch.set_num_threads(1)  # two teams of OpenMP threads would compete for the cores
    try:
        samples, warm = soak(60 * flags.minutes)
    except RuntimeError as error:
        print(f"soak: failed: {error}", file=sys.stderr)
        return 1
    moments = samples[0], samples[warm], samples[-1]
    print(table(*moments))
    found = faults(*moments)
    print("\n".join(f"leak: {fault}" for fault in found) or "no leaks")
    if flags.json:
        figures = {"warm": warm, "faults": found, "samples": [asdict(one) for one in samples]}
        flags.json.write_text(json.dumps(figures, indent=1) + "\n")
    if flags.plot:
        chart(samples, warm, flags.plot)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
