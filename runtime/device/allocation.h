// SPDX-License-Identifier: BSD-3-Clause
//
// allocation.h - the blocks that orMalloc gave and that were imported.
//
// Allocations is one object of the process, with one lock: a caching allocator stands above, so
// blocks come and go rarely. It is never destroyed, because blocks are freed until the very end of
// a process. The fault report finds blocks without the lock, in the LiveTable beside it.
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
  size_t size;      // as asked for: what bounds are checked against
  size_t reserved;  // as taken from the window
  int device;
  int live_slot;          // its place in the LiveTable
  Import* import;         // not null: it belongs to another process (imported_memory.h)
  bool exported = false;  // a part of it was exported once (exports.h)
};

// All live blocks, for a reader that cannot take a lock. Writers hold the lock of Allocations.
class LiveTable {
 public:
  struct Entry {
    uintptr_t base;
    size_t size;
  };
  int Add(uintptr_t base, size_t size);  // the slot, or -1 when no memory is left for the table
  void Remove(int slot);

  // The block that holds `address`. Async-signal-safe; a block which comes or goes at this very
  // moment may be missed.
  bool Find(uintptr_t address, Entry* entry) const;

 private:
  struct Slot {
    std::atomic<uintptr_t> base{0};  // 0: free
    std::atomic<size_t> size{0};
  };
  static constexpr int kChunk = 1024;
  static constexpr int kChunks = 4096;
  std::atomic<Slot*> chunks_[kChunks] = {};  // never freed
  std::atomic<int> size_{0};
  std::vector<int> free_;
};

class Allocations {
 public:
  static Allocations& Get();

  // Called once, when the arena exists.
  void SetUp();

  orError_t Allocate(int device, size_t size, void** pointer);
  orError_t Free(void* pointer);
  void FreeAll(int device);  // except imports
  orError_t Trim(int device, size_t* released);
  void Info(int device, size_t* free_bytes, size_t* capacity);

  // The block that holds `pointer`.
  bool Find(const void* pointer, Allocation* found);

  // For imported_memory.cc and shared_memory.cc; the functions that end with Locked need the lock.
  std::mutex& mutex() { return mutex_; }
  Allocation* FindLocked(uintptr_t address);
  uintptr_t TakeImportRangeLocked(size_t size, size_t alignment);
  void GiveImportRangeLocked(uintptr_t base, size_t size);
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
  std::vector<Allocation> kept_;  // freed here, still open in another process
  LiveTable live_table_;
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_ALLOCATION_H_
