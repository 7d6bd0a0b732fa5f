// SPDX-License-Identifier: BSD-3-Clause
//
// PoolList - all pools of one allocator, including those of private pools, in order of creation.
// The list owns the pools; each pool lives as long as the list.
//
// Threads. Iteration needs no lock and is async-signal-safe; it visits the pools that exist at that
// time. Only one thread at a time may call add(). PoolList::Lock holds the locks of all pools. It
// guards the data that belongs to all pools, and no pool is added while it is held. Only this class
// locks several pools at the same time; the caller must not already hold a pool's lock.
#ifndef RUNTIME_ALLOCATOR_POOL_LIST_H_
#define RUNTIME_ALLOCATOR_POOL_LIST_H_

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/allocator/pool.h"
#include "runtime/allocator/usage.h"
#include "runtime/sync/spin_lock.h"

namespace openreg::allocator {

class PoolList {
 public:
  class Lock {
   public:
    explicit Lock(PoolList* list);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    friend class PoolList;
    const std::lock_guard<SpinLock> lock_;
    Pool* const first_;
    Pool* last_ = nullptr;
  };

  class Iterator {
   public:
    explicit Iterator(Pool* pool) : pool_(pool) {}
    Pool& operator*() const { return *pool_; }
    Iterator& operator++() {
      pool_ = pool_->next.load();
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    Pool* pool_;
  };
  Iterator begin() const { return Iterator(first_.load()); }
  static Iterator end() { return Iterator(nullptr); }

  // Adds a pool. `prepare` is called with the pool under the Lock, before other threads can see it.
  Pool& add(orStream_t stream, int device, const std::function<void(Pool&)>& prepare);

  // Returns the usage of each pool, indexed by Pool::index. Guarded by Lock.
  std::span<PoolUsage* const> usages() const { return usages_; }

 private:
  std::deque<Pool> pools_;
  std::atomic<Pool*> first_{nullptr};
  SpinLock lock_;
  std::vector<PoolUsage*> usages_;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_POOL_LIST_H_
