# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for sharing memory with other processes and libraries."""

from typing import Any

import torch
import torch.multiprocessing
from torch_device_conformance.contract.row import Backend, Finding, require, require_equal, row
from torch_device_conformance.subject.subject import Subject
from torch_device_conformance.verdict.verdict import CRASH, HANG, RAISES_WRONGLY


@row(
    "sharing",
    "dlpack",
    requires="torch.from_dlpack imports a device tensor without a copy",
    implement="Tensor.__dlpack_device__: torch's own does not recognize the device's name",
    without="tensors cannot be exchanged with other libraries",
    shown_by="python/torch_openreg/openreg/dlpack.py",
)
def dlpack(backend: Backend) -> None:
    x = torch.arange(6.0).view(2, 3).to(backend.device).t()
    _, index = x.__dlpack_device__()
    require_equal("index of __dlpack_device__()", index, backend.device.index)
    y = torch.from_dlpack(x)  # type: ignore[attr-defined]
    require_equal("device", y.device, x.device)
    require_equal("values", y, x)
    require_equal("strides", y.stride(), x.stride())
    y.fill_(3)
    require_equal("the original after a write", x, torch.full((3, 2), 3.0))


@row(
    "sharing",
    "dlpack_order",
    requires="a consumer on a different stream sees the results of the producer's stream",
    implement="__dlpack__ with its argument `stream`",
    without="data races between libraries",
    shown_by="python/torch_openreg/openreg/dlpack.py",
    required=False,
)
def dlpack_order(backend: Backend) -> None:
    from torch_device_conformance.contract.streams import slow_value

    side, other = backend.stream(), backend.stream()
    with side:
        x = slow_value(backend, 5.0)
        with other:
            other.wait_stream(side)
            y = torch.from_dlpack(x) * 2  # type: ignore[attr-defined]
    other.synchronize()
    require(bool((y == 10).all()), "the consumer read the old value")


def _receive(subject: Subject, inbox: Any, outbox: Any) -> None:
    """Runs in the receiver: receives a tensor, adds 1 to it, and sends back its original values."""
    subject.load()
    tensor = inbox.get()
    seen = tensor.cpu().tolist()
    tensor.add_(1)
    torch.accelerator.synchronize(tensor.device)
    outbox.put((str(tensor.device), seen))
    inbox.get()  # keeps the tensor alive until the sender has read it


@row(
    "sharing",
    "multiprocessing",
    requires="a tensor sent through a torch.multiprocessing queue shares memory with the receiver",
    implement="ForkingPickler.register, with reducers for Tensor, Parameter and UntypedStorage",
    without="'_share_filename_: only available on CPU'",
    shown_by="python/torch_openreg/openreg/sharing.py",
    required=False,
    seconds=180,
)
def processes(backend: Backend) -> None:
    context = torch.multiprocessing.get_context("spawn")
    # SimpleQueue.put() raises the errors of a reducer. Queue.put() prints them in another thread
    # instead.
    there, back = context.SimpleQueue(), context.Queue()
    process = context.Process(target=_receive, args=(backend.subject, there, back))
    process.start()
    try:
        x = torch.arange(3.0).to(backend.device)
        there.put(x)
        try:
            place, seen = back.get(timeout=120)
        except Exception:
            process.join(1)
            if process.exitcode:
                kind = CRASH if process.exitcode < 0 else RAISES_WRONGLY
                raise Finding(kind, f"the receiver exited with status {process.exitcode}") from None
            raise Finding(HANG, "the receiver did not report a tensor within 120 s") from None
        require_equal("values that the receiver saw", seen, [0.0, 1.0, 2.0])
        require_equal("device that the receiver saw", torch.device(place).type, backend.type)
        require_equal("the sender's tensor after the receiver's write", x, torch.arange(1.0, 4.0))
        there.put(None)
        process.join(30)
        require_equal("exit status of the receiver", process.exitcode, 0)
    finally:
        if process.is_alive():
            process.kill()
        process.join()


@row(
    "sharing",
    "numpy",
    requires="numpy() raises an error for a device tensor; cpu().numpy() works",
    implement="nothing: torch rejects tensors that are not on the CPU",
    without="NumPy reads device memory and crashes",
    shown_by="aten/tensors/storage.cc",
)
def numpy(backend: Backend) -> None:
    x = torch.arange(3.0).to(backend.device)
    require_equal("cpu().numpy()", x.cpu().numpy().tolist(), [0.0, 1.0, 2.0])
    try:
        x.numpy()
    except (TypeError, RuntimeError):
        return
    raise Finding("accepts-wrongly", "numpy() of a device tensor returned an array")
