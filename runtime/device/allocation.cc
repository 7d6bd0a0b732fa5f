// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/allocation.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "runtime/device/arena.h"
#include "runtime/device/error.h"
#include "runtime/device/exports.h"
#include "runtime/device/imported_file.h"
#include "runtime/device/injected_fault.h"
#include "runtime/device/process.h"

namespace openreg::device {

int LiveTable::Add(uintptr_t base, size_t size) {
  int slot;
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
  } else {
    slot = size_.load(std::memory_order_relaxed);
    if (slot == kChunk * kChunks) {
      return -1;
    }
    std::atomic<Slot*>& chunk = chunks_[slot / kChunk];
    if (chunk.load(std::memory_order_relaxed) == nullptr) {
      // Chunks are never freed: a signal handler may read them at any time.
      Slot* slots = new (std::nothrow) Slot[kChunk];
      if (slots == nullptr) {
        return -1;
      }
      chunk.store(slots, std::memory_order_release);
    }
    size_.store(slot + 1, std::memory_order_release);
  }
  Slot& entry = chunks_[slot / kChunk].load(std::memory_order_relaxed)[slot % kChunk];
  entry.size.store(size, std::memory_order_relaxed);
  entry.base.store(base, std::memory_order_release);
  return slot;
}

void LiveTable::Remove(int slot) {
  chunks_[slot / kChunk].load(std::memory_order_relaxed)[slot % kChunk].base.store(
      0, std::memory_order_release);
  free_.push_back(slot);
}

bool LiveTable::Find(uintptr_t address, Entry* entry) const {
  const int size = size_.load(std::memory_order_acquire);
  for (int slot = 0; slot < size; ++slot) {
    const Slot& candidate = chunks_[slot / kChunk].load(std::memory_order_acquire)[slot % kChunk];
    const uintptr_t base = candidate.base.load(std::memory_order_acquire);
    const size_t length = candidate.size.load(std::memory_order_relaxed);
    if (base != 0 && address - base < length) {
      *entry = {base, length};
      return true;
    }
  }
  return false;
}

Allocations& Allocations::Get() {
  // Never destroyed, because destructors of other libraries may free memory very late.
  static Allocations& allocations = *new Allocations;
  return allocations;
}

void Allocations::SetUp() {
  std::lock_guard lock(mutex_);
  for (int device = 0; device < arena.device_count(); ++device) {
    free_[device].Free(arena.device(device).base, arena.device(device).size);
  }
  free_imports_.Free(arena.imports().base, arena.imports().size);
}

orError_t Allocations::Allocate(int device, size_t size, void** pointer) {
  *pointer = nullptr;
  if (size == 0) {
    return orSuccess;
  }
  const size_t capacity = arena.device(device).size;
  auto refuse = [&](size_t used, size_t largest) {
    return Fail(orErrorOutOfMemory,
                "orMalloc of %s (%zu bytes) on device %d: %s of %s are free, and the largest free "
                "range has %s; "
                "free memory or raise OPENREG_DEVICE_MEMORY",
                ByteText(size).c_str(), size, device, ByteText(capacity - used).c_str(),
                ByteText(capacity).c_str(), ByteText(largest).c_str());
  };
  if (MallocFaultDue()) {
    return Fail(orErrorOutOfMemory,
                "orMalloc of %zu bytes on device %d: failure injected by a test", size, device);
  }
  std::lock_guard lock(mutex_);
  if (size > capacity) {  // checked first, because rounding up `size` could overflow
    return refuse(used_[device], free_[device].largest());
  }
  const size_t reserved = RoundUp(size, kPage);
  const size_t alignment = reserved >= kLargePage ? kLargePage : kPage;
  uintptr_t base = free_[device].Allocate(reserved, alignment);
  if (base == 0) {
    CollectLocked(device);
    base = free_[device].Allocate(reserved, alignment);
  }
  if (base == 0 && alignment != kPage) {
    base = free_[device].Allocate(reserved, kPage);  // large pages are only a preference
  }
  if (base == 0) {
    return refuse(used_[device], free_[device].largest());
  }
  used_[device] += reserved;
  if (!AddLocked({base, size, reserved, device, -1, nullptr})) {
    used_[device] -= reserved;
    free_[device].Free(base, reserved);
    return Fail(orErrorSystem, "orMalloc: out of host memory for the allocation table");
  }
  *pointer = reinterpret_cast<void*>(base);
  return orSuccess;
}

bool Allocations::AddLocked(Allocation allocation) {
  allocation.live_slot = live_table_.Add(allocation.base, allocation.size);
  if (allocation.live_slot < 0) {
    return false;
  }
  live_.emplace(allocation.base, allocation);
  return true;
}

