// SPDX-License-Identifier: BSD-3-Clause
//
// Usage - the running figures of one pool type in one pool, and how peaks over several pools stay
// exact without shared counters.
//
// Each pool counts for itself, under its own lock. A peak belongs to the whole device, though: it
// is the highest sum over all pools. So the distance between that peak and the present sum is
// shared out, and each pool gets limits: while every pool stays within its own ones, the sum
// cannot have passed the peak, and nothing has to be compared. A pool that leaves its limits has
// the peaks settled: all pools are locked, the sums are taken, the distance is shared out anew (see
// settle()). In steady state this hardly ever happens.
//
// A Usage is guarded by its pool's lock, Peaks by the locks of all pools of the allocator together.
#ifndef RUNTIME_ALLOCATOR_USAGE_H_
#define RUNTIME_ALLOCATOR_USAGE_H_

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/allocator/stats.h"

namespace openreg::allocator {

struct Counter {
  int64_t up = 0;    // sum of all increases
  int64_t down = 0;  // sum of all decreases
  int64_t current() const { return up - down; }
};

using Quantities = std::array<int64_t, kQuantities>;

class Usage {
 public:
  // Blocks that the program holds. allocated() and freed() are the hot path.
  void allocated(size_t size, size_t requested) {
    ++blocks_.up;
    block_bytes_.up += static_cast<int64_t>(size);
    requested_bytes_.up += static_cast<int64_t>(requested);
  }
  void freed(size_t size, size_t requested) {
    ++blocks_.down;
    block_bytes_.down += static_cast<int64_t>(size);
    requested_bytes_.down += static_cast<int64_t>(requested);
  }

  // Blocks that are freed but not free.
  void suspended(size_t size) {
    ++pending_;
    pending_bytes_ += static_cast<int64_t>(size);
    refresh();
  }
  void resumed(size_t size) {
    --pending_;
    pending_bytes_ -= static_cast<int64_t>(size);
    refresh();
  }

  // Pieces of segments in use, free ones included, and their bytes; only changes are reported. A
  // segment comes into use and goes out of it with each block of a program that holds one at a
  // time.
  void pieces_added(int64_t pieces, int64_t bytes) {
    pieces_.up += pieces;
    piece_bytes_.up += bytes;
    bounds_.blocks_min += pieces;
    bounds_.bytes_min += bytes;
  }
  void pieces_removed(int64_t pieces, int64_t bytes) {
    pieces_.down += pieces;
    piece_bytes_.down += bytes;
    bounds_.blocks_min -= pieces;
    bounds_.bytes_min -= bytes;
  }

  void segment_added(size_t size) {
    ++segments_.up;
    segment_bytes_.up += static_cast<int64_t>(size);
    refresh();
  }
  void segment_removed(size_t size) {
    ++segments_.down;
    segment_bytes_.down += static_cast<int64_t>(size);
  }

  // Whether a quantity has left its limit: then the peaks have to be settled.
  bool crossed() const {
    return blocks_.current() > bounds_.blocks_max || block_bytes_.current() > bounds_.bytes_max ||
           requested_bytes_.current() > bounds_.requested_max || crossed_by_free();
  }
  // The same when nothing was done since the last call except freeing blocks: that adds to the free
  // pieces only.
  bool crossed_by_free() const {
    return blocks_.current() < bounds_.blocks_min || block_bytes_.current() < bounds_.bytes_min;
  }

  std::array<Counter, kQuantities> counters() const;
  Quantities current() const;

  const Quantities& limits() const { return limits_; }
  void set_limits(const Quantities& limits) {
    limits_ = limits;
    refresh();
  }

 private:
  // The limits, put in terms of what changes on the hot path.
  struct Bounds {
    int64_t blocks_max = 0;
    int64_t bytes_max = 0;
    int64_t requested_max = 0;
    int64_t blocks_min = 0;
    int64_t bytes_min = 0;
  };
  void refresh() {
    const bool segments_crossed = segments_.current() > limits_[kSegment] ||
                                  segment_bytes_.current() > limits_[kReservedBytes];
    bounds_.blocks_max = segments_crossed
                             ? -1  // crossed, whatever the blocks do
                             : std::min(limits_[kAllocation], limits_[kActive] - pending_);
    bounds_.bytes_max = std::min(limits_[kAllocatedBytes], limits_[kActiveBytes] - pending_bytes_);
    bounds_.requested_max = limits_[kRequestedBytes];
    bounds_.blocks_min = pieces_.current() - pending_ - limits_[kInactiveSplit];
    bounds_.bytes_min = piece_bytes_.current() - pending_bytes_ - limits_[kInactiveSplitBytes];
  }

  Counter blocks_;
  Counter block_bytes_;
  Counter requested_bytes_;
  Bounds bounds_;
  int64_t pending_ = 0;
  int64_t pending_bytes_ = 0;
  Counter pieces_;
  Counter piece_bytes_;
  Counter segments_;
  Counter segment_bytes_;
  Quantities limits_{};
};

// The usage of one pool: of its small and of its large blocks.
using PoolUsage = std::array<Usage, 2>;
inline constexpr size_t usage_index(PoolType type) { return type == kLargePool ? 1 : 0; }

// What a pool's quantities were when it left its limits.
using PoolQuantities = std::array<Quantities, 2>;
PoolQuantities current_of(const PoolUsage& usage);

class Peaks {
 public:
  // Takes the sums over `pools` into the peaks and shares the distance out. The pool `raised` has
  // left its limits and counts with `raised_to` as well: its present figures may be lower already.
  void settle(std::span<PoolUsage* const> pools, size_t raised, const PoolQuantities& raised_to);
  // Takes the sums into the peaks. A pool that has left its limits may not have settled yet.
  void raise(std::span<PoolUsage* const> pools) { raise(sum(pools)); }
  // The peaks become the present sums.
  void reset(std::span<PoolUsage* const> pools);
  int64_t peak(Quantity quantity, PoolType type) const { return peaks_[type][quantity]; }

 private:
  using Sums = std::array<Quantities, kPoolTypes>;
  static Sums sum(std::span<PoolUsage* const> pools);
  static void add(Sums* sums, const PoolQuantities& of_pool, int64_t sign);
  void raise(const Sums& sums);
  void share_out(std::span<PoolUsage* const> pools, const Sums& now,
                 const std::bitset<kQuantities>& which);

  Sums peaks_{};
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_USAGE_H_
