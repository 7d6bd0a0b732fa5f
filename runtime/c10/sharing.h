// SPDX-License-Identifier: BSD-3-Clause
//
// sharing.h - storages that processes share: torch storages over the driver's shared memory
// (orIpcExport).
//
// The memory of an exported storage stays allocated while another process may use it, even if the
// storage is destroyed. In that case, the memory returns to the allocator after the last importer
// has released it. This is checked in release_shared(), whenever other memory is shared or
// released, and before an allocation fails. An imported storage releases its memory when the work
// on its streams is done.
//
// A process has only one storage for the same bytes. If it imports them twice, or imports bytes
// that it exported itself, it receives the existing storage. Any thread may call these functions.
// In a forked child, releasing does nothing.
#ifndef RUNTIME_C10_SHARING_H_
#define RUNTIME_C10_SHARING_H_

#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <cstddef>

#include "runtime/c10/device.h"

namespace openreg {

// Returns a handle to all bytes of `storage`, which must have at least one byte. An importer's work
// is ordered after the work queued so far on the current stream of the storage's device, on the
// memory's own stream and on all recorded streams. The handle is valid for one import_storage(), in
// any process.
OPENREG_API orIpcMemoryHandle export_storage(const c10::Storage& storage);

// Returns the storage that was exported, with `bytes` bytes. The current stream of `device` waits
// for the exporter's work. The storage cannot be resized, unless this process exported it.
OPENREG_API c10::Storage import_storage(const orIpcMemoryHandle& handle, size_t bytes,
                                        c10::DeviceIndex device);

// Releases memory that no process imports any more. Returns the number of bytes that returned to
// this process's allocator or to the exporter.
OPENREG_API size_t release_shared();

// Implements c10::Allocator::recordStream: records that work on `stream` uses the memory. Does
// nothing for memory that is not shared.
void record_shared(const c10::DataPtr& data, const c10::Stream& stream);

}  // namespace openreg

#endif  // RUNTIME_C10_SHARING_H_
