// SPDX-License-Identifier: BSD-3-Clause
//
// shared_memory.h - parts of allocations that other processes use, in the order of streams.
//
// A handle names a range of a memfd, by a process that has it open, and a slot on the board of the
// exporter (board.h), which has what its stream had queued. The importer locks the range
// (imported_memory.h) and then takes the serial number out of the slot: until then the slot says
// that the bytes are exported, afterwards the lock does. So the exporter may be the owner or an
// importer itself, and a kill of the importer ends its imports. The ranges of one file share a
// descriptor.
//
// All state is under the lock of Allocations, which is not held while a stream is waited for.
#ifndef RUNTIME_DEVICE_SHARED_MEMORY_H_
#define RUNTIME_DEVICE_SHARED_MEMORY_H_

#include <cstddef>

#include "runtime/device/allocation.h"
#include "runtime/device/imported_memory.h"

namespace openreg::device {

// Makes handles of this allocation unusable that nobody has imported.
void RetractExports(const Allocation& allocation);

// An import of `size` bytes goes away.
void ForgetImport(const Import& import, size_t size);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_SHARED_MEMORY_H_
