// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/host_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "runtime/device/arena.h"
#include "runtime/device/error.h"

namespace openreg::device {

HostMemory& HostMemory::Get() {
  static HostMemory& memory = *new HostMemory;  // never destroyed, like Allocations
  return memory;
}

const HostBlock* HostMemory::FindLocked(uintptr_t address) const {
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) {
    return nullptr;
  }
  const HostBlock& candidate = std::prev(next)->second;
  return address - candidate.base < candidate.size ? &candidate : nullptr;
}

bool HostMemory::Find(const void* pointer, HostBlock* found) {
  std::lock_guard lock(mutex_);
  const HostBlock* block = FindLocked(reinterpret_cast<uintptr_t>(pointer));
  if (block == nullptr) {
    return false;
  }
  *found = *block;
  return true;
}

orError_t HostMemory::Allocate(size_t size, void** pointer) {
  *pointer = nullptr;
  if (size == 0) {
    return orSuccess;
  }
  if (size > std::numeric_limits<ptrdiff_t>::max()) {
    return Fail(orErrorOutOfMemory, "orMallocHost of %zu bytes: the size exceeds the address space",
                size);
  }
  // Allocate whole pages, so that no other object shares them. If the size permits, align the
  // memory for large pages.
  const size_t alignment = size >= kLargePage ? kLargePage : kPage;
  const size_t reserved = RoundUp(size, alignment);
  void* memory = std::aligned_alloc(alignment, reserved);
  if (memory == nullptr) {
    return Fail(orErrorOutOfMemory, "orMallocHost of %s: out of host memory (%s)",
                ByteText(size).c_str(), std::strerror(errno));
  }
  if (alignment == kLargePage) {
    madvise(memory, reserved, MADV_HUGEPAGE);  // only a preference, so errors are ignored
  }
  std::lock_guard lock(mutex_);
  const auto base = reinterpret_cast<uintptr_t>(memory);
  blocks_[base] = {base, size, true};
  *pointer = memory;
  return orSuccess;
}

orError_t HostMemory::Free(void* pointer) {
  {
    std::lock_guard lock(mutex_);
    auto found = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == blocks_.end() || !found->second.owned) {
      return Fail(orErrorInvalidValue,
                  "orFreeHost: %p was not returned by orMallocHost or was already freed", pointer);
    }
    blocks_.erase(found);
  }
  std::free(pointer);
  return orSuccess;
}

orError_t HostMemory::Register(void* pointer, size_t size) {
  const auto base = reinterpret_cast<uintptr_t>(pointer);
  if (pointer == nullptr || size == 0 || base + size < base) {
    return Fail(orErrorInvalidValue,
                "orHostRegister: %zu bytes at %p are not a valid range of host memory", size,
                pointer);
  }
  const Window& half = arena.half();
  if (base < half.base + 2 * half.size && half.base < base + size) {
    return Fail(orErrorInvalidValue, "orHostRegister: %p is device memory, which cannot be pinned",
                pointer);
  }
  std::lock_guard lock(mutex_);
  auto next = blocks_.upper_bound(base);
  const bool overlaps =
      FindLocked(base) != nullptr || (next != blocks_.end() && next->first < base + size);
  if (overlaps) {
    return Fail(orErrorAlreadyRegistered,
                "orHostRegister of %zu bytes at %p: a part of this range is already pinned", size,
                pointer);
  }
  blocks_[base] = {base, size, false};
  return orSuccess;
}

orError_t HostMemory::Unregister(void* pointer) {
  std::lock_guard lock(mutex_);
  auto found = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == blocks_.end() || found->second.owned) {
    return Fail(orErrorNotRegistered,
                "orHostUnregister: %p is not the start of memory that orHostRegister pinned",
                pointer);
  }
  blocks_.erase(found);
  return orSuccess;
}

}  // namespace openreg::device
