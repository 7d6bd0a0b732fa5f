// SPDX-License-Identifier: BSD-3-Clause
//
// Pool - the memory of one stream. When the stream frees memory, it can reuse the memory
// immediately, because its work runs in order. For this reason each stream has its own pool.
// Threads that use different streams therefore do not contend.
//
// Requests of up to kLargestClass bytes use slabs. An allocation removes the first block from the
// first slab of its class, and a free puts the block back at the head of its slab. Slabs and larger
// requests are ranges in the two heaps. An empty slab returns to its heap, unless it is the only
// slab of its class with a free block. This exception helps a program that allocates and frees one
// block at a time: it does not create a new slab each time.
//
// Threads. The caller must hold `lock`, except for stream(), next and find(). After a function that
// changes the usage, the caller must check crossed().
#ifndef RUNTIME_ALLOCATOR_POOL_H_
#define RUNTIME_ALLOCATOR_POOL_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <vector>

#include "runtime/allocator/block.h"
#include "runtime/allocator/heap.h"
#include "runtime/allocator/observer.h"
#include "runtime/allocator/pool_id.h"
#include "runtime/allocator/segment_description.h"
#include "runtime/allocator/size_class.h"
#include "runtime/allocator/timeline.h"
#include "runtime/allocator/usage.h"
#include "runtime/sync/spin_lock.h"

namespace openreg::allocator {

class Pool {
 public:
  Pool(orStream_t stream, int device, size_t index)
      : index(index), stream_(stream), store_(this, stream, device) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  SpinLock lock;
  const size_t index;                // number of pools that the allocator created before this pool
  std::atomic<Pool*> next{nullptr};  // the pool that the allocator created after this pool
  // These two members change only while the pool has no segments.
  PoolId id = kCommonPool;
  bool whole = false;  // whether each block is a whole segment (PoolTraits)

  orStream_t stream() const { return stream_; }

  // Returns a block of at least `bytes` bytes for a request of `requested` bytes, or null if the
  // pool must grow first.
  Block* allocate(size_t bytes) { return allocate(bytes, bytes); }
  Block* allocate(size_t bytes, size_t requested) {
    if (bytes > kLargestClass) [[unlikely]] {
      return allocate_range(bytes, requested);
    }
    const int size_class = allocator::size_class(bytes);
    Slab* slab = slabs_[size_class];
    if (slab == nullptr) [[unlikely]] {
      slab = make_slab(size_class);
      if (slab == nullptr) {
        return nullptr;
      }
    }
    Block* block = slab->free;
    if (block != nullptr) [[likely]] {
      slab->free = block->next_free;
    } else {
      block = cut(slab);
    }
    if (slab->live++ == 0) {
      small_.hold(slab->carrier->segment);
    }
    if (slab->live == slab->capacity) [[unlikely]] {
      unlink(slab);
    }
    hand_out(block, requested);
    return block;
  }

  // Frees a block that is in state kAllocated and that no other stream uses.
  void free(Block* block) {
    usage_of(block).freed(block->size, block->requested);
    put_back(block);
  }

  // Free a block that other streams use, in two steps. The block is kPending from suspend() to
  // resume(). resume() notifies `observer`, which may be null, that the block is free.
  void suspend(Block* block);
  void resume(Block* block, Observer* observer);

  // Makes `block`, which must be kPending, wait for one more mark on `stream`. collect() drops the
  // marks that have passed, and resumes each block that has no other mark to wait for.
  void await(orStream_t stream, Mark mark, Block* block);
  // Stores `block`, which must be kPending and was freed on a thread that cannot make marks. The
  // block does not wait for any mark yet.
  void defer(Block* block) { deferred_.push_back(block); }
  bool has_deferred() const { return !deferred_.empty(); }
  std::vector<Block*> take_deferred() { return std::exchange(deferred_, {}); }
  bool has_pending() const { return pending_ != 0; }
  void collect(Timeline* timeline, Observer* observer = nullptr);
  std::vector<orStream_t> awaited_streams() const;

  void add_segment(PoolType type, void* base, size_t size) { heap(type).add_segment(base, size); }
  // Moves the segments that have no block in use and that `accept` accepts to `out`.
  void detach_free_segments(std::list<Segment>* out,
                            const std::function<bool(const Segment&)>& accept);
  void grow_older();  // see Heap
  void set_split_limit(const SplitLimit& limit) { large_.set_split_limit(limit); }
  const std::list<Segment>& segments(PoolType type) { return heap(type).segments(); }
  bool has_segments() const { return !small_.segments().empty() || !large_.segments().empty(); }
  // Appends a description of each segment to `out`.
  void describe_segments(std::vector<SegmentDescription>* out) const;

  const Block* find(const void* pointer) const { return store_.find(pointer); }

  PoolUsage& usage() { return usage_; }
  bool crossed(PoolType type) const { return usage_[usage_index(type)].crossed(); }
  bool crossed_by_free(PoolType type) const { return usage_[usage_index(type)].crossed_by_free(); }
  size_t largest_free() const;

 private:
  struct Awaited {
    struct Entry {
      Mark mark;
      Block* block;
    };
    orStream_t stream;
    std::deque<Entry> entries;  // in stream order
  };

  Heap& heap(PoolType type) { return type == kLargePool ? large_ : small_; }
  Usage& usage_of(const Block* block) { return usage_[usage_index(block->type)]; }

  Block* allocate_range(size_t bytes, size_t requested);
  Slab* make_slab(int size_class);
  Block* cut(Slab* slab);
  void retire(Slab* slab);

  void hand_out(Block* block, size_t requested) {
    publish(block->requested, requested);
    publish(block->state, BlockState::kAllocated);
    usage_of(block).allocated(block->size, requested);
  }

  void put_back(Block* block) {
    Slab* slab = block->slab;
    if (slab == nullptr) [[unlikely]] {
      put_back_range(block);
      return;
    }
    publish(block->state, BlockState::kFree);
    block->next_free = slab->free;
    slab->free = block;
    if (slab->live-- == slab->capacity) [[unlikely]] {
      link(slab);
    }
    if (slab->live == 0) {
      small_.release(slab->carrier->segment);
      if (slab->previous != nullptr || slab->next != nullptr) [[unlikely]] {
        retire(slab);
      }
    }
  }
  void put_back_range(Block* block);

  // link() adds a slab to the list of slabs of its class that have a free block; unlink() removes
  // it.
  void link(Slab* slab);
  void unlink(Slab* slab);

  const orStream_t stream_;
  std::array<Slab*, kSizeClasses> slabs_{};
  PoolUsage usage_;
  BlockStore store_;
  Heap small_{kSmallPool, &store_, &usage_[usage_index(kSmallPool)]};
  Heap large_{kLargePool, &store_, &usage_[usage_index(kLargePool)]};
  std::deque<Slab> all_slabs_;  // owns all slabs, used and spare
  Slab* spare_slabs_ = nullptr;
  size_t pending_ = 0;  // number of pending blocks
  std::vector<Awaited> awaited_;
  std::vector<Block*> deferred_;
};

using PoolLock = std::unique_lock<SpinLock>;

// Returns an event about a block, which must be allocated or pending.
inline Event event_of(Action action, const Block& block) {
  return {.action = action,
          .address = reinterpret_cast<uintptr_t>(block.pointer),
          .size = block.requested,
          .stream = block.stream,
          .pool = block.pool->id};
}

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_POOL_H_
