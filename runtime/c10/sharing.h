// SPDX-License-Identifier: BSD-3-Clause
//
// sharing.h - storages shared between processes: the driver's shared memory (orIpcExport) as torch
// storages.
//
// An exported storage keeps its memory as long as another process may use it, even after the
// storage is destroyed: the memory then waits here and returns to the allocator after the last
// importer has released it. This is checked when anything else is shared or released, by
// release_shared(), and before an allocation fails. An imported storage releases its memory when
// the work on its streams is done. A process has only one storage for the same bytes: importing
// them twice, or importing its own bytes, returns the existing storage. Any thread may call these
// functions. In a forked child, releasing does nothing.
#ifndef RUNTIME_C10_SHARING_H_
#define RUNTIME_C10_SHARING_H_

#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <cstddef>

#include "runtime/c10/device.h"

namespace openreg {

// Returns a handle to all bytes of `storage`, which must have at least one byte. The handle is
// ordered after the current stream of the storage's device, the memory's own stream and all
// recorded streams. It is valid for one import_storage(), in any process.
OPENREG_API orIpcMemoryHandle export_storage(const c10::Storage& storage);

// Returns the exported storage, of `bytes` bytes. The current stream of `device` waits for the
// exporter's work. The storage cannot be resized unless this process exported it.
OPENREG_API c10::Storage import_storage(const orIpcMemoryHandle& handle, size_t bytes,
                                        c10::DeviceIndex device);

// Releases memory that no process imports any longer. Returns how many bytes returned to this
// process's allocator or to the exporter.
OPENREG_API size_t release_shared();

// Implements c10::Allocator::recordStream: records that work on `stream` uses the memory. Does
// nothing for memory that is not shared.
void record_shared(const c10::DataPtr& data, const c10::Stream& stream);

}  // namespace openreg

#endif  // RUNTIME_C10_SHARING_H_
