// SPDX-License-Identifier: BSD-3-Clause
//
// imported_memory.h - ranges of other processes' memory, mapped here.
//
// Each is an allocation of its own, in the import window, and one for all handles of the same
// bytes. It owns a share of the file that it is locked by (imported_file.h).
//
// The functions that end with Locked need the lock of Allocations.
#ifndef RUNTIME_DEVICE_IMPORTED_MEMORY_H_
#define RUNTIME_DEVICE_IMPORTED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/device/allocation.h"
#include "runtime/device/imported_file.h"

namespace openreg::device {

struct Import {
  std::shared_ptr<ImportedFile> file;
  int opens;        // not yet matched by a release
  uint64_t number;  // of the file
  uint64_t offset;  // in the file, of the first byte
};

// The allocation that has these bytes of a file; null if they are not imported.
Allocation* FindImportLocked(uint64_t number, uint64_t offset, size_t size);

// Maps the pages of [offset, offset + size) of a file that is locked, as memory of `device`, and
// keeps the import with it. Fails in the name of `function`.
orError_t MapImportLocked(const char* function, Import import, size_t size, int device,
                          uintptr_t* base);

// One release of it; the last one unmaps it and drops its lock.
void ReleaseImportLocked(Allocation* allocation);

// Releases everything that was imported for a device.
void CloseImports(int device);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_IMPORTED_MEMORY_H_
