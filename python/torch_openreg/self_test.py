# SPDX-License-Identifier: BSD-3-Clause
"""Checks properties that can differ between machines, for ``python -m torch_openreg``.

These properties are memory, threads, the kernels selected for the processor, and the installation.
The test suite checks everything else. Each check restores the current device, the random state and
memory.
"""

import gc
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional

from torch_openreg import openreg
from torch_openreg.name import DEVICE_TYPE

__all__ = ["CHECKS", "Failure", "run"]

_BYTES = 1 << 20
_BUSY_MS = 20


class Failure(NamedTuple):
    """What a check found, and what to do."""

    message: str
    advice: str


def run(name: str, index: int = 0) -> Failure | None:
    """Run one of CHECKS on the device with the given index; return its failure, if any.

    Raises:
        NotImplementedError: if the check requires an optional feature that the driver lacks.
    """
    device = torch.device(DEVICE_TYPE, index)
    check, advice = CHECKS[name]
    try:
        with openreg.device(device):
            check(device)
            openreg.synchronize(device)
    except Exception as error:
        if isinstance(error, NotImplementedError):
            if name in _OPTIONAL:
                raise
            advice = "implement the driver's function, and run the driver's conformance suite"
        message = " ".join(f"{type(error).__name__}: {error}".split())  # joins the lines
        return Failure(message, advice)
    return None


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


def _compare(what: str, found: torch.Tensor, expected: torch.Tensor, tolerance: float = 0) -> None:
    torch.testing.assert_close(
        found.cpu(), expected, rtol=tolerance, atol=tolerance, msg=lambda said: f"{what}: {said}"
    )


def _numbers(*shape: int) -> torch.Tensor:
    """Return random numbers that are the same in every run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(11))


def _memory(device: torch.device) -> None:
    gc.collect()
    free, total = openreg.mem_get_info(device)
    _require(0 < free <= total, f"{free} bytes are free, of {total}")
    before = openreg.memory_allocated(device)
    tensor = torch.full((_BYTES,), 7, dtype=torch.uint8, device=device)
    grown = openreg.memory_allocated(device) - before
    _require(grown >= _BYTES, f"an allocation of {_BYTES} bytes counts as {grown}")
    _compare("filled memory", tensor, torch.full((_BYTES,), 7, dtype=torch.uint8))
    del tensor
    left = openreg.memory_allocated(device) - before
    _require(left == 0, f"{left} bytes are still allocated after they were freed")


def _copies(device: torch.device) -> None:
    numbers = _numbers(64, 48)
    for dtype in (torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64):
        host = numbers.to(dtype)
        there = host.to(device)
        _compare(f"{dtype} to the device and back", there, host)
        _compare(f"{dtype} with strides", there.t()[1::2], host.t()[1::2])


def _pinned_memory(device: torch.device) -> None:
    numbers = _numbers(64, 48)
    pinned = numbers.pin_memory()
    _require(pinned.is_pinned(), "pin_memory() did not pin")
    back = torch.zeros_like(pinned).pin_memory()
    back.copy_(pinned.to(device, non_blocking=True), non_blocking=True)
    openreg.synchronize(device)
    _compare("pinned memory to the device and back", back, numbers)


def _peer_copies(device: torch.device) -> None:
    numbers = _numbers(64, 48)
    for index in {*range(openreg.device_count())} - {device.index}:
        peer = torch.device(DEVICE_TYPE, index)
        _compare(f"a copy from {device} to {peer}", numbers.to(device).to(peer), numbers)


def _streams(device: torch.device) -> None:
    producer, consumer = openreg.Stream(device), openreg.Stream(device)
    started, written = (openreg.Event(enable_timing=True, device=device) for _ in range(2))
    value = torch.zeros(4096, device=device)
    openreg.synchronize(device)
    with openreg.stream(producer):
        started.record()
        openreg._sleep(_BUSY_MS * 1_000_000)
        value.fill_(3)
        written.record()
    with openreg.stream(consumer):
        consumer.wait_event(written)
        result = value * 2
    consumer.synchronize()
    _compare("the value read after waiting for another stream", result, torch.full((4096,), 6.0))
    ms = started.elapsed_time(written)
    _require(ms >= _BUSY_MS, f"events measure {ms:.3f} ms for {_BUSY_MS} ms of work")


def _operators(device: torch.device) -> None:
    def compute(where: torch.device) -> dict[str, torch.Tensor]:
        shapes = ((33, 65), (65, 17), (17,))
        leaves = [_numbers(*shape).to(where).requires_grad_() for shape in shapes]
        normal = functional.layer_norm(leaves[0], (65,))
        hidden = functional.gelu(normal @ leaves[1] + leaves[2])
        results = {
            "layer_norm": normal,
            "gelu of a product": hidden,
            "sum of a selection": hidden[hidden > 0].sum(),  # nonzero uses the fallback
            "sort": hidden.sort(dim=0).values,
            "cross_entropy": functional.cross_entropy(hidden, torch.arange(33).to(where) % 17),
        }
        total = torch.stack([value.mean() for value in results.values()]).sum()
        gradients = torch.autograd.grad(total, leaves)
        return results | {f"gradient {n}": value for n, value in enumerate(gradients)}

    expected = compute(torch.device("cpu"))
    for name, found in compute(device).items():
        _compare(name, found, expected[name], tolerance=1e-4)


def _graphs(device: torch.device) -> None:
    source = torch.zeros(256, device=device)
    graph = openreg.OpenRegGraph()
    with openreg.graph(graph):
        result = (source * 3 + 1).sum()
    for value in (2.0, 5.0):
        source.fill_(value)
        graph.replay()
        _compare("a replay", result, torch.tensor(256 * (3 * value + 1)))
    graph.reset()


def _compiler(_: torch.device) -> None:
    backends = torch.compiler.list_backends()
    _require(DEVICE_TYPE in backends, f"{DEVICE_TYPE!r} is not among {', '.join(backends)}")


_MEMORY = "see docs/memory.md; OPENREG_DEVICE_MEMORY sets the size of a device"
_STREAMS = "see docs/streams.md; try OPENREG_LAUNCH_BLOCKING=1 to exclude asynchrony as the cause"
_NUMBERS = "try OPENREG_LAUNCH_BLOCKING=1 and OPENREG_STREAM_SANITIZER=1 (docs/debugging.md)"

# Checks of features that a driver of tier 1 lacks (openreg.h). Copies between devices need events.
_OPTIONAL = frozenset({"pinned memory", "peer copies", "streams", "graphs"})

#: The function of each check, and the advice for its failure, by name. The order matters: later
#: checks rely on earlier ones.
CHECKS: dict[str, tuple[Callable[[torch.device], None], str]] = {
    "memory": (_memory, _MEMORY),
    "copies": (_copies, _MEMORY),
    "pinned memory": (_pinned_memory, _MEMORY),
    "peer copies": (_peer_copies, _MEMORY),
    "streams": (_streams, _STREAMS),
    "operators": (_operators, _NUMBERS),
    "graphs": (_graphs, "see docs/graphs.md"),
    "compiler": (_compiler, "the entry point is missing: reinstall the package"),
}
