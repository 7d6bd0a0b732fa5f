// SPDX-License-Identifier: BSD-3-Clause
//
// CachingAllocator - gives out the memory of one device: keeps what is freed and gives it to the
// next request on the same stream, without asking the device and without waiting for it.
//
// Layers, top down
//   CachingAllocator     finds the pool of a stream; grows pools
//   Reclaim, StatsCollector  give cached memory back to the device; the figures over all pools
//   PoolList             all pools; PoolMap: by stream; PrivatePools: those with an id
//   Pool                 one stream's memory: slabs of small blocks (44 size classes), and the
//                        blocks that other streams still use
//   Heap                 best fit over ranges of segments that split and join; small, large heap
//   Source, Timeline     the device: segments; how far streams have come
//
// Ownership. Blocks belong to the allocator; from allocate() to free() the caller uses them. A
// Block's address is valid for as long as the allocator. Source and Timeline belong to the caller
// and outlive it. The allocator must outlive all use of its memory, kernels included; a process
// usually never destroys it.
//
// Order. Memory freed on its stream is reused at once by that stream: work queued there earlier
// runs earlier. Other streams that use a block must be recorded by record_stream() before free():
// then the memory comes back only when those streams have passed the point at which they were at
// free(). Each stream is named by one handle; a null one would be a stream of its own.
//
// Threads. Every function may be called from every thread. allocate() and free() take one spin
// lock, of the stream's pool; no system call, no heap allocation. Growing and giving back (one
// mutex) may wait for streams and must not happen inside of a kernel or host callback. There a
// block that other streams use may be freed nevertheless; the next call of a thread that may wait
// marks those streams. Waiting leaves a kernel's error with its stream.
//
// Fork. In a child process allocate() throws Error(orErrorForked), free() and the rest do nothing.
#ifndef RUNTIME_ALLOCATOR_CACHING_ALLOCATOR_H_
#define RUNTIME_ALLOCATOR_CACHING_ALLOCATOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/allocator/block.h"
#include "runtime/allocator/error.h"
#include "runtime/allocator/observer.h"
#include "runtime/allocator/pool.h"
#include "runtime/allocator/pool_id.h"
#include "runtime/allocator/pool_list.h"
#include "runtime/allocator/pool_map.h"
#include "runtime/allocator/private_pool.h"
#include "runtime/allocator/reclaim.h"
#include "runtime/allocator/segment_description.h"
#include "runtime/allocator/settings.h"
#include "runtime/allocator/source.h"
#include "runtime/allocator/stats.h"
#include "runtime/allocator/stats_collector.h"
#include "runtime/allocator/timeline.h"

namespace openreg::allocator {

class OPENREG_API CachingAllocator {
 public:
  CachingAllocator(int device, Source* source, Timeline* timeline);
  ~CachingAllocator();  // gives all segments back, those of blocks in use included
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // A block of `bytes` bytes (at least 1), aligned to kAlignment, content undefined; never null.
  // Throws OutOfMemoryError when all cached memory was given up and the device still has no room.
  Block* allocate(size_t bytes, orStream_t stream);

  // Takes the block back. Throws Error when the block is not in use, or (rare) when a stream of
  // record_stream() was destroyed and waiting for the device instead brought up a kernel's error:
  // then the block is free nevertheless.
  void free(Block* block);

  // Work on `stream` uses the block too: see Order. Not needed for the block's own stream.
  void record_stream(Block* block, orStream_t stream);

  // The block's own stream, and those of record_stream().
  std::vector<orStream_t> streams_of(const Block* block) const;

  // Private pools, see private_pool.h. What `filter` accepts, asked with the stream on the
  // allocating thread, comes from pool `id` until end_allocate_to_pool(); other memory of the
  // pool's stays as it is. use_pool() and begin_allocate_to_pool() make the pool if there is none,
  // and count one use; release_pool() takes one back. The traits are those of the first use. While
  // a pool has a use, its segments stay, also those that are free: a captured graph goes on to use
  // their addresses. After that, segments without a block in use go back to the device by
  // themselves, when their stream has no work: at release_pool(), or when any pool takes a segment.
  // Throw Error for an id that does not fit.
  void use_pool(PoolId id, PoolTraits traits = {});
  void begin_allocate_to_pool(PoolId id, PrivatePools::Filter filter);
  void end_allocate_to_pool(PoolId id);
  void release_pool(PoolId id);
  bool pool_exists(PoolId id) const;   // has a use, or a segment
  int64_t pool_uses(PoolId id) const;  // 0 for a pool that does not exist

