// SPDX-License-Identifier: BSD-3-Clause
//
// memory.h - the memory of the devices, and pinned host memory.
//
// Device memory is one private mapping of the process, which stands for the memory of a card. Its
// address never leaves the driver. orMalloc returns addresses in a second range of the same size
// that nobody can access, so a host that reads a device pointer gets a fault, as with a card.
// Only Translate() leads from one to the other; only kernels and copies call it, on the threads of
// streams.
//
//   addresses of orMalloc (PROT_NONE)    | device 0 | device 1 | ...
//   what kernels access (read-write)     | device 0 | device 1 | ...
//
// Every function may be called from every thread.
#ifndef RUNTIME_MINIMAL_MEMORY_H_
#define RUNTIME_MINIMAL_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/device/openreg.h"

namespace openreg::minimal {

inline constexpr size_t kPage = 4096;  // sizes of allocations are rounded up to it

// A live allocation, or pinned host memory.
struct Block {
  uintptr_t base;
  size_t size;  // as requested
  orMemoryType type;
  int device;       // -1 for host memory
  bool registered;  // pinned by orHostRegister: not ours to free

  // Whether all of `size` bytes at `pointer` are inside.
  bool Contains(const void* pointer, size_t bytes) const {
    const uintptr_t offset = reinterpret_cast<uintptr_t>(pointer) - base;
    return offset <= size && bytes <= size - offset;
  }
};

// Reserves both ranges. Called once, by the first use.
orError_t ReserveMemory(int device_count, size_t device_memory);
// Frees all allocations of a device.
void FreeMemory(int device);

// The block that contains the address, if any.
std::optional<Block> FindBlock(const void* pointer);
bool IsDeviceAddress(const void* pointer);
// Where a kernel finds the byte; host addresses are returned unchanged.
void* Translate(const void* pointer);

}  // namespace openreg::minimal

#endif  // RUNTIME_MINIMAL_MEMORY_H_
