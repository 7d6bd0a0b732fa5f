// SPDX-License-Identifier: BSD-3-Clause
//
// imported_memory.h - memory of other processes that is mapped into this process.
//
// Each import is an allocation in the import window. All handles of the same bytes share one
// import. An import shares ownership of the file whose lock covers its bytes (imported_file.h).
//
// The caller of a function whose name ends with Locked must hold the lock of Allocations.
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

// Returns the allocation for these bytes of a file, or null if they are not imported.
Allocation* FindImportLocked(uint64_t number, uint64_t offset, size_t size);

// Maps the pages of a locked file that contain [offset, offset + size) as memory of `device`.
// Stores the import with its allocation. Fails with `function` in the message.
orError_t MapImportLocked(const char* function, Import import, size_t size, int device,
                          uintptr_t* base);

// Undoes one open of the allocation. The last release unmaps the memory and releases its lock.
void ReleaseImportLocked(Allocation* allocation);

// Releases all imports of a device.
void CloseImports(int device);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_IMPORTED_MEMORY_H_
