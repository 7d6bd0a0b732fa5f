# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for the device memory allocator."""

import gc
from typing import Any

import torch
from torch_device_conformance.contract.row import (
    Backend,
    missing,
    require,
    require_equal,
    require_error,
    row,
)

FILE = "runtime/c10/device_allocator.cc"
ALLOCATOR = "c10::DeviceAllocator, registered by REGISTER_ALLOCATOR"
MEGABYTE = 1 << 20


def allocated() -> int:
    """Returns the number of bytes that tensors use."""
    return int(torch.accelerator.memory_allocated())


def reserved() -> int:
    """Returns the number of bytes that the allocator owns, both used and free."""
    return int(torch.accelerator.memory_reserved())


@row(
    "allocator",
    "statistics",
    requires="torch.accelerator.memory_allocated and memory_reserved count the memory in use",
    implement="c10::DeviceAllocator::getDeviceStats",
    without="the cause of an out-of-memory error cannot be found",
    shown_by=FILE,
)
def statistics(backend: Backend) -> None:
    gc.collect()
    before = allocated()
    x = torch.empty(4 * MEGABYTE, dtype=torch.uint8, device=backend.device)
    during = allocated()
    grown = f"memory_allocated() grew by {during - before} for a tensor of {x.nbytes} bytes"
    require(during - before >= x.nbytes, grown)
    require(during - before < 2 * x.nbytes, grown)
    require(reserved() >= during, "memory_allocated() is larger than memory_reserved()")
    del x
    require_equal("memory_allocated() after the tensor was freed", allocated(), before)


@row(
    "allocator",
    "peaks",
    requires="max_memory_allocated keeps the peak until it is reset",
    implement="resetPeakStats, resetAccumulatedStats",
    without="the peak memory use of a program cannot be measured",
    shown_by=FILE,
)
def peaks(backend: Backend) -> None:
    torch.accelerator.reset_peak_memory_stats()
    before = allocated()
    x = torch.empty(8 * MEGABYTE, dtype=torch.uint8, device=backend.device)
    size = x.nbytes
    del x
    peak = int(torch.accelerator.max_memory_allocated())
    require(
        peak >= before + size,
        f"max_memory_allocated() is {peak}, but {before + size} bytes were in use",
    )
    torch.accelerator.reset_peak_memory_stats()
    after = int(torch.accelerator.max_memory_allocated())
    require(
        after < before + size,
        f"max_memory_allocated() is still {after} after reset_peak_memory_stats()",
    )


@row(
    "allocator",
    "empty_cache",
    requires="empty_cache returns unused memory to the device",
    implement="emptyCache",
    without="several processes cannot share a device",
    shown_by=FILE,
)
def empty_cache(backend: Backend) -> None:
    x = torch.empty(64 * MEGABYTE, dtype=torch.uint8, device=backend.device)
    del x
    gc.collect()
    backend.synchronize()
    before = reserved()
    torch.accelerator.empty_cache()
    if before:
        require(
            reserved() < before,
            f"empty_cache() returned nothing: {before} bytes reserved before, {reserved()} after",
        )


@row(
    "allocator",
    "record_stream",
    requires="memory is not reused while a stream passed to record_stream uses it",
    implement="recordStream, and aten::record_stream",
    without="kernels on other streams read overwritten memory",
    shown_by=FILE,
)
def record_stream(backend: Backend) -> None:
    side = backend.stream()
    for _ in range(4):
        x = torch.full((MEGABYTE,), 7.0, device=backend.device)
        side.wait_stream(backend.current_stream())
        result = torch.empty(MEGABYTE, device=backend.device)
        backend.synchronize()
        with side:
            delayed = backend.delay()
            result.copy_(x)
        x.record_stream(side)
        del x
        # If record_stream has no effect, these tensors reuse the memory of x, and their kernels
        # overwrite it before the copy reads it.
        others = [torch.full((MEGABYTE,), 1.0, device=backend.device) for _ in range(3)]
        side.synchronize()
        require(
            bool((result == 7).all()), "memory was reused while a recorded stream was reading it"
        )
        del others
        if not delayed:
            continue


