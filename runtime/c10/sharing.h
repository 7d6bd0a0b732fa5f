// SPDX-License-Identifier: BSD-3-Clause
//
// Storages that several processes use: shared memory of the driver (orIpcExport) as storages of
// torch.
//
// An exported storage keeps its memory as long as another process may use it, also after the
// storage is destroyed: the memory then waits here, and returns to the allocator when the last
// importer has released it. That is checked when something else is shared or released, by
// release_shared(), and before an allocation fails. An imported storage releases its memory when
// the work of its streams is done. A process has one storage for the same bytes: importing them
// twice, or importing its own bytes, returns the existing storage. Threads: any. In the child of a
// fork, releasing does nothing.
#ifndef RUNTIME_C10_SHARING_H_
#define RUNTIME_C10_SHARING_H_

#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <cstddef>

#include "runtime/c10/device.h"

namespace openreg {

// A handle of all bytes of `storage`, which must have at least one, ordered after the current
// stream of its device, the stream of the memory and those that were recorded for it. Valid for one
// import_storage(), in any process.
OPENREG_API orIpcMemoryHandle export_storage(const c10::Storage& storage);

// The storage of `bytes` bytes that was exported; the current stream of `device` waits for the
// exporter's work. It cannot be resized, unless this process exported it.
OPENREG_API c10::Storage import_storage(const orIpcMemoryHandle& handle, size_t bytes,
                                        c10::DeviceIndex device);

// Releases memory that no process imports any more. Returns how many bytes went to the allocator of
// this process or to the exporter.
OPENREG_API size_t release_shared();

// For c10::Allocator::recordStream: work on `stream` uses the memory too. Does nothing for memory
// that is not shared.
void record_shared(const c10::DataPtr& data, const c10::Stream& stream);

}  // namespace openreg

#endif  // RUNTIME_C10_SHARING_H_
