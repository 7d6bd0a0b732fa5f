// SPDX-License-Identifier: BSD-3-Clause
//
// host_memory.h - the registry of pinned host memory.
//
// Pinning is only bookkeeping here: a copy must know which host memory stays valid until the copy
// runs. No page is locked, because only the CPU reads the memory. There is one object per process,
// with one lock, which is never destroyed.
#ifndef RUNTIME_DEVICE_HOST_MEMORY_H_
#define RUNTIME_DEVICE_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "runtime/device/openreg.h"

namespace openreg::device {

struct HostBlock {
  uintptr_t base;
  size_t size;
  bool owned;  // allocated by orMallocHost
};

class HostMemory {
 public:
  static HostMemory& Get();

  orError_t Allocate(size_t size, void** pointer);
  orError_t Free(void* pointer);
  orError_t Register(void* pointer, size_t size);
  orError_t Unregister(void* pointer);

  // Finds the block that contains `pointer`. Returns false if there is none.
  bool Find(const void* pointer, HostBlock* found);

 private:
  const HostBlock* FindLocked(uintptr_t address) const;

  std::mutex mutex_;
  std::map<uintptr_t, HostBlock> blocks_;
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_HOST_MEMORY_H_