@row(
    "allocator",
    "out_of_memory",
    requires="a request that is too large raises torch.OutOfMemoryError; the device still works",
    implement="TORCH_CHECK_WITH(OutOfMemoryError, ...) in allocate",
    without="the process dies, or programs that search for a batch size do not recognize the error",
    shown_by=FILE,
)
def out_of_memory(backend: Backend) -> None:
    before = allocated()
    error = require_error(
        "a request for 2^55 bytes",
        lambda: torch.empty(1 << 55, dtype=torch.uint8, device=backend.device),
        torch.OutOfMemoryError,
    )
    require("memory" in str(error).lower(), f"the error does not mention memory: {error}")
    require_equal("memory_allocated() after the error", allocated(), before)
    require_equal("a sum after the error", torch.ones(3, device=backend.device).sum().item(), 3.0)


@row(
    "allocator",
    "no_leak",
    requires="operators free all temporary memory",
    implement="results that only tensors own",
    without="training runs out of memory",
    shown_by=FILE,
)
def no_leak(backend: Backend) -> None:
    x = torch.ones(256, 256, device=backend.device, requires_grad=True)

    def work() -> None:
        y = ((x @ x).relu() * x + x.t()).softmax(1)
        z = y.detach().clone().mul_(2)
        (y.sum() + z.sum() + y.cumsum(0).mean()).backward()
        x.grad = None

    for _ in range(3):
        work()
    gc.collect()
    backend.synchronize()
    before = allocated()
    for _ in range(10):
        work()
    gc.collect()
    backend.synchronize()
    require_equal("memory_allocated() after 10 more steps", allocated(), before)


@row(
    "allocator",
    "reuse",
    requires="freed memory is reused without a call to the driver",
    implement="a caching allocator",
    without="every new tensor costs a call to the driver",
    shown_by="runtime/allocator/caching_allocator.cc",
    required=False,
)
def reuse(backend: Backend) -> None:
    x = torch.empty(MEGABYTE, device=backend.device)
    first = x.data_ptr()
    del x
    y = torch.empty(MEGABYTE, device=backend.device)
    require_equal("address of the next tensor of the same size", y.data_ptr(), first)


@row(
    "allocator",
    "memory_info",
    requires="the device's free and total memory can be queried",
    implement="c10::DeviceAllocator::getMemoryInfo; torch.<device>.mem_get_info",
    without="libraries cannot choose sizes that fit into memory",
    shown_by="python/torch_openreg/openreg/memory.py",
    required=False,
)
def memory_info(backend: Backend) -> None:
    free, total = backend.function("mem_get_info")()
    require(0 < free <= total, f"mem_get_info() reports {free} free bytes of {total}")


@row(
    "allocator",
    "pools",
    requires="a memory pool keeps its own segments",
    implement="torch.<device>.MemPool, use_mem_pool; emptyCache(MempoolId_t)",
    without="graphs cannot keep memory of their own",
    shown_by="python/torch_openreg/openreg/memory_pool.py",
    required=False,
)
def pools(backend: Backend) -> None:
    use = backend.function("use_mem_pool")
    pool: Any = backend.function("MemPool")()
    with use(pool):
        x = torch.ones(MEGABYTE, device=backend.device)
    inside = x.data_ptr()
    del x
    y = torch.ones(MEGABYTE, device=backend.device)
    require(y.data_ptr() != inside, "a tensor outside the pool got memory from the pool")
    with use(pool):
        z = torch.ones(MEGABYTE, device=backend.device)
    require_equal("address of the next tensor in the pool", z.data_ptr(), inside)


@row(
    "allocator",
    "streams_apart",
    requires="memory freed on one stream is not used on another before the first stream is done",
    implement="free lists per stream, or events",
    without="kernels on two streams use the same memory at the same time",
    shown_by="runtime/allocator/caching_allocator.cc",
)
def streams_apart(backend: Backend) -> None:
    side = backend.stream()
    with side:
        if not backend.delay():
            missing(f"torch.{backend.type}._sleep: this row needs a delay kernel")
        x = torch.full((MEGABYTE,), 7.0, device=backend.device)
        result = x * 1
        del x
    others = [torch.full((MEGABYTE,), 1.0, device=backend.device) for _ in range(3)]
    backend.current_stream().synchronize()
    side.synchronize()
    require(bool((result == 7).all()), "a stream read memory that another stream had overwritten")
    require(all(bool((o == 1).all()) for o in others), "two tensors got the same memory")
