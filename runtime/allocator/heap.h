// SPDX-License-Identifier: BSD-3-Clause
//
// Heap - the segments of one pool and one pool type, divided into ranges. An allocation uses the
// free range that fits best. It splits the range if the remainder is large enough to be useful. A
// freed range is merged with its free neighbors.
//
// Free ranges are kept in bins, sixteen for each doubling of the size, with a bitmap of the
// non-empty bins. Allocating and freeing therefore need only a few steps, regardless of the number
// of ranges.
//
// A heap is part of a pool and is guarded by the pool's lock.
#ifndef RUNTIME_ALLOCATOR_HEAP_H_
#define RUNTIME_ALLOCATOR_HEAP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>

#include "runtime/allocator/block.h"
#include "runtime/allocator/settings.h"
#include "runtime/allocator/size_class.h"
#include "runtime/allocator/usage.h"

namespace openreg::allocator {

// A heap's free ranges, sorted into bins by size.
class Bins {
 public:
  void insert(Block* range);
  void remove(Block* range);
  // Returns a range of at least `size` bytes, or null if there is none. The range is the smallest
  // one, or at most a sixteenth larger.
  Block* best_fit(size_t size, const SplitLimit& limit) const;
  size_t largest() const;

 private:
  static constexpr int kBinsPerDoubling = 16;
  static constexpr int kBins = 37 * kBinsPerDoubling;  // up to 2^48 bytes
  // The number of ranges to examine in one bin before a larger range is used.
  static constexpr int kMaxSearched = 32;

  static int bin_of(size_t size);
  int next_used(int bin) const;  // first non-empty bin from `bin` on, or -1
  // Returns the smallest range that fits among the first `max_searched` ranges in a bin.
  Block* search(int bin, size_t size, int max_searched, const SplitLimit& limit) const;

  std::array<Block*, kBins> heads_{};
  std::array<uint64_t, (kBins + 63) / 64> used_{};
};

class Heap {
 public:
  Heap(PoolType type, BlockStore* store, Usage* usage)
      : type_(type), store_(store), usage_(usage) {}

  // Returns a range of `size` bytes (a multiple of kRangeGranule) or slightly more, or null if none
  // fits. The caller sets the range's state, and calls hold() to count it as in use.
  Block* allocate(size_t size);
  // Frees the range, after the last release() for it. Its block may be merged into another one.
  void free(Block* range);

  // Count the uses of a segment by its ranges. The segment is in use from the first hold() to the
  // last release().
  void hold(Segment* segment) {
    if (segment->uses++ == 0) {
      segment->idle = 0;
      usage_->pieces_added(segment->pieces, static_cast<int64_t>(segment->size));
    }
  }
  void release(Segment* segment) {
    if (--segment->uses == 0) {
      usage_->pieces_removed(segment->pieces, static_cast<int64_t>(segment->size));
    }
  }
  // Changes the number of pieces when a range of this segment becomes a slab or stops being one.
  void change_pieces(Segment* segment, int64_t change);

  void add_segment(void* base, size_t size);
  // Moves the completely free segments that `accept` accepts to `out`. Their blocks become unused.
  void detach_free_segments(std::list<Segment>* out,
                            const std::function<bool(const Segment&)>& accept);
  // Adds 1 to `idle` of each segment that is not in use.
  void grow_older();

  PoolType type() const { return type_; }
  const std::list<Segment>& segments() const { return segments_; }
  size_t largest_free() const { return bins_.largest(); }
  void set_split_limit(const SplitLimit& limit) { split_limit_ = limit; }

 private:
  bool worth_splitting(size_t size, size_t rest) const;
  // Merges `range` with its right neighbor, `next`.
  void join(Block* range, Block* next);

  const PoolType type_;
  BlockStore* const store_;
  Usage* const usage_;
  Bins bins_;
  std::list<Segment> segments_;
  SplitLimit split_limit_;  // applies to large ranges
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_HEAP_H_
