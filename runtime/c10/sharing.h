// SPDX-License-Identifier: BSD-3-Clause
//
// Storages that several processes use: shared memory of the driver (orIpcExport) as storages of
// torch.
//
// An exported storage keeps its memory as long as another process may use it, also after the
// storage is gone: the memory then waits here, and goes back to the allocator when the last
// importer has released it. That is checked when something else is shared or released, by
// release_shared(), and before an allocation fails. An imported storage releases its memory when
// the work of its streams is done. A process has one storage for the same bytes: importing them
// twice, or getting own bytes back, gives the storage that exists. Threads: any. In the child of a
// fork, releasing does nothing.
#ifndef RUNTIME_C10_SHARING_H_
#define RUNTIME_C10_SHARING_H_

#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <cstddef>

#include "runtime/c10/device.h"

namespace openreg {

// A handle of all bytes of `storage`, of which there is one at least, in the order of the current
// stream of its device, the stream of the memory, and those that were recorded for it. Good for one
// import_storage, in any process.
OPENREG_API orIpcMemoryHandle export_storage(const c10::Storage& storage);

// The storage of `bytes` bytes that was exported; the current stream of `device` waits for the
// exporter's work. It cannot be resized, unless it is this process's own.
OPENREG_API c10::Storage import_storage(const orIpcMemoryHandle& handle, size_t bytes,
                                        c10::DeviceIndex device);

// Lets go of memory that nobody imports any more; the number of bytes that went back to the
// allocator of this process or to another one.
OPENREG_API size_t release_shared();

// For c10::Allocator::recordStream: work on `stream` uses the memory too. Nothing for memory that
// is not shared.
void record_shared(const c10::DataPtr& data, const c10::Stream& stream);

}  // namespace openreg

#endif  // RUNTIME_C10_SHARING_H_
