// SPDX-License-Identifier: BSD-3-Clause
//
// memory.h - device memory and pinned host memory.
//
// Device memory is a private mapping in the process, which represents the memory of a card. The
// driver never reveals the address of this mapping. orMalloc returns addresses in a second range of
// the same size, which nothing can access. A host access to a device pointer therefore faults, as
// it does with a card. Only Translate() converts an address in the second range to an address in
// the mapping. Only kernels and copies call Translate(), on stream threads.
//
//   addresses from orMalloc (PROT_NONE)      | device 0 | device 1 | ...
//   memory that kernels access (read-write)  | device 0 | device 1 | ...
//
// Any thread may call these functions.
#ifndef RUNTIME_MINIMAL_MEMORY_H_
#define RUNTIME_MINIMAL_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/device/openreg.h"

namespace openreg::minimal {

inline constexpr size_t kPage = 4096;  // allocation sizes are rounded up to a multiple of this

// A live allocation, or pinned host memory.
struct Block {
  uintptr_t base;
  size_t size;  // as requested by the program
  orMemoryType type;
  int device;       // -1 for host memory
  bool registered;  // pinned by orHostRegister; the driver must not free it

  // Returns whether all `size` bytes at `pointer` are inside the block.
  bool Contains(const void* pointer, size_t bytes) const {
    const uintptr_t offset = reinterpret_cast<uintptr_t>(pointer) - base;
    return offset <= size && bytes <= size - offset;
  }
};

// Reserves both address ranges. Called once, when the driver is first used.
orError_t ReserveMemory(int device_count, size_t device_memory);
// Frees all allocations of a device.
void FreeMemory(int device);

// Returns the block that contains the address, if there is one.
std::optional<Block> FindBlock(const void* pointer);
bool IsDeviceAddress(const void* pointer);
// Returns the address at which kernels access the byte. A host address is returned unchanged.
void* Translate(const void* pointer);

}  // namespace openreg::minimal

#endif  // RUNTIME_MINIMAL_MEMORY_H_
