// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/stats_collector.h"

#include <algorithm>

namespace openreg::allocator {

void StatsCollector::settle(Pool& pool, PoolLock lock) {
  const PoolQuantities raised_to = current_of(pool.usage());
  if (pool.index == 0 && pool.next.load(std::memory_order_relaxed) == nullptr) {
    // There is only one pool, so `lock` already locks all pools.
    peaks_.settle(pools_->usages(), pool.index, raised_to);
    return;
  }
  lock.unlock();
  const PoolList::Lock all(pools_);
  peaks_.settle(pools_->usages(), pool.index, raised_to);
}

void StatsCollector::segment_allocated(const Pool& pool, PoolType type, size_t size) {
  add_one(&device_allocs_);
  count_private(pool, type, static_cast<int64_t>(size));
}

void StatsCollector::segment_freed(const Pool& pool, PoolType type, size_t size) {
  add_one(&device_frees_);
  count_private(pool, type, -static_cast<int64_t>(size));
}

void StatsCollector::count_private(const Pool& pool, PoolType type, int64_t bytes) {
  if (pool.id == kCommonPool) {
    return;
  }
  const std::lock_guard lock(private_reserved_lock_);
  auto& stats = private_reserved_[pool.id];
  for (const PoolType counted : {type, kAggregate}) {
    Stat& stat = stats[counted];
    stat.current += bytes;
    stat.peak = std::max(stat.peak, stat.current);
    (bytes > 0 ? stat.allocated : stat.freed) += bytes > 0 ? bytes : -bytes;
  }
}

void StatsCollector::drop_ended_pools(const std::function<bool(PoolId)>& exists) {
  const std::lock_guard lock(private_reserved_lock_);
  std::erase_if(private_reserved_, [&exists](const auto& entry) {
    return entry.second[kAggregate].current == 0 && !exists(entry.first);
  });
}

Stats StatsCollector::stats() {
  const PoolList::Lock all(pools_);
  peaks_.raise(pools_->usages());
  Stats stats = totals();
  for (size_t quantity = 0; quantity < kQuantities; ++quantity) {
    for (const PoolType type : {kAggregate, kSmallPool, kLargePool}) {
      Stat& stat = stats.stat[quantity][type];
      stat.peak = peaks_.peak(static_cast<Quantity>(quantity), type);
      stat.allocated -= base_.stat[quantity][type].allocated;
      stat.freed -= base_.stat[quantity][type].freed;
    }
  }
  stats.num_alloc_retries -= base_.num_alloc_retries;
  stats.num_ooms -= base_.num_ooms;
  stats.num_sync_all_streams -= base_.num_sync_all_streams;
  stats.num_device_alloc -= base_.num_device_alloc;
  stats.num_device_free -= base_.num_device_free;
  const std::lock_guard lock(private_reserved_lock_);
  stats.private_reserved = private_reserved_;
  return stats;
}

Stats StatsCollector::totals() const {
  Stats totals;
  for (const PoolUsage* usage : pools_->usages()) {
    for (const PoolType type : {kSmallPool, kLargePool}) {
      const auto counters = (*usage)[usage_index(type)].counters();
      for (size_t quantity = 0; quantity < kQuantities; ++quantity) {
        for (const PoolType counted : {type, kAggregate}) {
          Stat& stat = totals.stat[quantity][counted];
          stat.current += counters[quantity].current();
          stat.allocated += counters[quantity].up;
          stat.freed += counters[quantity].down;
        }
      }
    }
  }
  totals.num_alloc_retries = alloc_retries_.load(std::memory_order_relaxed);
  totals.num_ooms = ooms_.load(std::memory_order_relaxed);
  totals.num_sync_all_streams = stream_waits_.load(std::memory_order_relaxed);
  totals.num_device_alloc = device_allocs_.load(std::memory_order_relaxed);
  totals.num_device_free = device_frees_.load(std::memory_order_relaxed);
  return totals;
}

void StatsCollector::change_private_reserved(const std::function<void(Stat&)>& change) {
  const std::lock_guard lock(private_reserved_lock_);
  for (auto& [id, stats] : private_reserved_) {
    std::ranges::for_each(stats, change);
  }
}

void StatsCollector::reset_accumulated() {
  const PoolList::Lock all(pools_);
  base_ = totals();
  change_private_reserved([](Stat& stat) {
    stat.allocated = 0;
    stat.freed = 0;
  });
}

void StatsCollector::reset_peak() {
  const PoolList::Lock all(pools_);
  peaks_.reset(pools_->usages());
  change_private_reserved([](Stat& stat) { stat.peak = stat.current; });
}

}  // namespace openreg::allocator
