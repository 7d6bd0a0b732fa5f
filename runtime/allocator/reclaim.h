// SPDX-License-Identifier: BSD-3-Clause
//
// Reclaim - returns unused memory. A block returns to its pool when the other streams that used it
// have passed the point at which it was freed. A segment returns to the device when it contains no
// block in use. Memory used by a stream that cannot be waited for is kept for now (KeptError).
//
// Threads. Any thread may call the functions for blocks. Only one thread at a time may call the
// functions for segments; this thread must be allowed to wait (Timeline::may_wait) and must not
// hold a pool's lock.
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

// Thrown if memory is kept because the caller cannot wait for the work that may use it. In this
// case, nothing has changed.
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
  // All arguments must outlive this object. `*observer` is null while there is no observer.
  Reclaim(PoolList* pools, PrivatePools* private_pools, StatsCollector* stats_collector,
          Source* source, Timeline* timeline, const std::atomic<Observer*>* observer)
      : pools_(pools),
        private_(private_pools),
        stats_collector_(stats_collector),
        source_(source),
        timeline_(timeline),
        observer_(observer) {}

  // Frees a block that other streams use, and unlocks its pool. May throw a kernel's error, but
  // frees the block nevertheless. This happens if a stream passed to record_stream() was destroyed
  // and the wait that replaces its mark returned the error.
  void free_pending(Pool& pool, Block* block, PoolLock lock);

  // Frees the pending blocks of the pool whose users have passed. May temporarily unlock the pool.
  void collect_pending(Pool& pool, PoolLock* lock);

  // Waits for the users of all pending blocks. Returns whether there were any. If it throws, it has
  // first waited for all users that it can wait for.
  bool wait_for_pending();

  // Waits for the work of the streams that own segments without a block in use, and returns these
  // segments to the device. Applies to the common memory and to private pools without a use. If
  // `id` is a private pool, applies only to that pool. Returns false if there were no such
  // segments.
  bool release_free_segments(PoolId id = kCommonPool);

  // Returns the remaining segments of private pools without a use, unless this needs a wait. A
  // program that drops a pool therefore need not wait or empty the cache.
  void release_ended_pools();

  // Called before a segment of `wanted` bytes is allocated. Returns the segments that have been
  // unused longest, until the reserved memory plus `wanted` is at most the fraction `threshold` of
  // the memory that the allocator may reserve.
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
