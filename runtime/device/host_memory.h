// SPDX-License-Identifier: BSD-3-Clause
//
// host_memory.h - the registry of pinned host memory.
//
// Pinning is only bookkeeping here: the device must know which host memory stays valid until an
// asynchronous copy runs. No page is locked, because only the CPU reads the memory. Each process
// has one HostMemory object, with one lock. It is never destroyed.
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
  bool owned;  // whether orMallocHost allocated it
};

class HostMemory {
 public:
  static HostMemory& Get();

  orError_t Allocate(size_t size, void** pointer);
  orError_t Free(void* pointer);
  orError_t Register(void* pointer, size_t size);
  orError_t Unregister(void* pointer);

  // Finds the block that contains `pointer`. Returns false if there is no such block.
  bool Find(const void* pointer, HostBlock* found);

 private:
  const HostBlock* FindLocked(uintptr_t address) const;

  std::mutex mutex_;
  std::map<uintptr_t, HostBlock> blocks_;
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_HOST_MEMORY_H_
