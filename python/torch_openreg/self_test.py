# SPDX-License-Identifier: BSD-3-Clause
"""Tries the device, feature by feature, against what the CPU does: some seconds in all.

For ``python -m torch_openreg``, which prints what it finds. Each check leaves the current device,
the random numbers and the memory as they were.
"""

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.utils import dlpack

from torch_openreg import openreg
from torch_openreg.name import DEVICE_TYPE, MODULE

__all__ = ["CHECKS", "Check", "Outcome", "run"]

_NS_PER_MS = 1_000_000


class _WrongError(Exception):
    """The device did something else than it should have."""


@dataclass(frozen=True)
class Check:
    """One feature.

    Attributes:
        name: of the feature.
        try_on: raises if the device of that index fails; what it returns, if anything, is worth a
            word in the report.
        advice: what to do about a failure.
    """

    name: str
    try_on: Callable[[int], str | None]
    advice: str


@dataclass(frozen=True)
class Outcome:
    """What became of a check.

    Attributes:
        message: what went wrong, or what is worth knowing; else empty.
        advice: what to do; empty where it passed.
        ms: how long it took.
    """

    name: str
    passed: bool
    ms: float
    message: str
    advice: str


def run(device: int = 0) -> Iterator[Outcome]:
    """Run all checks, one for each step of the iterator.

    Args:
        device: index of the device to try.

    Yields:
        Their outcomes in the order of CHECKS. A failure does not end it.
    """
    for check in CHECKS:
        start = time.perf_counter()
        message, passed = "", True
        try:
            with torch.random.fork_rng(devices=[device]), openreg.device(device):
                message = check.try_on(device) or ""
                openreg.synchronize(device)
        except Exception as error:
            message, passed = f"{type(error).__name__}: {error}", False
            if isinstance(error, _WrongError):
                message = str(error)
        ms = 1e3 * (time.perf_counter() - start)
        yield Outcome(check.name, passed, ms, message, "" if passed else check.advice)


def _same(what: str, found: torch.Tensor, expected: torch.Tensor) -> None:
    """Require bits."""
    if not torch.equal(found, expected):
        wrong = int((found != expected).sum()) if found.shape == expected.shape else found.numel()
        raise _WrongError(f"{what}: {wrong} of {expected.numel()} elements are wrong")


def _close(what: str, found: torch.Tensor, expected: torch.Tensor, rtol: float = 1e-4) -> None:
    """Require values, up to what another order of additions does."""
    if not torch.allclose(found.float(), expected.float(), rtol=rtol, atol=rtol):
        worst = float((found.float() - expected.float()).abs().max())
        raise _WrongError(f"{what}: differs from the CPU by up to {worst:.3g}")


def _true(what: str, holds: bool) -> None:
    if not holds:
        raise _WrongError(what)


