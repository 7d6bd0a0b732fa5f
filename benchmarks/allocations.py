# SPDX-License-Identifier: BSD-3-Clause
"""Records the allocator calls of training runs, for the fragmentation benchmark.

    ./bazelw run //benchmarks:allocations -- "$PWD/runtime/allocator/testdata"

This command writes one file per training run. Each line is one operation, in program order.
``+BYTES`` allocates on the default stream, and ``+BYTES STREAM`` allocates on another stream.
``-N`` frees the block of the N-th allocation, counted from 0.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from examples.digits.model import DigitClassifier
from examples.digits.training import BATCH, new_optimizer, step

#: The maximum number of operations in a file.
OPERATIONS = 2000

Program = Callable[[], None]


def digits() -> None:
    """Trains the network from examples/digits with two batch sizes, as at the end of an epoch."""
    model = DigitClassifier().to("openreg")
    optimizer = new_optimizer(model)
    scaler = torch.amp.GradScaler("openreg", enabled=False)
    for size in (BATCH, BATCH, BATCH // 2, BATCH):
        images = torch.randn(size, 1, 8, 8).to("openreg")
        labels = torch.randint(10, (size,)).to("openreg")
        step(model, optimizer, scaler, images, labels).item()


def transformer() -> None:
    """Trains a transformer with a different sequence length in each batch."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    model = nn.Sequential(nn.Embedding(1000, 128), nn.TransformerEncoder(layer, 2)).to("openreg")
    head = nn.Linear(128, 1000).to("openreg")
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters)
    for length in (64, 200, 33, 150, 90):
        words = torch.randint(1000, (16, length)).to("openreg")
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(head(model(words)).flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()
        loss.item()


def lstm() -> None:
    """Trains an LSTM, unrolled in Python, on sequences of increasing length."""
    cell = nn.LSTMCell(64, 256).to("openreg")
    head = nn.Linear(256, 10).to("openreg")
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1, momentum=0.9)
    for length in (10, 20, 30, 40):
        inputs = torch.randn(length, 32, 64).to("openreg")
        state = (torch.zeros(32, 256, device="openreg"), torch.zeros(32, 256, device="openreg"))
        outputs = []
        for moment in inputs:
            state = cell(moment, state)
            outputs.append(head(state[0]))
        optimizer.zero_grad()
        torch.stack(outputs).square().mean().backward()
        optimizer.step()


def operations(events: list[dict[str, Any]]) -> list[str]:
    """Returns the lines for the events of one device, without frees of earlier allocations."""
    streams: dict[int, int] = {0: 0}
    held: dict[int, int] = {}
    allocated = 0
    lines = []
    for event in events:
        if event["action"] == "alloc":
            stream = streams.setdefault(event["stream"], len(streams))
            lines.append(f"+{event['size']}" + (f" {stream}" if stream else ""))
            held[event["addr"]] = allocated
            allocated += 1
        elif event["action"] == "free_requested" and event["addr"] in held:
            lines.append(f"-{held.pop(event['addr'])}")
    return lines


def record(program: Program) -> list[str]:
    """Runs a program and returns the lines for its first operations."""
    torch.manual_seed(0)
    memory = torch.openreg.memory
    memory._record_memory_history(context=None)
    program()
    events = memory._snapshot(0)["device_traces"][0]
    memory._record_memory_history(None)
    return operations(events)[:OPERATIONS]


def main() -> None:
    """Writes the files to the folder given as the only argument."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: allocations FOLDER")
    for program in (digits, transformer, lstm):
        lines = record(program)
        path = Path(sys.argv[1]) / f"{program.__name__}.txt"
        path.write_text("\n".join(lines) + "\n")
        print(f"{path}: {len(lines)} operations")


if __name__ == "__main__":
    main()
