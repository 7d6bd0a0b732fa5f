// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/minimal/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "runtime/minimal/driver.h"

namespace openreg::minimal {
namespace {

// ReserveMemory() sets these three numbers. They do not change afterwards.
constinit uintptr_t addresses = 0;  // start of the addresses that orMalloc returns
constinit size_t total_size = 0;    // total bytes of all devices
constinit ptrdiff_t offset = 0;     // distance from an address to its memory

constinit std::mutex mutex;  // guards the blocks

// Returns the table of all allocations and of pinned memory. The key is the base address.
using Blocks = std::map<uintptr_t, Block>;
Blocks& AllBlocks() {
  static Blocks& blocks = *new Blocks;  // never destroyed: other libraries free memory at exit
  return blocks;
}

constexpr size_t RoundUp(size_t size) { return (size + kPage - 1) / kPage * kPage; }

// The following functions require that the caller holds the mutex.

void Add(uintptr_t base, size_t size, orMemoryType type, int device, bool registered) {
  AllBlocks()[base] = {base, size, type, device, registered};
}

// Returns the block of this kind that starts at the pointer, or end().
Blocks::iterator StartingAt(const void* pointer, orMemoryType type, bool registered) {
  const auto block = AllBlocks().find(reinterpret_cast<uintptr_t>(pointer));
  return block != AllBlocks().end() && block->second.type == type &&
                 block->second.registered == registered
             ? block
             : AllBlocks().end();
}

// Returns the block that contains the address, or end().
Blocks::iterator Containing(uintptr_t address) {
  const auto next = AllBlocks().upper_bound(address);
  if (next == AllBlocks().begin() ||
      address - std::prev(next)->first >= std::prev(next)->second.size) {
    return AllBlocks().end();
  }
  return std::prev(next);
}

// Frees device memory and returns its pages to the operating system. orMemTrim therefore has
// nothing to do.
void Erase(Blocks::iterator block) {
  madvise(Translate(reinterpret_cast<void*>(block->first)), RoundUp(block->second.size),
          MADV_DONTNEED);
  AllBlocks().erase(block);
}

}  // namespace

orError_t ReserveMemory(int device_count, size_t device_memory) {
  const size_t size = device_memory * static_cast<size_t>(device_count);
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* reserved = mmap(nullptr, size, PROT_NONE, kFlags, -1, 0);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (reserved == MAP_FAILED || memory == MAP_FAILED) {
    const int reason = errno;
    for (void* mapped : {reserved, memory}) {
      if (mapped != MAP_FAILED) {
        munmap(mapped, size);
      }
    }
    return Fail(
        orErrorSystem,
        "mmap of %zu bytes for the memory of %d devices failed: %s; raise the address space "
        "limit (RLIMIT_AS, ulimit -v) or lower OPENREG_DEVICE_MEMORY",
        size, device_count, std::strerror(reason));
  }
  for (void* mapped : {reserved, memory}) {
    madvise(mapped, size, MADV_DONTFORK);  // a child cannot use the device
    madvise(mapped, size, MADV_DONTDUMP);
  }
  addresses = reinterpret_cast<uintptr_t>(reserved);
  total_size = size;
  offset = static_cast<char*>(memory) - static_cast<char*>(reserved);
  return orSuccess;
}

void FreeMemory(int device) {
  const std::lock_guard lock(mutex);
  for (auto block = AllBlocks().begin(); block != AllBlocks().end();) {
    const auto next = std::next(block);
    if (block->second.device == device) {
      Erase(block);
    }
    block = next;
  }
}

std::optional<Block> FindBlock(const void* pointer) {
  const std::lock_guard lock(mutex);
  const auto block = Containing(reinterpret_cast<uintptr_t>(pointer));
  return block != AllBlocks().end() ? std::optional(block->second) : std::nullopt;
}

bool IsDeviceAddress(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) - addresses < total_size;
}

void* Translate(const void* pointer) {
  auto* address = static_cast<char*>(const_cast<void*>(pointer));
  return IsDeviceAddress(pointer) ? address + offset : address;
}

