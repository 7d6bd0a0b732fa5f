// SPDX-License-Identifier: BSD-3-Clause
//
// imported_memory.h - memory of other processes that is mapped into this one.
//
// Each import is an allocation in the import window. All handles of the same bytes share one
// import. It shares ownership of the file through which its bytes are locked (imported_file.h).
//
// Functions whose name ends with Locked require the lock of Allocations.
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
  int opens;        // number of opens without a release
  uint64_t number;  // identifies the file
  uint64_t offset;  // position of the first byte in the file
};

// Returns the allocation of these bytes of a file, or null if they are not imported.
Allocation* FindImportLocked(uint64_t number, uint64_t offset, size_t size);

// Maps the pages of [offset, offset + size) of a locked file as memory of `device` and stores the
// import with the allocation. Fails with `function` in the message.
orError_t MapImportLocked(const char* function, Import import, size_t size, int device,
                          uintptr_t* base);

// Matches one open of the allocation. The last release unmaps the memory and drops its lock.
void ReleaseImportLocked(Allocation* allocation);

// Releases all imports of a device.
void CloseImports(int device);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_IMPORTED_MEMORY_H_
