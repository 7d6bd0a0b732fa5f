// SPDX-License-Identifier: BSD-3-Clause
//
// CachingAllocator - allocates the memory of one device. It keeps freed memory and reuses it for
// the next request on the same stream, without a driver call and without waiting for the device.
//
// Layers, top down:
//   CachingAllocator  finds the pool of a stream, and grows pools
//   Reclaim           returns cached memory to the device
//   StatsCollector    computes statistics over all pools
//   PoolList          contains all pools; PoolMap and PrivatePools find a pool by stream or by id
//   Pool              manages one stream's memory: slabs of small blocks (44 size classes), and
//                     blocks that other streams still use
//   Heap              allocates ranges of segments (best fit) with splitting and merging; each pool
//                     has one small and one large heap
//   Source            provides segments of device memory
//   Timeline          reports the progress of streams
//
// Ownership. Blocks belong to the allocator; the caller uses them from allocate() to free(). The
// address of a Block is valid as long as the allocator. Source and Timeline belong to the caller
// and must outlive the allocator. The allocator must outlive all use of its memory, including use
// by kernels; a process usually never destroys it.
//
// Order. Memory that is freed on its stream can be reused by that stream immediately, because work
// queued there earlier runs earlier. Other streams that use a block must be recorded with
// record_stream() before free(). The memory is then reused only after those streams have passed the
// point they had reached at free(). Each stream must be identified by one handle; a null handle
// would count as a separate stream.
//
// Threads. Any thread may call any function. allocate() and free() each acquire one spin lock,
// which belongs to the stream's pool; they make no system call and no heap allocation. Growing a
// pool and returning memory acquire one mutex, may wait for streams, and must not happen inside a
// kernel or host callback. A block that other streams use may be freed inside a kernel or host
// callback: the next call by a thread that may wait then makes the marks on those streams. A wait
// does not consume a kernel's error, which remains with its stream.
//
// Fork. In a child process, allocate() throws Error(orErrorForked); free() and all other functions
// do nothing.
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
  ~CachingAllocator();  // returns all segments, even those with blocks in use
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Allocates a block of `bytes` bytes (at least 1), aligned to kAlignment, with undefined content.
  // Never returns null. Throws OutOfMemoryError if the device still has no room after all cached
  // memory has been returned.
  Block* allocate(size_t bytes, orStream_t stream);

  // Frees the block. Throws Error if the block is not in use. In one rare case, the block is freed
  // and free() still throws Error: a stream passed to record_stream() was destroyed, so free()
  // waited for the device instead of a mark, and a kernel had failed.
  void free(Block* block);

  // Declares that work on `stream` uses the block (see Order). Unnecessary for the block's own
  // stream.
  void record_stream(Block* block, orStream_t stream);

  // Returns the block's own stream and the streams passed to record_stream().
  std::vector<orStream_t> streams_of(const Block* block) const;

  // Private pools (see private_pool.h). Between begin_allocate_to_pool() and
  // end_allocate_to_pool(), allocations that `filter` accepts come from pool `id`. The filter is
  // called on the allocating thread, with the stream as its argument. Existing blocks are not
  // affected.
  //
  // use_pool() and begin_allocate_to_pool() create the pool if necessary and add one use;
  // release_pool() removes one use. The first use determines the traits. While a pool has a use, it
  // keeps all its segments, even free ones, because a captured graph keeps using their addresses.
  //
  // When the pool has no use, segments without a block in use are returned to the device
  // automatically. This happens once their stream has no work: in release_pool(), or when any pool
  // allocates a segment. All of these functions throw Error for an invalid id.
  void use_pool(PoolId id, PoolTraits traits = {});
  void begin_allocate_to_pool(PoolId id, PrivatePools::Filter filter);
  void end_allocate_to_pool(PoolId id);
  void release_pool(PoolId id);
  bool pool_exists(PoolId id) const;   // whether the pool has a use or a segment
  int64_t pool_uses(PoolId id) const;  // 0 for a pool that does not exist

  // Waits for the work of the streams that own segments without a block in use, and returns these
  // segments to the device. Also returns the device's free pages to the operating system. Applies
  // to the common memory and to private pools without a use. If `id` is a private pool, applies
  // only to that pool, and skips it if it has a use. Keeps memory that a captured stream may use;
  // in that case, throws Error after everything else has been returned.
  void empty_cache(PoolId id = kCommonPool);

  // Changes the settings for later allocations. Existing blocks do not change.
  void set_settings(const Settings& settings);
  std::shared_ptr<const Settings> settings() const;

  // Returns a consistent snapshot of all segments with their blocks.
  std::vector<SegmentDescription> segments();

  // Sets the observer, which is called for each later event. Null removes the observer. Calls to
  // the previous observer may still be in progress when this function returns.
  void set_observer(Observer* observer);

  Stats stats();
  void reset_accumulated();  // restarts `allocated`, `freed` and the num_ counters
  void reset_peak();         // sets `peak` to `current`

  // Finds the block that contains the byte at `pointer`. Async-signal-safe: takes no lock and
  // allocates nothing. The result may be slightly out of date if other threads allocate and free at
  // the same time.
  struct Description {
    const void* base;
    size_t size;  // the requested size if the block is in use
    bool in_use;  // false if the block is in the cache
  };
  bool describe(const void* pointer, Description* description) const;

  int device() const { return device_; }

 private:
  // Conditions that an allocation must check besides the cache. They share one word, so an
  // allocation needs only one load if none of them is set.
  enum Mode : uint32_t {
    kRedirect = 1,  // some allocations go to private pools
    kObserve = 2,   // an observer is set; also checked by free()
    kRound = 4,     // sizes are rounded up: Settings::divisions
  };

  Pool& pool_of(orStream_t stream) {
    Pool* pool = common_.find(stream);
    return pool != nullptr ? *pool : add_pool(stream);
  }
  Pool& add_pool(orStream_t stream);
  Pool& make_pool(orStream_t stream);
  Pool& private_pool_of(PoolId id, orStream_t stream);
  // A request's size in bytes: as the caller requested it, and rounded up by Settings::divisions.
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

  // Returns the observer, or null if there is none.
  Observer* observer() const {
    return (modes_.load(std::memory_order_relaxed) & kObserve) != 0
               ? observer_.load(std::memory_order_acquire)
               : nullptr;
  }

  std::atomic<uint32_t> modes_{0};
  std::atomic<Observer*> observer_{nullptr};
  PrivatePools private_;
  std::mutex redirecting_;  // serializes begin and end of redirections, which set kRedirect

  // Serializes growing pools, returning memory and adding pools. Acquired before any pool's lock.
  std::mutex growth_;
  PoolList pools_;  // growth_ guards add()
  PoolMap common_;  // the pools of common memory, by stream; growth_ guards insert()
  StatsCollector stats_collector_{&pools_};
  Reclaim reclaim_;  // growth_ guards its functions for segments

  mutable std::mutex settings_lock_;
  std::shared_ptr<const Settings> settings_ = std::make_shared<const Settings>();
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_CACHING_ALLOCATOR_H_
