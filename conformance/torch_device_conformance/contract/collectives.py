# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for torch.distributed, checked with two processes on this machine."""

import tempfile

import torch.distributed
from torch_device_conformance.contract.child import LOAD
from torch_device_conformance.contract.row import (
    Backend,
    Finding,
    missing,
    require_equal,
    row,
)
from torch_device_conformance.verdict.verdict import CRASH, HANG, RAISES_WRONGLY

BACKEND = "torch.distributed.Backend.register_backend(name, creator, devices=[device])"
FILE = "distributed/process_group.cc"

START = """
import sys
import torch.distributed as dist
rank = int(sys.argv[1])
torch.accelerator.set_device_index(rank % torch.accelerator.device_count())
here = torch.device(device.type, torch.accelerator.current_device_index())
dist.init_process_group(
    dist.get_default_backend_for_device(device.type), init_method="file://" + sys.argv[2],
    rank=rank, world_size=2,
)
"""
END = """
dist.destroy_process_group()
"""


def default_backend(backend: Backend) -> str:
    """Returns the name of the device's collective backend. Without one, raises a finding."""
    if not torch.distributed.is_available():
        missing("the installed torch was built without torch.distributed")
    try:
        return torch.distributed.get_default_backend_for_device(backend.type)
    except (ValueError, KeyError):
        missing(f"no collective backend is registered for {backend.type}")


def two(backend: Backend, lines: str) -> list[str]:
    """Runs Python code in two processes, rank 0 and rank 1. Returns what each of them printed.

    Raises:
        Finding: a rank crashed, failed or did not exit in time.
    """
    import os
    import subprocess
    import sys
    import textwrap

    subject = backend.subject
    values = {"device": subject.device, "imports": subject.imports, "autoload": subject.autoload}
    source = LOAD.format(**values) + START + textwrap.dedent(lines) + END
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", source, str(rank), os.path.join(folder, "store")],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                text=True,
            )
            for rank in range(2)
        ]
        words = []
        try:
            for process in ranks:
                output, errors = process.communicate(timeout=150)
                if process.returncode:
                    kind = CRASH if process.returncode < 0 else RAISES_WRONGLY
                    message = f"a rank exited with status {process.returncode}"
                    if errors.strip():
                        message += (
                            f"; the last line of its stderr is: {errors.strip().splitlines()[-1]}"
                        )
                    raise Finding(kind, message)
                words.append(output.strip())
        except subprocess.TimeoutExpired:
            raise Finding(HANG, "at least one of the two ranks did not exit within 150 s") from None
        finally:
            for process in ranks:
                if process.poll() is None:
                    process.kill()
                process.communicate()
    return words


@row(
    "collectives",
    "default_backend",
    requires="torch knows the device's collective backend",
    implement=BACKEND,
    without="init_process_group() selects Gloo, which rejects the device's tensors",
    shown_by="python/torch_openreg/distributed/registration.py",
    required=False,
)
def registered(backend: Backend) -> None:
    default_backend(backend)


@row(
    "collectives",
    "all_reduce",
    requires="all_reduce, broadcast and all_gather move data between processes",
    implement=BACKEND + "; a subclass of c10d::Backend",
    without="data-parallel training is impossible",
    shown_by=FILE,
    required=False,
    seconds=240,
)
def all_reduce(backend: Backend) -> None:
    default_backend(backend)
    lines = """
        x = torch.full((4,), float(rank + 1), device=here)
        dist.all_reduce(x)
        y = torch.full((2,), float(rank), device=here)
        dist.broadcast(y, 1)
        parts = [torch.zeros(1, device=here) for _ in range(2)]
        dist.all_gather(parts, torch.full((1,), float(rank), device=here))
        print(x.tolist(), y.tolist(), [p.item() for p in parts])
    """
    wanted = "[3.0, 3.0, 3.0, 3.0] [1.0, 1.0] [0.0, 1.0]"
    require_equal("output of the two ranks", two(backend, lines), [wanted, wanted])


@row(
    "collectives",
    "ddp",
    requires="DistributedDataParallel gives both ranks the mean of their gradients",
    implement="Work::getFuture; the guard's stream functions; TimerRegistry",
    without="data-parallel training is impossible",
    shown_by="distributed/reducer_timer.cc",
    required=False,
    seconds=240,
)
def ddp(backend: Backend) -> None:
    default_backend(backend)
    lines = """
        model = torch.nn.Linear(2, 1, bias=False).to(here)
        torch.nn.init.ones_(model.weight)
        model = torch.nn.parallel.DistributedDataParallel(model)
        model(torch.full((1, 2), float(rank + 1), device=here)).sum().backward()
        print(model.module.weight.grad.tolist())
    """
    require_equal("gradients on the two ranks", two(backend, lines), ["[[1.5, 1.5]]"] * 2)
