// SPDX-License-Identifier: BSD-3-Clause
//
// allocation.h - the live blocks of device memory: those from orMalloc and imported ones.
//
// Each process has one Allocations object, with one lock. Blocks are allocated and freed rarely,
// because their user is a caching allocator. The object is never destroyed, because blocks may be
// freed until the process ends. The fault report finds blocks in the LiveTable without the lock.
#ifndef RUNTIME_DEVICE_ALLOCATION_H_
#define RUNTIME_DEVICE_ALLOCATION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/device/address_ranges.h"
#include "runtime/device/openreg.h"

namespace openreg::device {

struct Import;

struct Allocation {
  uintptr_t base;
  size_t size;      // the requested size, for bounds checks
  size_t reserved;  // the size that is reserved in the window
  int device;
  int live_slot;          // index in the LiveTable
  Import* import;         // null, unless another process owns the memory (imported_memory.h)
  bool exported = false;  // whether any part of it was ever exported (exports.h)
};

// A table of all live blocks for the fault report, which cannot acquire a lock. Writers must hold
// the lock of Allocations.
class LiveTable {
 public:
  struct Entry {
    uintptr_t base;
    size_t size;
  };
  int Add(uintptr_t base, size_t size);  // returns the slot, or -1 if the table cannot grow
  void Remove(int slot);

  // Finds the block that contains `address`. Returns false if there is none. May miss a block that
  // another thread is adding or removing. Async-signal-safe.
  bool Find(uintptr_t address, Entry* entry) const;

 private:
  struct Slot {
    std::atomic<uintptr_t> base{0};  // 0 if the slot is free
    std::atomic<size_t> size{0};
  };
  static constexpr int kChunk = 1024;
  static constexpr int kChunks = 4096;
  std::atomic<Slot*> chunks_[kChunks] = {};  // chunks are never freed
  std::atomic<int> size_{0};
  std::vector<int> free_;
};

class Allocations {
 public:
  static Allocations& Get();

  // Adds the addresses of the arena to the free ranges. Must be called once, after the arena has
  // been reserved.
  void SetUp();

  orError_t Allocate(int device, size_t size, void** pointer);
  orError_t Free(void* pointer);
  void FreeAll(int device);  // frees all blocks except imports
  orError_t Trim(int device, size_t* released);
  void Info(int device, size_t* free_bytes, size_t* capacity);

  // Finds the block that contains `pointer`. Returns false if there is no such block.
  bool Find(const void* pointer, Allocation* found);

  // The following functions are for imported_memory.cc and shared_memory.cc. The caller of a
  // function whose name ends with Locked must hold the lock.
  std::mutex& mutex() { return mutex_; }
  Allocation* FindLocked(uintptr_t address);
  uintptr_t AllocateImportRangeLocked(size_t size, size_t alignment);
  void FreeImportRangeLocked(uintptr_t base, size_t size);
  std::vector<Allocation> ImportsLocked(int device) const;
  bool AddLocked(Allocation allocation);
  void RemoveLocked(const Allocation& allocation);

  const LiveTable& live_table() const { return live_table_; }

 private:
  void ReleaseLocked(const Allocation& allocation);
  void CollectLocked(int device);

  std::mutex mutex_;
  std::map<uintptr_t, Allocation> live_;
  AddressRanges free_[OPENREG_MAX_DEVICES];
  AddressRanges free_imports_;
  size_t used_[OPENREG_MAX_DEVICES] = {};
  std::vector<Allocation> kept_;  // blocks that this process freed but another process still maps
  LiveTable live_table_;
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_ALLOCATION_H_