void Allocations::RemoveLocked(const Allocation& allocation) {
  live_table_.Remove(allocation.live_slot);
  live_.erase(allocation.base);  // must be last, because it may destroy `allocation`
}

Allocation* Allocations::FindLocked(uintptr_t address) {
  auto next = live_.upper_bound(address);
  if (next == live_.begin()) {
    return nullptr;
  }
  Allocation& candidate = std::prev(next)->second;
  return address - candidate.base < candidate.size ? &candidate : nullptr;
}

bool Allocations::Find(const void* pointer, Allocation* found) {
  std::lock_guard lock(mutex_);
  const Allocation* allocation = FindLocked(reinterpret_cast<uintptr_t>(pointer));
  if (allocation == nullptr) {
    return false;
  }
  *found = *allocation;
  return true;
}

orError_t Allocations::Free(void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  std::lock_guard lock(mutex_);
  const Allocation* found = FindLocked(address);
  if (found == nullptr) {
    return Fail(orErrorInvalidDevicePointer,
                "orFree: %p is %s; pass a pointer from orMalloc that has not been freed", pointer,
                IsReady() && arena.Contains(pointer)
                    ? "a device address that is not inside any live allocation"
                    : "not a device address");
  }
  if (found->import != nullptr) {
    return Fail(orErrorInvalidDevicePointer,
                "orFree: %p belongs to another process; use orIpcRelease", pointer);
  }
  if (found->base != address) {
    return Fail(orErrorInvalidDevicePointer,
                "orFree: %p points %zu bytes into the allocation %p of %zu bytes; pass the "
                "allocation's "
                "start address",
                pointer, address - found->base, reinterpret_cast<void*>(found->base), found->size);
  }
  const Allocation allocation = *found;
  RemoveLocked(allocation);
  ReleaseLocked(allocation);
  return orSuccess;
}

void Allocations::ReleaseLocked(const Allocation& allocation) {
  if (allocation.exported) {
    RetractExports(allocation.base, allocation.size);
    if (IsLockedElsewhere(allocation.device, allocation.base, allocation.reserved)) {
      kept_.push_back(allocation);
      return;
    }
  }
  used_[allocation.device] -= allocation.reserved;
  free_[allocation.device].Free(allocation.base, allocation.reserved);
}

void Allocations::CollectLocked(int device) {
  std::erase_if(kept_, [&](const Allocation& allocation) {
    if (allocation.device != device ||
        IsLockedElsewhere(device, allocation.base, allocation.reserved)) {
      return false;
    }
    used_[device] -= allocation.reserved;
    free_[device].Free(allocation.base, allocation.reserved);
    return true;
  });
}

void Allocations::FreeAll(int device) {
  std::lock_guard lock(mutex_);
  std::vector<Allocation> owned;
  for (const auto& [base, allocation] : live_) {
    if (allocation.device == device && allocation.import == nullptr) {
      owned.push_back(allocation);
    }
  }
  for (const Allocation& allocation : owned) {
    RemoveLocked(allocation);
    ReleaseLocked(allocation);
  }
  CollectLocked(device);
}

orError_t Allocations::Trim(int device, size_t* released) {
  std::lock_guard lock(mutex_);
  CollectLocked(device);
  struct stat before {
  }, after{};
  fstat(arena.file(device), &before);
  for (const auto& [base, size] : free_[device].ranges()) {
    if (!arena.PunchHole(device, base, size)) {
      return Fail(orErrorSystem, "orMemTrim of device %d: fallocate failed: %s", device,
                  std::strerror(errno));
    }
  }
  fstat(arena.file(device), &after);
  if (released != nullptr) {
    // The difference can be negative, because kernels of this process may concurrently write to
    // other pages.
    *released =
        static_cast<size_t>(std::max<blkcnt_t>(before.st_blocks - after.st_blocks, 0)) * 512;
  }
  return orSuccess;
}

void Allocations::Info(int device, size_t* free_bytes, size_t* capacity) {
  std::lock_guard lock(mutex_);
  CollectLocked(device);
  *capacity = arena.device(device).size;
  *free_bytes = *capacity - used_[device];
}

std::vector<Allocation> Allocations::ImportsLocked(int device) const {
  std::vector<Allocation> imports;
  for (const auto& [base, allocation] : live_) {
    if (allocation.import != nullptr && allocation.device == device) {
      imports.push_back(allocation);
    }
  }
  return imports;
}

uintptr_t Allocations::AllocateImportRangeLocked(size_t size, size_t alignment) {
  return free_imports_.Allocate(size, alignment);
}

void Allocations::FreeImportRangeLocked(uintptr_t base, size_t size) {
  free_imports_.Free(base, size);
}

}  // namespace openreg::device
