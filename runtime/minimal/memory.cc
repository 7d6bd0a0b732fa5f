// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/minimal/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "runtime/minimal/driver.h"

namespace openreg::minimal {
namespace {

constexpr size_t RoundUp(size_t size) { return (size + kPage - 1) / kPage * kPage; }

}  // namespace

Memory& Memory::Get() {
  static Memory& memory = *new Memory;  // never destroyed: other libraries free memory at exit
  return memory;
}

orError_t Memory::Reserve(int device_count, size_t device_memory) {
  const size_t size = device_memory * static_cast<size_t>(device_count);
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* addresses = mmap(nullptr, size, PROT_NONE, kFlags, -1, 0);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (addresses == MAP_FAILED || memory == MAP_FAILED) {
    const int reason = errno;
    for (void* mapped : {addresses, memory}) {
      if (mapped != MAP_FAILED) {
        munmap(mapped, size);
      }
    }
    return Fail(orErrorSystem,
                "mmap of %zu bytes for the memory of %d devices: %s (RLIMIT_AS, ulimit -v; lower "
                "OPENREG_DEVICE_MEMORY)",
                size, device_count, std::strerror(reason));
  }
  for (void* mapped : {addresses, memory}) {
    madvise(mapped, size, MADV_DONTFORK);  // a child cannot use the device
    madvise(mapped, size, MADV_DONTDUMP);
  }
  addresses_ = reinterpret_cast<uintptr_t>(addresses);
  size_ = size;
  device_memory_ = device_memory;
  offset_ = static_cast<char*>(memory) - static_cast<char*>(addresses);
  return orSuccess;
}

std::map<uintptr_t, Block>::iterator Memory::FindAt(uintptr_t address) {
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) {
    return blocks_.end();
  }
  const auto block = std::prev(next);
  return address - block->first < block->second.size ? block : blocks_.end();
}

std::optional<Block> Memory::Find(const void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto block = FindAt(reinterpret_cast<uintptr_t>(pointer));
  return block != blocks_.end() ? std::optional(block->second) : std::nullopt;
}

// First fit: takes the first gap between the allocations of the device that is large enough.
orError_t Memory::Allocate(int device, size_t size, void** pointer) {
  *pointer = nullptr;
  if (size == 0) {
    return orSuccess;
  }
  const std::lock_guard lock(mutex_);
  const uintptr_t begin = addresses_ + static_cast<size_t>(device) * device_memory_;
  const uintptr_t end = begin + device_memory_;
  uintptr_t gap = begin;
  for (auto block = blocks_.lower_bound(begin); size <= device_memory_; ++block) {
    const bool last = block == blocks_.end() || block->first >= end;
    if ((last ? end : block->first) - gap >= RoundUp(size)) {
      blocks_[gap] = {gap, size, orMemoryTypeDevice, device, false};
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
              size, device, device_memory_);
}

void Memory::Erase(std::map<uintptr_t, Block>::iterator block) {
  // The pages go back to the operating system here, so that orMemTrim has nothing to do.
  madvise(Translate(reinterpret_cast<void*>(block->first)), RoundUp(block->second.size),
          MADV_DONTNEED);
  blocks_.erase(block);
}

orError_t Memory::Free(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
  if (block == blocks_.end() || block->second.type != orMemoryTypeDevice) {
    return Fail(orErrorInvalidDevicePointer,
                "orFree of %p: not the start of a live allocation of orMalloc", pointer);
  }
  Erase(block);
  return orSuccess;
}

void Memory::FreeAll(int device) {
  const std::lock_guard lock(mutex_);
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto next = std::next(block);
    if (block->second.device == device) {
      Erase(block);
    }
    block = next;
  }
}

size_t Memory::FreeBytes(int device) {
  const std::lock_guard lock(mutex_);
  size_t used = 0;
  for (const auto& [base, block] : blocks_) {
    used += block.device == device ? RoundUp(block.size) : 0;
  }
  return device_memory_ - used;
}

