// SPDX-License-Identifier: BSD-3-Clause
//
// Reclaim - how memory comes back that is not in use: to its pool, when the other streams that used
// a block have passed the point at which it was freed; and to the device, when a segment holds no
// block in use. What may be kept for now is kept where its streams cannot be waited for
// (KeptError).
//
// Threads: the functions about blocks may be called from every thread. Those about segments are
// called by one thread at a time, which may wait (Timeline::may_wait) and holds no pool's lock.
#ifndef RUNTIME_ALLOCATOR_RECLAIM_H_
#define RUNTIME_ALLOCATOR_RECLAIM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>

#include "runtime/allocator/error.h"
#include "runtime/allocator/observer.h"
#include "runtime/allocator/pool.h"
#include "runtime/allocator/pool_id.h"
#include "runtime/allocator/pool_list.h"
#include "runtime/allocator/private_pool.h"
#include "runtime/allocator/source.h"
#include "runtime/allocator/stats_collector.h"
#include "runtime/allocator/timeline.h"

namespace openreg::allocator {

// Thrown when memory is kept because work that may use it cannot be waited for: it stays as it was.
class KeptError : public Error {
 public:
  explicit KeptError(const Error& reason) : Error(reason.code(), reason.what()) {}
};

inline Event segment_event(Action action, const void* base, size_t size, const Pool& pool) {
  return {.action = action,
          .address = reinterpret_cast<uintptr_t>(base),
          .size = size,
          .stream = pool.stream(),
          .pool = pool.id};
}

class Reclaim {
 public:
  // All of it outlives this. `observer` is null while nobody observes.
  Reclaim(PoolList* pools, PrivatePools* private_pools, StatsCollector* stats_collector,
          Source* source, Timeline* timeline, const std::atomic<Observer*>* observer)
      : pools_(pools),
        private_(private_pools),
        stats_collector_(stats_collector),
        source_(source),
        timeline_(timeline),
        observer_(observer) {}

  // Takes back a block that other streams use, and unlocks its pool. Throws the error of a kernel
  // that came up when a stream of record_stream() was destroyed: the block is free nevertheless.
  void free_pending(Pool& pool, Block* block, PoolLock lock);

  // Takes the pool's pending blocks back whose users have passed. May unlock the pool meanwhile.
  void collect_pending(Pool& pool, PoolLock* lock);

  // Waits for the users of all pending blocks. Whether there were any; throws after it has waited
  // for all that can be.
  bool wait_for_pending();

  // Gives all segments without a block in use back to the device, when the work of their streams is
  // done: of the common memory and of private pools without a use, or of the private pool `id`
  // only. Whether there were any.
  bool release_free_segments(PoolId id = kCommonPool);

  // What is left of private pools without a use, as far as that needs no wait: a program that drops
  // a pool must not wait, and must not have to empty the cache.
  void release_ended_pools();

  // Before a segment of `wanted` bytes is taken: gives back what has not been used for longest, as
  // long as more than the part `threshold` of the device's memory is reserved.
  void collect_garbage(size_t wanted, double threshold);

 private:
  void mark_deferred(Pool& pool, PoolLock* lock);
  std::exception_ptr await_users(Pool& pool, Block* block);
  bool release(Pool& pool, const std::function<bool(const Segment&)>& accept);
  bool is_idle(orStream_t stream);
  void end_unused_pools();

  Observer* observer() const { return observer_->load(std::memory_order_acquire); }

  PoolList* const pools_;
  PrivatePools* const private_;
  StatsCollector* const stats_collector_;
  Source* const source_;
  Timeline* const timeline_;
  const std::atomic<Observer*>* const observer_;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_RECLAIM_H_
