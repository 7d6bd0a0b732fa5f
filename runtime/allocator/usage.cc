// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/usage.h"

#include <algorithm>

namespace openreg::allocator {
namespace {

constexpr std::array<PoolType, 2> kTypes = {kSmallPool, kLargePool};

}  // namespace

std::array<Counter, kQuantities> Usage::counters() const {
  // A free block in a segment that is in use is an inactive piece. It starts to count when its
  // segment comes into use or when an active block is freed. It stops counting when its segment
  // falls out of use or when the block becomes active.
  const Counter active{blocks_.up, blocks_.down - pending_};
  const Counter active_bytes{block_bytes_.up, block_bytes_.down - pending_bytes_};
  std::array<Counter, kQuantities> counters;
  counters[kAllocation] = blocks_;
  counters[kSegment] = segments_;
  counters[kActive] = active;
  counters[kInactiveSplit] = {pieces_.up + active.down, pieces_.down + active.up};
  counters[kAllocatedBytes] = block_bytes_;
  counters[kReservedBytes] = segment_bytes_;
  counters[kActiveBytes] = active_bytes;
  counters[kInactiveSplitBytes] = {piece_bytes_.up + active_bytes.down,
                                   piece_bytes_.down + active_bytes.up};
  counters[kRequestedBytes] = requested_bytes_;
  return counters;
}

Quantities Usage::current() const {
  Quantities current;
  std::ranges::transform(counters(), current.begin(), &Counter::current);
  return current;
}

PoolQuantities current_of(const PoolUsage& usage) {
  return {usage[0].current(), usage[1].current()};
}

Peaks::Sums Peaks::sum(std::span<PoolUsage* const> pools) {
  Sums sums{};
  for (const PoolUsage* pool : pools) {
    add(&sums, current_of(*pool), 1);
  }
  return sums;
}

void Peaks::add(Sums* sums, const PoolQuantities& of_pool, int64_t sign) {
  for (const PoolType type : kTypes) {
    for (size_t quantity = 0; quantity < kQuantities; ++quantity) {
      const int64_t value = sign * of_pool[usage_index(type)][quantity];
      (*sums)[type][quantity] += value;
      (*sums)[kAggregate][quantity] += value;
    }
  }
}

void Peaks::raise(const Sums& sums) {
  for (size_t type = 0; type < kPoolTypes; ++type) {
    for (size_t quantity = 0; quantity < kQuantities; ++quantity) {
      peaks_[type][quantity] = std::max(peaks_[type][quantity], sums[type][quantity]);
    }
  }
}

void Peaks::settle(std::span<PoolUsage* const> pools, size_t raised,
                   const PoolQuantities& raised_to) {
  const Sums now = sum(pools);
  raise(now);
  Sums then = now;
  add(&then, current_of(*pools[raised]), -1);
  add(&then, raised_to, 1);
  raise(then);

  // Do not change the limits of a quantity that exceeds them in no pool. Lowering such a limit
  // would only make its pool settle again soon.
  std::bitset<kQuantities> crossed;
  const auto compare = [&crossed](const Quantities& value, const Quantities& limits) {
    for (size_t quantity = 0; quantity < kQuantities; ++quantity) {
      crossed[quantity] = crossed[quantity] || value[quantity] > limits[quantity];
    }
  };
  for (const PoolUsage* pool : pools) {
    for (const Usage& usage : *pool) {
      compare(usage.current(), usage.limits());
    }
  }
  for (size_t index = 0; index < raised_to.size(); ++index) {
    compare(raised_to[index], (*pools[raised])[index].limits());
  }
  share_out(pools, now, crossed);
}

void Peaks::share_out(std::span<PoolUsage* const> pools, const Sums& now,
                      const std::bitset<kQuantities>& which) {
  const auto count = static_cast<int64_t>(pools.size());
  for (PoolUsage* pool : pools) {
    for (const PoolType type : kTypes) {
      Usage& usage = (*pool)[usage_index(type)];
      const Quantities current = usage.current();
      Quantities limits = usage.limits();
      for (size_t quantity = 0; quantity < kQuantities; ++quantity) {
        if (which[quantity]) {
          // Distribute the difference equally over the pools. For the aggregate, there are twice as
          // many shares: each pool has one for its small blocks and one for its large blocks.
          limits[quantity] =
              current[quantity] +
              std::min((peaks_[type][quantity] - now[type][quantity]) / count,
                       (peaks_[kAggregate][quantity] - now[kAggregate][quantity]) / (2 * count));
        }
      }
      usage.set_limits(limits);
    }
  }
}

void Peaks::reset(std::span<PoolUsage* const> pools) {
  peaks_ = sum(pools);
  share_out(pools, peaks_, std::bitset<kQuantities>().set());
}

}  // namespace openreg::allocator