orError_t Memory::AllocateHost(size_t size, void** pointer) {
  *pointer = nullptr;
  if (size == 0) {
    return orSuccess;
  }
  void* memory = size <= std::numeric_limits<ptrdiff_t>::max()
                     ? std::aligned_alloc(kPage, RoundUp(size))
                     : nullptr;
  if (memory == nullptr) {
    return Fail(orErrorOutOfMemory, "orMallocHost of %zu bytes: out of host memory", size);
  }
  const std::lock_guard lock(mutex_);
  const auto base = reinterpret_cast<uintptr_t>(memory);
  blocks_[base] = {base, size, orMemoryTypeHost, -1, false};
  *pointer = memory;
  return orSuccess;
}

orError_t Memory::FreeHost(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
  if (block == blocks_.end() || block->second.type != orMemoryTypeHost ||
      block->second.registered) {
    return Fail(orErrorInvalidValue, "orFreeHost of %p: not the start of memory of orMallocHost",
                pointer);
  }
  blocks_.erase(block);
  std::free(pointer);
  return orSuccess;
}

orError_t Memory::Register(void* pointer, size_t size) {
  const auto base = reinterpret_cast<uintptr_t>(pointer);
  if (pointer == nullptr || size == 0 || base + size < base || IsDeviceAddress(pointer)) {
    return Fail(orErrorInvalidValue, "orHostRegister of %zu bytes at %p: not host memory", size,
                pointer);
  }
  const std::lock_guard lock(mutex_);
  const auto next = blocks_.upper_bound(base);
  if (FindAt(base) != blocks_.end() || (next != blocks_.end() && next->first < base + size)) {
    return Fail(orErrorAlreadyRegistered,
                "orHostRegister of %zu bytes at %p: a part of them is already pinned", size,
                pointer);
  }
  blocks_[base] = {base, size, orMemoryTypeHost, -1, true};
  return orSuccess;
}

orError_t Memory::Unregister(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
  if (block == blocks_.end() || !block->second.registered) {
    return Fail(orErrorNotRegistered, "orHostUnregister of %p: not the start of registered memory",
                pointer);
  }
  blocks_.erase(block);
  return orSuccess;
}

extern "C" {

OPENREG_API orError_t orMalloc(void** pointer, size_t size) {
  RETURN_IF_ERROR(EnterWork(__func__));
  return pointer != nullptr ? Memory::Get().Allocate(thread_state.device, size, pointer)
                            : FailNull(__func__, "pointer");
}

OPENREG_API orError_t orFree(void* pointer) {
  BEGIN_RELEASE();
  return pointer != nullptr ? Memory::Get().Free(pointer) : orSuccess;
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
  *free_bytes = Memory::Get().FreeBytes(thread_state.device);
  *total_bytes = GetSettings().device_memory;
  return orSuccess;
}

OPENREG_API orError_t orMallocHost(void** pointer, size_t size) {
  RETURN_IF_ERROR(EnterWork(__func__));
  return pointer != nullptr ? Memory::Get().AllocateHost(size, pointer)
                            : FailNull(__func__, "pointer");
}

OPENREG_API orError_t orFreeHost(void* pointer) {
  BEGIN_RELEASE();
  return pointer != nullptr ? Memory::Get().FreeHost(pointer) : orSuccess;
}

OPENREG_API orError_t orHostRegister(void* pointer, size_t size) {
  RETURN_IF_ERROR(EnterWork(__func__));
  return Memory::Get().Register(pointer, size);
}

OPENREG_API orError_t orHostUnregister(void* pointer) {
  BEGIN_RELEASE();
  return Memory::Get().Unregister(pointer);
}

OPENREG_API orError_t orPointerGetAttributes(orPointerAttributes* attributes, const void* pointer) {
  RETURN_IF_ERROR(EnterQuery(__func__));
  RETURN_IF_NULL(attributes);
  *attributes = {orMemoryTypeUnmanaged, -1, const_cast<void*>(pointer), nullptr, 0, 0};
  if (const auto block = Memory::Get().Find(pointer)) {
    attributes->type = block->type;
    attributes->device = block->device;
    attributes->base = reinterpret_cast<void*>(block->base);
    attributes->size = block->size;
  } else if (Memory::Get().IsDeviceAddress(pointer)) {
    return Fail(orErrorInvalidDevicePointer,
                "orPointerGetAttributes of %p: a device address outside of every live allocation",
                pointer);
  }
  return orSuccess;
}

}  // extern "C"
}  // namespace openreg::minimal
