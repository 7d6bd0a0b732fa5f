// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/reclaim.h"

#include <algorithm>
#include <list>
#include <set>
#include <utility>
#include <vector>

namespace openreg::allocator {

void Reclaim::free_pending(Pool& pool, Block* block, PoolLock lock) {
  pool.suspend(block);
  const bool deferred = !timeline_->may_wait();
  if (deferred) {
    pool.defer(block);
  }
  stats_collector_->unlock(pool, block->type, std::move(lock));
  if (deferred) {
    return;
  }
  if (const std::exception_ptr error = await_users(pool, block); error != nullptr) {
    std::rethrow_exception(error);
  }
}

// Makes a pending block wait for its current users. If making a mark raises an error, returns that
// error. The pool must not be locked, because making a mark may wait for room in a stream's queue.
// This is safe: no other thread touches a pending block before the block waits for a mark.
std::exception_ptr Reclaim::await_users(Pool& pool, Block* block) {
  std::vector<std::pair<orStream_t, Mark>> marks;
  std::exception_ptr error;
  for (orStream_t stream : block->users) {
    try {
      if (const Mark mark = timeline_->mark(stream); mark != kNoMark) {
        marks.emplace_back(stream, mark);
      }
    } catch (...) {
      error = std::current_exception();
    }
  }
  PoolLock lock(pool.lock);
  block->users.resize(marks.size());
  if (marks.empty()) {
    pool.resume(block, observer());
  }
  for (const auto& [stream, mark] : marks) {
    pool.await(stream, mark, block);
  }
  stats_collector_->unlock(pool, std::move(lock));
  return error;
}

// Handles blocks that were freed on a thread that cannot make marks: makes them wait for their
// users. Temporarily unlocks the pool.
void Reclaim::mark_deferred(Pool& pool, PoolLock* lock) {
  if (!pool.has_deferred() || !timeline_->may_wait()) {
    return;
  }
  const std::vector<Block*> blocks = pool.take_deferred();
  lock->unlock();
  std::exception_ptr error;
  for (Block* block : blocks) {
    if (const std::exception_ptr brought_up = await_users(pool, block); brought_up != nullptr) {
      error = brought_up;
    }
  }
  lock->lock();
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
}

void Reclaim::collect_pending(Pool& pool, PoolLock* lock) {
  mark_deferred(pool, lock);
  pool.collect(timeline_, observer());
}

bool Reclaim::wait_for_pending() {
  bool waited = false;
  std::exception_ptr error;
  for (Pool& pool : *pools_) {
    PoolLock lock(pool.lock);
    mark_deferred(pool, &lock);
    const std::vector<orStream_t> streams = pool.awaited_streams();
    lock.unlock();
    for (orStream_t stream : streams) {
      const OwnedMark mark(timeline_, timeline_->mark(stream));
      try {
        mark.wait();
      } catch (const Error& reason) {
        error = std::make_exception_ptr(KeptError(reason));
      }
      waited = true;
    }
  }
  if (waited) {
    stats_collector_->waited_for_streams();
  }
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
  return waited;
}

// Returns the pool's free segments that `accept` accepts to the device. Returns whether there were
// any. Throws a kernel's error only after the segments have been returned. Throws KeptError if the
// segments were not returned.
bool Reclaim::release(Pool& pool, const std::function<bool(const Segment&)>& accept) {
  std::list<Segment> segments;
  {
    PoolLock lock(pool.lock);
    collect_pending(pool, &lock);
    pool.detach_free_segments(&segments, accept);
    stats_collector_->unlock(pool, std::move(lock));
  }
  if (segments.empty()) {
    return false;
  }
  // Wait for the work of the pool's stream. A block is free for its own stream before that work is
  // done, but not for other streams.
  std::exception_ptr error;
  OwnedMark mark;
  try {
    mark = OwnedMark(timeline_, timeline_->mark(pool.stream()));
  } catch (...) {
    error = std::current_exception();  // mark() has already waited for all devices
  }
  try {
    mark.wait();
  } catch (const Error& reason) {
    PoolLock lock(pool.lock);
    for (const Segment& segment : segments) {
      pool.add_segment(segment.type, segment.base, segment.size);
    }
    stats_collector_->unlock(pool, std::move(lock));
    throw KeptError(reason);
  }
  for (const Segment& segment : segments) {
    if (Observer* observer = this->observer(); observer != nullptr) {
      observer->observe(segment_event(Action::kSegmentFree, segment.base, segment.size, pool));
    }
    source_->free(segment.base, segment.size);
    stats_collector_->segment_freed(pool, segment.type, segment.size);
  }
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
  return true;
}

bool Reclaim::release_free_segments(PoolId id) {
  bool released = false;
  std::exception_ptr error;
  // A pool that has lost its last use never gets a new one, so this set cannot become outdated.
  const std::set<PoolId> in_use = private_->in_use();
  for (Pool& pool : *pools_) {
    // The id cannot change now: either the pool has segments, or no other thread can allocate one.
    if ((id != kCommonPool && pool.id != id) || in_use.contains(pool.id)) {
      continue;
    }
    try {
      released = release(pool, [](const Segment&) { return true; }) || released;
    } catch (const KeptError&) {
      error = error != nullptr ? error : std::current_exception();
    } catch (...) {
      error = std::current_exception();  // release() has already waited for the work
    }
  }
  end_unused_pools();
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
  return released;
}

void Reclaim::release_ended_pools() {
  const std::set<PoolId> ended = private_->without_use();
  if (ended.empty()) {
    return;
  }
  for (Pool& pool : *pools_) {
    try {
      if (ended.contains(pool.id) && is_idle(pool.stream())) {
        release(pool, [](const Segment&) { return true; });
      }
    } catch (const KeptError&) {
      continue;  // a later call tries again
    }
  }
  end_unused_pools();
}

bool Reclaim::is_idle(orStream_t stream) {
  const Mark mark = timeline_->mark(stream);
  if (mark == kNoMark) {
    return true;
  }
  const bool idle = timeline_->passed(mark);
  timeline_->drop(mark);
  return idle;
}

void Reclaim::end_unused_pools() {
  private_->end_unused();
  stats_collector_->drop_ended_pools([this](PoolId id) { return private_->exists(id); });
}

void Reclaim::collect_garbage(size_t wanted, double threshold) {
  if (threshold <= 0) {
    return;
  }
  struct Candidate {
    uint64_t idle;
    Pool* pool;
    void* base;
    size_t size;
  };
  std::vector<Candidate> candidates;
  size_t reserved = 0;
  const std::set<PoolId> in_use = private_->in_use();
  for (Pool& pool : *pools_) {
    const std::lock_guard lock(pool.lock);
    pool.grow_older();
    for (const PoolType type : {kSmallPool, kLargePool}) {
      for (const Segment& segment : pool.segments(type)) {
        reserved += segment.size;
        if (segment.uses == 0 && !in_use.contains(pool.id)) {
          candidates.push_back({segment.idle, &pool, segment.base, segment.size});
        }
      }
    }
  }
  const Source::Room room = source_->room();
  const auto allowed =
      static_cast<size_t>(threshold * static_cast<double>(std::min(room.limit, room.total)));
  std::ranges::sort(candidates, std::ranges::greater(), &Candidate::idle);
  for (const Candidate& candidate : candidates) {
    if (reserved + wanted <= allowed) {
      break;
    }
    // release() returns the segment only if no other thread has started to use it.
    try {
      if (release(*candidate.pool,
                  [&](const Segment& segment) { return segment.base == candidate.base; })) {
        reserved -= candidate.size;
      }
    } catch (const KeptError&) {
      continue;  // other segments may still be returned
    }
  }
  end_unused_pools();
}

}  // namespace openreg::allocator
