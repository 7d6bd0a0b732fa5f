// SPDX-License-Identifier: BSD-3-Clause
//
// Reclaim - returns unused memory. A block returns to its pool when the other streams that used it
// have passed the point at which it was freed. A segment returns to the device when it holds no
// block in use. Memory used by streams that cannot be waited for is kept for now (KeptError).
//
// Threads. Any thread may call the functions that concern blocks. Only one thread at a time may
// call those that concern segments; it must be allowed to wait (Timeline::may_wait) and must hold
// no pool's lock.
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

// Thrown if memory is kept because the work that may use it cannot be waited for. Nothing has
// changed then.
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
  // All arguments must outlive this object. `observer` is null while there is no observer.
  Reclaim(PoolList* pools, PrivatePools* private_pools, StatsCollector* stats_collector,
          Source* source, Timeline* timeline, const std::atomic<Observer*>* observer)
      : pools_(pools),
        private_(private_pools),
        stats_collector_(stats_collector),
        source_(source),
        timeline_(timeline),
        observer_(observer) {}

  // Frees a block that other streams use, and unlocks its pool. May throw a kernel's error that was
  // found because a stream passed to record_stream() had been destroyed; the block is freed
  // nevertheless.
  void free_pending(Pool& pool, Block* block, PoolLock lock);

  // Frees the pool's pending blocks whose users have passed. May temporarily unlock the pool.
  void collect_pending(Pool& pool, PoolLock* lock);

  // Waits for the users of all pending blocks. Returns whether there were any. Throws only after it
  // has waited for all users that can be waited for.
  bool wait_for_pending();

  // Waits for the work of the streams that own segments without a block in use, and returns these
  // segments to the device. Covers the common memory and private pools without a use, or only the
  // private pool `id`. Returns false if there were no such segments.
  bool release_free_segments(PoolId id = kCommonPool);

  // Returns the remaining segments of private pools without a use, as far as this needs no wait: a
  // program that drops a pool must not have to wait or empty the cache.
  void release_ended_pools();

  // Returns the segments that have been unused longest, while more than the fraction `threshold` of
  // the device's memory is reserved. Called before a segment of `wanted` bytes is allocated.
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