  // Gives all segments without a block in use back to the device, when the work of their streams is
  // done, and the device's free pages to the system: of the common memory and of private pools
  // without a use, or of the private pool `id` only, and nothing if that is in use. Keeps what a
  // captured stream may use, and throws Error after it has given the rest.
  void empty_cache(PoolId id = kCommonPool);

  // Take effect from the next allocation on; blocks that exist stay as they are.
  void set_settings(const Settings& settings);
  std::shared_ptr<const Settings> settings() const;

  // Every segment with its blocks, all of one moment.
  std::vector<SegmentDescription> segments();

  // What is called with each event from now on; null: nothing. Calls to an observer that was
  // replaced may still be under way.
  void set_observer(Observer* observer);

  Stats stats();
  void reset_accumulated();  // `allocated`, `freed` and the num_ figures count from now on
  void reset_peak();         // `peak` becomes `current`

  // Which block holds the byte at `pointer`. Async-signal-safe: takes no lock and allocates
  // nothing. While other threads allocate and free, the answer may be that of a moment ago.
  struct Description {
    const void* base;
    size_t size;  // as requested, if in use
    bool in_use;  // false: the block is in the cache
  };
  bool describe(const void* pointer, Description* description) const;

  int device() const { return device_; }

 private:
  // What allocations have to consider besides the cache. One word, so that they pay one load for
  // all of it while none is set.
  enum Mode : uint32_t {
    kRedirect = 1,  // some go to private pools
    kObserve = 2,   // there is an observer, which is called for frees, too
    kRound = 4,     // sizes are rounded up: Settings::divisions
  };

  Pool& pool_of(orStream_t stream) {
    Pool* pool = common_.find(stream);
    return pool != nullptr ? *pool : add_pool(stream);
  }
  Pool& add_pool(orStream_t stream);
  Pool& make_pool(orStream_t stream);
  Pool& private_pool_of(PoolId id, orStream_t stream);
  // Bytes that were asked for, and those after rounding by Settings::divisions.
  struct Size {
    size_t requested;
    size_t bytes;
  };
  static Size size_in(const Pool& pool, Size size);
  Block* allocate_in_mode(size_t bytes, orStream_t stream);
  Block* allocate_from(Pool& pool, Size size);

  void check_may_wait(const char* what) const;
  Block* allocate_slow(Pool& pool, Size size);
  Block* allocate_cached(Pool& pool, Size size);
  Block* allocate_from_last_resort(const Pool& pool, Size size);
  Block* grow(Pool& pool, Size size, std::string* reason);
  [[noreturn]] void throw_out_of_memory(const Pool& pool, size_t bytes, const std::string& reason);

  const int device_;
  Source* const source_;
  Timeline* const timeline_;

  // Null while nobody observes.
  Observer* observer() const {
    return (modes_.load(std::memory_order_relaxed) & kObserve) != 0
               ? observer_.load(std::memory_order_acquire)
               : nullptr;
  }

  std::atomic<uint32_t> modes_{0};
  std::atomic<Observer*> observer_{nullptr};
  PrivatePools private_;
  std::mutex redirecting_;  // begin and end of redirections, which set kRedirect

  // Growing, giving back and adding pools: one at a time. Taken before any pool's lock.
  std::mutex growth_;
  PoolList pools_;  // add() guarded by growth_
  PoolMap common_;  // the pools of common memory, by stream; insert() guarded by growth_
  StatsCollector stats_collector_{&pools_};
  Reclaim reclaim_;  // what concerns segments: guarded by growth_

  mutable std::mutex settings_lock_;
  std::shared_ptr<const Settings> settings_ = std::make_shared<const Settings>();
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_CACHING_ALLOCATOR_H_
