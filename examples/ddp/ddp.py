# SPDX-License-Identifier: BSD-3-Clause
"""Trains the digits network in several processes, each with a device and a part of every batch.

torch's DistributedDataParallel averages the gradients over the processes, bucket by bucket, during
backward. The program compares the result with runs of fewer processes. These process the same parts
one after another and must learn the same network. The program starts its processes itself. If
torchrun starts the program, it is one of torchrun's processes:

    PYTHONPATH=. torchrun --nproc-per-node 2 examples/ddp/ddp.py
"""

import argparse
import os
import statistics
import sys
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import replace

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from examples.ddp import replica
from examples.ddp.replica import Replica, Task
from examples.ddp.timeline import bandwidth, draw, hidden_share
from examples.digits.training import BATCH, Mode
from examples.digits.verdict import ACCURACY, COMPARED_STEPS, LOSS_DIFFERENCE, Promise
from tools.flags.flags import Flags, output, picture, whole_number

# The accepted numbers of processes. Each divides the size of a batch.
COUNTS = 1, 2, 4, 8
# The maximum loss of accuracy of a run with several processes, compared with one process.
ACCURACY_LOSS = 0.01

#: The results of the processes of a run, by rank.
Run = list[Replica]


def count(text: str) -> int:
    """Parses a number of processes."""
    number = whole_number(1)(text)
    if number not in COUNTS:
        counts = ", ".join(map(str, COUNTS))
        raise argparse.ArgumentTypeError(
            f"{text!r} processes cannot share a batch equally; choose one of {counts}"
        )
    return number


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parses the flags; exits if a flag is wrong."""
    parser = Flags(
        "ddp",
        __doc__,
        "Exit status: 0 if every promise was kept, 1 if not, 2 for a wrong flag.",
    )
    parser.add_argument(
        "--processes",
        type=count,
        default=os.environ["WORLD_SIZE"] if dist.is_torchelastic_launched() else "2",
        help=f"number of processes, and of shards in a batch of {BATCH} images; the run is "
        "compared with fewer processes (of 1, 2, 4). Under torchrun it must be torchrun's number",
    )
    parser.add_argument(
        "--epochs", type=whole_number(1), default=20, help="passes over the training images"
    )
    parser.add_argument(
        "--seed", type=whole_number(0), default=0, help="seed for initial weights and batches"
    )
    parser.add_argument(
        "--bucket",
        type=whole_number(1),
        default=32,
        metavar="KIB",
        help="size of a gradient bucket: smaller buckets overlap more with backward and cost more",
    )
    parser.add_argument(
        "--plot",
        type=picture,
        default="ddp.png",
        metavar="FILE",
        help="output file for the timeline of a step (.png, .svg, .pdf), or 'none'",
    )
    parser.add_argument(
        "--trace",
        type=output,
        metavar="FILE",
        help="output file for a trace of some steps of one process (.json, for ui.perfetto.dev)",
    )
    return parser.parse_args(argv)


def launch(task: Task, processes: int) -> Run:
    """Runs a task in a number of processes. It starts them as torchrun does."""
    with tempfile.TemporaryDirectory() as logs:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            run_id=str(uuid.uuid4()),
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )
        by_rank = elastic_launch(config, replica.main)(task)
    return [by_rank[rank] for rank in range(processes)]


def run_as_rank(task: Task) -> dict[int, Run]:
    """Runs a task as one of torchrun's processes. The first process then repeats the task alone.

    Returns:
        The runs by number of processes. The result is empty except in the first process.
    """
    device = replica.join()
    size = dist.get_world_size() if dist.is_initialized() else 1
    own = replica.train(task, device)
    if size == 1:
        return {1: [own]}
    replicas: list[Replica | None] = [None] * size
    dist.all_gather_object(replicas, own)
    rank = dist.get_rank()
    dist.destroy_process_group()
    if rank != 0:
        return {}
    return {
        1: [replica.train(replace(task, trace=None), device)],
        size: [each for each in replicas if each is not None],
    }


def promises(runs: dict[int, Run]) -> list[Promise]:
    """Compares each run with the run of one process.

    A NaN loss breaks the promise, because all comparisons with NaN are false.
    """
    reference = runs[1][0]
    result = []
    for processes, run in runs.items():
        name = f"{processes} process{'es' * (processes > 1)}"
        accuracy = run[0].accuracy
        result.append(
            Promise(
                f"test accuracy of {name} >= {ACCURACY:.0%}",
                f"{accuracy:.1%}",
                accuracy >= ACCURACY,
            )
        )
        if processes == 1:
            continue
        result.append(
            Promise(
                f"it is at most {ACCURACY_LOSS:.0%} less than with 1 process",
                f"{accuracy - reference.accuracy:+.1%}",
                accuracy >= reference.accuracy - ACCURACY_LOSS,
            )
        )
        differences = [abs(x - y) for x, y in zip(run[0].losses, reference.losses, strict=True)][
            :COMPARED_STEPS
        ]
        bound = LOSS_DIFFERENCE[Mode.PLAIN]
        result.append(
            Promise(
                f"loss of the first {len(differences)} steps agrees with 1 process to {bound:g}",
                f"at most {max(differences):.1e}",
                all(difference <= bound for difference in differences),
            )
        )
        digests = {each.digest for each in run}
        result.append(
            Promise(
                f"the parameters of {name} are bitwise equal",
                f"{len(digests)} version{'s' * (len(digests) > 1)}",
                len(digests) == 1,
            )
        )
    return result


def table(runs: dict[int, Run], task: Task) -> list[str]:
    """Formats one line per number of processes."""
    lines = ["processes  s/epoch  images/s  all-reduce  behind backward"]
    for processes, run in runs.items():
        # Use the median, because single epochs may be slow on a busy machine.
        seconds = statistics.median(run[0].epoch_seconds)
        images = len(run[0].losses) // task.epochs * BATCH / seconds
        spans = [span for each in run for span in each.spans]
        speed, hidden = bandwidth(spans), hidden_share(spans)
        lines.append(
            f"{processes:9}  {seconds:7.3f}  {images:8,.0f}  "
            + ("         -" if speed is None else f"{speed / 1e9:5.2f} GB/s")
            + ("                -" if hidden is None else f"{hidden:17.0%}")
        )
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the example.

    Returns:
        0 if every promise was kept, otherwise 1.
    """
    flags = parse(argv)
    task = Task(flags.processes, flags.epochs, flags.seed, flags.bucket, flags.trace)
    if dist.is_torchelastic_launched():
        runs = run_as_rank(task)
        if not runs:
            return 0
    else:
        runs = {}
        for processes in (each for each in COUNTS if each <= flags.processes):
            last = processes == flags.processes
            runs[processes] = launch(task if last else replace(task, trace=None), processes)
    most = runs[flags.processes]
    print(f"each batch: {BATCH} images in {task.shards} shards; ", end="")
    print(f"each step reduces {most[0].gradient_bytes / 1024:.0f} KiB of gradients")
    print("\n".join(table(runs, task)))
    if flags.plot:
        draw([span for each in most for span in each.spans], flags.plot)
        print(f"timeline of a step: {flags.plot}")
    if flags.trace:
        print(f"trace of the first process: {flags.trace}")
    verdict = promises(runs)
    for promise in verdict:
        print(f"{'kept  ' if promise.kept else 'BROKEN'} {promise.text}: {promise.found}")
    return 0 if all(promise.kept for promise in verdict) else 1


if __name__ == "__main__":
    sys.exit(main())
