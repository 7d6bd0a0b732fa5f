// SPDX-License-Identifier: BSD-3-Clause
//
// StatsCollector - the statistics of one allocator. It computes Stats (stats.h) from the counters
// of the allocator's pools (usage.h), the peaks over all pools, and events that belong to no pool.
//
// Threads. Any thread may call any function. The caller must not hold a pool's lock, except the one
// that it passes to unlock() or settle(). An allocation calls settle() only if its pool has
// exceeded its limits, and calls nothing else.
#ifndef RUNTIME_ALLOCATOR_STATS_COLLECTOR_H_
#define RUNTIME_ALLOCATOR_STATS_COLLECTOR_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "runtime/allocator/pool.h"
#include "runtime/allocator/pool_id.h"
#include "runtime/allocator/pool_list.h"
#include "runtime/allocator/stats.h"
#include "runtime/allocator/usage.h"

namespace openreg::allocator {

class StatsCollector {
 public:
  // `pools` must outlive this object.
  explicit StatsCollector(PoolList* pools) : pools_(pools) {}

  // Unlocks the pool after a change to its counters. If they have exceeded the pool's limits,
  // updates the peaks first.
  void unlock(Pool& pool, PoolType type, PoolLock lock) {
    if (pool.crossed(type)) [[unlikely]] {
      settle(pool, std::move(lock));
    }
  }
  void unlock(Pool& pool, PoolLock lock) {
    if (pool.crossed(kSmallPool) || pool.crossed(kLargePool)) {
      settle(pool, std::move(lock));
    }
  }
  void settle(Pool& pool, PoolLock lock);

  // Count events. Stats describes the counters.
  void retried() { add_one(&alloc_retries_); }
  void ran_out_of_memory() { add_one(&ooms_); }
  void waited_for_streams() { add_one(&stream_waits_); }
  void segment_allocated(const Pool& pool, PoolType type, size_t size);
  void segment_freed(const Pool& pool, PoolType type, size_t size);
  // Drops the statistics of private pools that have no segment and no longer exist.
  void drop_ended_pools(const std::function<bool(PoolId)>& exists);

  Stats stats();
  void reset_accumulated();
  void reset_peak();

 private:
  static void add_one(std::atomic<int64_t>* counter) {
    counter->fetch_add(1, std::memory_order_relaxed);
  }
  void count_private(const Pool& pool, PoolType type, int64_t bytes);
  void change_private_reserved(const std::function<void(Stat&)>& change);
  // Returns the sums over all pools since the start, without peaks. Requires the locks of all
  // pools.
  Stats totals() const;

  PoolList* const pools_;

  // Guarded by PoolList::Lock.
  Peaks peaks_;
  Stats base_;  // totals() at the time of the last reset_accumulated()

  // The reserved bytes of each private pool; see Stats::private_reserved.
  std::mutex private_reserved_lock_;
  std::map<PoolId, std::array<Stat, kPoolTypes>> private_reserved_;

  std::atomic<int64_t> alloc_retries_{0};
  std::atomic<int64_t> ooms_{0};
  std::atomic<int64_t> stream_waits_{0};
  std::atomic<int64_t> device_allocs_{0};
  std::atomic<int64_t> device_frees_{0};
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_STATS_COLLECTOR_H_
