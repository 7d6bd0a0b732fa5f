# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for pinned host memory and non-blocking copies."""

import torch
from torch_device_conformance.contract.row import Backend, require, require_equal, row

FILE = "runtime/c10/host_allocator.cc"
HOST = "hook getPinnedMemoryAllocator; at::HostAllocator; hook isPinnedPtr"


@row(
    "pinned_memory",
    "pin",
    requires="pin_memory() returns page-locked memory, and is_pinned() recognizes it",
    implement=HOST,
    without="DataLoader(pin_memory=True) fails, and copies block",
    shown_by=FILE,
)
def pin(backend: Backend) -> None:
    x = torch.arange(1000.0)
    require(not x.is_pinned(), "is_pinned() is true for pageable memory")
    y = x.pin_memory()
    require(y.is_pinned(), "is_pinned() is false after pin_memory()")
    require_equal("values", y, x)
    require(torch.empty(5, pin_memory=True).is_pinned(), "empty(pin_memory=True) is not pinned")
    require(y[3:].is_pinned(), "a view of pinned memory is not pinned")


@row(
    "pinned_memory",
    "round_trip",
    requires="non_blocking copies to and from pinned memory are correct after a synchronization",
    implement="an asynchronous copy in stream order",
    without="batches contain wrong values",
    shown_by="aten/tensors/copy.cc",
)
def round_trip(backend: Backend) -> None:
    x = torch.randn(1 << 18).pin_memory()
    backend.delay()
    y = x.to(backend.device, non_blocking=True)
    back = torch.empty_like(x, pin_memory=True)
    back.copy_(y * 2, non_blocking=True)
    backend.synchronize()
    require_equal("values", back, x * 2)


@row(
    "pinned_memory",
    "pageable_is_safe",
    requires="a pageable source may be changed immediately after copy_(non_blocking=True)",
    implement="a staged or synchronous copy if the source is not pinned",
    without="batches on the device contain values that were written to the source later",
    shown_by="aten/tensors/copy.cc",
)
def pageable_is_safe(backend: Backend) -> None:
    x = torch.ones(1 << 16)
    backend.synchronize()
    backend.delay()
    y = x.to(backend.device, non_blocking=True)
    x.zero_()
    require(bool((y == 1).all()), "the copy contains values that were written after the call")


@row(
    "pinned_memory",
    "freed_early",
    requires="pinned memory is not reused before the copy that reads it is done",
    implement="the host allocator's record_event",
    without="a data loader's batches overwrite each other",
    shown_by=FILE,
)
def freed_early(backend: Backend) -> None:
    target = torch.zeros(1 << 16, device=backend.device)
    backend.synchronize()
    backend.delay()
    x = torch.ones(1 << 16).pin_memory()
    target.copy_(x, non_blocking=True)
    del x
    others = [torch.zeros(1 << 16).pin_memory() for _ in range(3)]
    require(bool((target == 1).all()), "the copy read memory that was reused too early")
    del others


@row(
    "pinned_memory",
    "data_loader",
    requires="a DataLoader with pin_memory=True pins its batches for this device",
    implement=HOST,
    without="copies of batches do not overlap with computation",
    shown_by=FILE,
)
def data_loader(backend: Backend) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True)
    for (batch,) in loader:
        require(batch.is_pinned(), "a batch is not pinned")
        require_equal("values", batch.to(backend.device, non_blocking=True), batch)