extern "C" {

// Uses first fit: allocates from the first gap between the device's allocations that is large
// enough.
OPENREG_API orError_t orMalloc(void** pointer, size_t size) {
  RETURN_IF_ERROR(EnterWork(__func__));
  RETURN_IF_NULL(pointer);
  *pointer = nullptr;
  if (size == 0) {
    return orSuccess;
  }
  const int device = thread_state.device;
  const size_t device_memory = GetSettings().device_memory;
  const uintptr_t begin = addresses + static_cast<size_t>(device) * device_memory;
  const uintptr_t end = begin + device_memory;
  uintptr_t gap = begin;
  const std::lock_guard lock(mutex);
  for (auto block = AllBlocks().lower_bound(begin); size <= device_memory; ++block) {
    const bool last = block == AllBlocks().end() || block->first >= end;
    if ((last ? end : block->first) - gap >= RoundUp(size)) {
      Add(gap, size, orMemoryTypeDevice, device, false);
      *pointer = reinterpret_cast<void*>(gap);
      return orSuccess;
    }
    if (last) {
      break;
    }
    gap = block->first + RoundUp(block->second.size);
  }
  return Fail(orErrorOutOfMemory,
              "orMalloc of %zu bytes: no free range of device %d, which has %zu bytes, is large "
              "enough",
              size, device, device_memory);
}

OPENREG_API orError_t orFree(void* pointer) {
  BEGIN_RELEASE();
  if (pointer == nullptr) {
    return orSuccess;
  }
  const std::lock_guard lock(mutex);
  const auto block = StartingAt(pointer, orMemoryTypeDevice, false);
  if (block == AllBlocks().end()) {
    return Fail(
        orErrorInvalidDevicePointer,
        "orFree: %p is not the start of a live allocation; pass a pointer from orMalloc that "
        "has not been freed",
        pointer);
  }
  Erase(block);
  return orSuccess;
}

OPENREG_API orError_t orMemTrim(size_t* released) {
  if (released != nullptr) {
    *released = 0;
  }
  return InForkedChild() ? orSuccess : EnterRelease(__func__);
}

OPENREG_API orError_t orMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  RETURN_IF_ERROR(EnterQuery(__func__));
  RETURN_IF_NULL(free_bytes);
  RETURN_IF_NULL(total_bytes);
  *free_bytes = *total_bytes = GetSettings().device_memory;
  const std::lock_guard lock(mutex);
  for (const auto& [base, block] : AllBlocks()) {
    *free_bytes -= block.device == thread_state.device ? RoundUp(block.size) : 0;
  }
  return orSuccess;
}

OPENREG_API orError_t orMallocHost(void** pointer, size_t size) {
  RETURN_IF_ERROR(EnterWork(__func__));
  RETURN_IF_NULL(pointer);
  *pointer = size <= PTRDIFF_MAX && size != 0 ? std::aligned_alloc(kPage, RoundUp(size)) : nullptr;
  if (size == 0) {
    return orSuccess;
  }
  if (*pointer == nullptr) {
    return Fail(orErrorOutOfMemory, "orMallocHost of %zu bytes: out of host memory", size);
  }
  const std::lock_guard lock(mutex);
  Add(reinterpret_cast<uintptr_t>(*pointer), size, orMemoryTypeHost, -1, false);
  return orSuccess;
}

OPENREG_API orError_t orFreeHost(void* pointer) {
  BEGIN_RELEASE();
  if (pointer == nullptr) {
    return orSuccess;
  }
  const std::lock_guard lock(mutex);
  const auto block = StartingAt(pointer, orMemoryTypeHost, false);
  if (block == AllBlocks().end()) {
    return Fail(orErrorInvalidValue,
                "orFreeHost: %p was not returned by orMallocHost or was already freed", pointer);
  }
  AllBlocks().erase(block);
  std::free(pointer);
  return orSuccess;
}

OPENREG_API orError_t orHostRegister(void* pointer, size_t size) {
  RETURN_IF_ERROR(EnterWork(__func__));
  const auto base = reinterpret_cast<uintptr_t>(pointer);
  if (pointer == nullptr || size == 0 || base + size < base || IsDeviceAddress(pointer)) {
    return Fail(orErrorInvalidValue,
                "orHostRegister: %zu bytes at %p are not a valid range of host memory", size,
                pointer);
  }
  const std::lock_guard lock(mutex);
  const auto next = AllBlocks().upper_bound(base);
  if (Containing(base) != AllBlocks().end() ||
      (next != AllBlocks().end() && next->first < base + size)) {
    return Fail(orErrorAlreadyRegistered,
                "orHostRegister of %zu bytes at %p: a part of this range is already pinned", size,
                pointer);
  }
  Add(base, size, orMemoryTypeHost, -1, true);
  return orSuccess;
}

OPENREG_API orError_t orHostUnregister(void* pointer) {
  BEGIN_RELEASE();
  const std::lock_guard lock(mutex);
  const auto block = StartingAt(pointer, orMemoryTypeHost, true);
  if (block == AllBlocks().end()) {
    return Fail(orErrorNotRegistered,
                "orHostUnregister: %p is not the start of memory that orHostRegister pinned",
                pointer);
  }
  AllBlocks().erase(block);
  return orSuccess;
}

OPENREG_API orError_t orPointerGetAttributes(orPointerAttributes* attributes, const void* pointer) {
  RETURN_IF_ERROR(EnterQuery(__func__));
  RETURN_IF_NULL(attributes);
  *attributes = {orMemoryTypeUnmanaged, -1, const_cast<void*>(pointer), nullptr, 0, 0};
  if (const auto block = FindBlock(pointer)) {
    attributes->type = block->type;
    attributes->device = block->device;
    attributes->base = reinterpret_cast<void*>(block->base);
    attributes->size = block->size;
  } else if (IsDeviceAddress(pointer)) {
    return Fail(
        orErrorInvalidDevicePointer,
        "orPointerGetAttributes: %p is a device address that is not inside any live allocation",
        pointer);
  }
  return orSuccess;
}

}  // extern "C"
}  // namespace openreg::minimal