def _numbers(*shape: int) -> torch.Tensor:
    """The same numbers in each run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(11))


def _memory(device: int) -> None:
    gc.collect()
    free, total = openreg.mem_get_info(device)
    _true(f"{free} bytes are free, of {total}", 0 < free <= total)
    before = openreg.memory_allocated(device)
    size = 1 << 20
    tensor = torch.full((size,), 7, dtype=torch.uint8, device=openreg_device(device))
    grown = openreg.memory_allocated(device) - before
    _true(f"an allocation of {size} bytes counts as {grown}", grown >= size)
    _same("memory that was filled", tensor.cpu(), torch.full((size,), 7, dtype=torch.uint8))
    del tensor
    left = openreg.memory_allocated(device) - before
    _true(f"{left} bytes are still allocated after they were freed", left == 0)


def openreg_device(index: int) -> torch.device:
    """Return the device of that index."""
    return torch.device(DEVICE_TYPE, index)


def _copies(device: int) -> None:
    numbers = _numbers(64, 48)
    for dtype in (torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64):
        host = numbers.to(dtype)
        there = host.to(openreg_device(device))
        _true(f"a copy to the device is on {there.device}", there.device == openreg_device(device))
        _same(f"{dtype} there and back", there.cpu(), host)
        _same(f"{dtype} with gaps", there.t()[1::2].cpu(), host.t()[1::2])
        _same(f"{dtype} within the device", there.clone().cpu(), host)


def _pinned_memory(device: int) -> None:
    host = _numbers(1 << 16).pin_memory()
    _true("pin_memory() did not pin", host.is_pinned())
    there = host.to(openreg_device(device), non_blocking=True)
    back = torch.empty_like(host).pin_memory()
    back.copy_(there, non_blocking=True)
    openreg.synchronize(device)
    _same("a copy from and to pinned memory", back, host)


def _streams(device: int) -> None:
    producer, consumer = openreg.Stream(device), openreg.Stream(device)
    _true("two streams are one", producer != consumer)
    value = torch.zeros(1 << 12, device=openreg_device(device))
    openreg.synchronize(device)
    with openreg.stream(producer):
        openreg._sleep(5 * _NS_PER_MS)
        value.fill_(3)
        written = producer.record_event()
    with openreg.stream(consumer):
        consumer.wait_event(written)
        result = value * 2
    consumer.synchronize()
    _same("what a stream reads after it waited for another", result.cpu(), torch.full((4096,), 6.0))


def _events(device: int) -> None:
    first, last = (openreg.Event(device, enable_timing=True) for _ in range(2))
    first.record()
    openreg._sleep(20 * _NS_PER_MS)
    last.record()
    _true("an event is complete before the work that it marks", not last.query())
    last.synchronize()
    _true("an event is not complete after it was waited for", last.query())
    ms = first.elapsed_time(last)
    _true(f"events tell {ms:.3f} ms for work of 20 ms", ms >= 20)


def _operators(device: int) -> None:
    def compute(where: str | torch.device) -> list[torch.Tensor]:
        left, right = _numbers(33, 65).to(where), _numbers(65, 17).to(where)
        return [
            left @ right,
            torch.nn.functional.softmax(left, dim=1),
            torch.nn.functional.layer_norm(left, (65,)),
            left[left > 0].sum(),
            left.sort(dim=0).values,
            torch.linalg.vector_norm(left, dim=1),  # a fallback, or a kernel
        ]

    for number, (found, expected) in enumerate(
        zip(compute(openreg_device(device)), compute("cpu"), strict=True)
    ):
        _close(f"result {number}", found.cpu(), expected)


def _gradients(device: int) -> None:
    def gradients(where: str | torch.device) -> list[torch.Tensor]:
        weight = _numbers(16, 8).to(where).requires_grad_()
        bias = _numbers(16).to(where).requires_grad_()
        hidden = torch.nn.functional.gelu(_numbers(4, 8).to(where) @ weight.t() + bias)
        loss = torch.nn.functional.cross_entropy(hidden, torch.arange(4).to(where))
        return list(torch.autograd.grad(loss, (weight, bias)))

    for name, found, expected in zip(
        ("weight", "bias"), gradients(openreg_device(device)), gradients("cpu"), strict=True
    ):
        _close(f"gradient of {name}", found.cpu(), expected)


def _autocast(device: int) -> None:
    left, right = _numbers(8, 16), _numbers(16, 8)
    there = left.to(openreg_device(device)), right.to(openreg_device(device))
    for dtype in openreg.get_amp_supported_dtype():
        with torch.autocast(DEVICE_TYPE, dtype=dtype):
            product = torch.mm(*there)
            total = product.exp().sum()
        _true(f"a product under autocast is {product.dtype}", product.dtype == dtype)
        _true(f"exp under autocast is {total.dtype}", total.dtype == torch.float32)
        _close(f"a product of {dtype}", product.cpu(), left @ right, rtol=0.1)


def _random_numbers(device: int) -> None:
    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.rand(10_000, device=openreg_device(device)).cpu()

    first = draw(1)
    _same("numbers of the same seed", draw(1), first)
    _true("two seeds give the same numbers", not torch.equal(draw(2), first))
    mean = float(first.mean())
    _true(f"numbers from 0 to 1 have the mean {mean:.3f}", abs(mean - 0.5) < 0.03)
    _true("numbers from 0 to 1 are outside of it", bool(((first >= 0) & (first < 1)).all()))


def _graphs(device: int) -> None:
    source = torch.zeros(256, device=openreg_device(device))
    graph = openreg.OpenRegGraph()
    with openreg.graph(graph):
        result = (source * 3 + 1).sum()
    for value in (2.0, 5.0):
        source.fill_(value)
        graph.replay()
        expected = 256 * (3 * value + 1)
        found = result.item()
        _true(f"a replay gives {found} instead of {expected}", found == expected)
    graph.reset()


def _peer_copies(device: int) -> str | None:
    if openreg.device_count() < 2:
        return "there is one device only (OPENREG_DEVICE_COUNT)"
    peer = (device + 1) % openreg.device_count()
    host = _numbers(1 << 14)
    there = host.to(openreg_device(device)).to(openreg_device(peer))
    _true(f"a copy to device {peer} is on {there.device}", there.device == openreg_device(peer))
    _same(f"a copy from device {device} to {peer}", there.cpu(), host)
    return None


def _dlpack(device: int) -> None:
    tensor = torch.arange(12.0, device=openreg_device(device)).view(3, 4)
    taken = dlpack.from_dlpack(tensor)
    _true(f"a tensor came back on {taken.device}", taken.device == tensor.device)
    tensor.add_(1)
    _same("memory shared by DLPack", taken.cpu(), torch.arange(1.0, 13.0).view(3, 4))


def _compiler(device: int) -> None:
    backends = torch.compiler.list_backends()
    _true(f"backend 'openreg' is not among {', '.join(backends)}", DEVICE_TYPE in backends)


def _errors(device: int) -> None:
    count = openreg.device_count()
    try:
        torch.ones(1, device=openreg_device(count))
    except RuntimeError as error:
        _true(f"device {count} is refused without its number: {error}", str(count) in str(error))
    else:
        raise _WrongError(f"device {count} is used, and there are {count}")
    found = torch.ones(3, device=openreg_device(device)).sum().item()
    _true(f"after an error, 1 + 1 + 1 is {found}", found == 3)


_MEMORY = "see docs/memory.md; OPENREG_DEVICE_MEMORY sets the size of a device"
_STREAMS = "see docs/streams.md; OPENREG_LAUNCH_BLOCKING=1 shows whether it is about asynchrony"
_NUMBERS = "try OPENREG_LAUNCH_BLOCKING=1 and OPENREG_STREAM_SANITIZER=1 (docs/debugging.md)"

#: In the order in which one builds on another.
CHECKS = (
    Check("memory", _memory, _MEMORY),
    Check("copies", _copies, _MEMORY),
    Check("pinned memory", _pinned_memory, "see the limit of locked memory: ulimit -l"),
    Check("errors", _errors, "see docs/device.md"),
    Check("streams", _streams, _STREAMS),
    Check("events", _events, _STREAMS),
    Check("operators", _operators, _NUMBERS),
    Check("gradients", _gradients, _NUMBERS),
    Check("autocast", _autocast, "see docs/amp.md"),
    Check("random numbers", _random_numbers, f"see {MODULE}.manual_seed"),
    Check("graphs", _graphs, "see docs/graphs.md"),
    Check("peer copies", _peer_copies, _MEMORY),
    Check("dlpack", _dlpack, "see docs/dlpack.md"),
    Check("compiler", _compiler, "its entry point is missing: reinstall torch_openreg"),
)
