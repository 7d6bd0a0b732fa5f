// SPDX-License-Identifier: BSD-3-Clause
//
// Usage - the running counters of one pool type in one pool. This file also contains the scheme
// that keeps peaks over several pools exact without shared counters.
//
// Each pool has its own counters under its own lock. A peak, however, is a property of the whole
// device: it is the highest sum over all pools. The difference between the peak and the current sum
// is therefore distributed over the pools as limits. While every pool stays within its limits, the
// sum cannot have exceeded the peak, and nothing needs to be compared. When a pool exceeds its
// limits, the peaks are settled: all pools are locked, the sums are computed, and the difference is
// distributed again (see settle()). In steady state, this happens very rarely.
//
// A Usage is guarded by its pool's lock. Peaks is guarded by the locks of all pools of the
// allocator.
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
  // Count blocks that the program owns. allocated() and freed() are on the hot path.
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

  // Count blocks that were freed but cannot be reused yet.
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

  // Count the pieces of segments in use, including free pieces, and their bytes. The caller reports
  // only changes. If a program allocates and frees one block at a time, each call changes whether
  // the segment is in use.
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

  // Returns whether a quantity has exceeded its limit. If so, the peaks must be settled.
  bool crossed() const {
    return blocks_.current() > bounds_.blocks_max || block_bytes_.current() > bounds_.bytes_max ||
           requested_bytes_.current() > bounds_.requested_max || crossed_by_free();
  }
  // Like crossed(), but valid only if blocks were freed and none were allocated since the last
  // check. It checks less, because a free can only increase the number of free pieces.
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
  // The limits, converted to limits of the counters that change on the hot path.
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
                             ? -1  // always exceeded, whatever the blocks do
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

// The usage of one pool: of its small blocks and of its large blocks.
using PoolUsage = std::array<Usage, 2>;
inline constexpr size_t usage_index(PoolType type) { return type == kLargePool ? 1 : 0; }

// The quantities of a pool at the moment when it exceeded its limits.
using PoolQuantities = std::array<Quantities, 2>;
PoolQuantities current_of(const PoolUsage& usage);

class Peaks {
 public:
  // Updates the peaks with the sums over `pools` and distributes the difference. The pool with
  // index `raised` has exceeded its limits. Its quantities at that moment, `raised_to`, are also
  // used, because its current counters may already be lower again.
  void settle(std::span<PoolUsage* const> pools, size_t raised, const PoolQuantities& raised_to);
  // Updates the peaks with the sums and does not distribute the difference. This is necessary
  // before the peaks are read, because a pool that has exceeded its limits may not have settled
  // yet.
  void raise(std::span<PoolUsage* const> pools) { raise(sum(pools)); }
  // Sets the peaks to the current sums.
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
