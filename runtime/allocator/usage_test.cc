// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/usage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace openreg::allocator {
namespace {

// Several pools with their peaks. As in the allocator, the peaks are settled whenever a pool
// exceeds its limits.
class Settled {
 public:
  explicit Settled(size_t pools) : usage_(pools) {
    for (PoolUsage& usage : usage_) {
      pointers_.push_back(&usage);
    }
  }

  void allocate(size_t pool, PoolType type, size_t size, size_t requested) {
    of(pool, type).allocated(size, requested);
    look_at(pool, type);
  }
  void free(size_t pool, PoolType type, size_t size, size_t requested) {
    of(pool, type).freed(size, requested);
    look_at(pool, type);
  }
  void look_at(size_t pool, PoolType type) {
    if (of(pool, type).crossed()) {
      peaks_.settle(pointers_, pool, current_of(usage_[pool]));
      ++settled_;
    }
  }
  void reset() { peaks_.reset(pointers_); }

  Usage& of(size_t pool, PoolType type) { return usage_[pool][usage_index(type)]; }
  int64_t peak(Quantity quantity, PoolType type) const { return peaks_.peak(quantity, type); }
  int settled() const { return settled_; }

 private:
  std::vector<PoolUsage> usage_;
  std::vector<PoolUsage*> pointers_;
  Peaks peaks_;
  int settled_ = 0;
};

TEST(UsageTest, CountsAllocationsAndFrees) {
  Usage usage;
  usage.segment_added(4096);
  usage.pieces_added(3, 4096);
  usage.allocated(128, 100);
  usage.allocated(64, 64);
  usage.freed(64, 64);
  const auto counters = usage.counters();
  EXPECT_EQ(counters[kAllocation].up, 2);
  EXPECT_EQ(counters[kAllocation].down, 1);
  EXPECT_EQ(counters[kAllocatedBytes].current(), 128);
  EXPECT_EQ(counters[kRequestedBytes].current(), 100);
  EXPECT_EQ(counters[kActive].current(), 1);
  EXPECT_EQ(counters[kInactiveSplit].current(), 2);
  EXPECT_EQ(counters[kInactiveSplitBytes].current(), 4096 - 128);
  EXPECT_EQ(counters[kReservedBytes].current(), 4096);
}

TEST(UsageTest, ASuspendedBlockIsActiveButNotAllocated) {
  Usage usage;
  usage.pieces_added(2, 4096);
  usage.allocated(128, 100);
  usage.freed(128, 100);
  usage.suspended(128);
  EXPECT_EQ(usage.current()[kAllocation], 0);
  EXPECT_EQ(usage.current()[kActive], 1);
  EXPECT_EQ(usage.current()[kActiveBytes], 128);
  EXPECT_EQ(usage.current()[kInactiveSplitBytes], 4096 - 128);
  usage.resumed(128);
  EXPECT_EQ(usage.current()[kActive], 0);
}

// Compares the peak over several pools with the exact peak, which is computed after every step.
TEST(PeaksTest, AreExactOverSeveralPools) {
  constexpr size_t kPools = 3;
  std::mt19937_64 random(20);
  Settled settled(kPools);
  struct Held {
    size_t pool;
    PoolType type;
    size_t size;
  };
  std::vector<Held> held;
  std::array<int64_t, kPoolTypes> now{};
  std::array<int64_t, kPoolTypes> peak{};
  for (int step = 0; step < 20'000; ++step) {
    // Alternate between growing and shrinking, so that the sum falls below the peak and reaches it
    // again.
    const bool grow = held.empty() || random() % 100 < ((step / 500) % 2 == 0 ? 60U : 40U);
    if (grow) {
      const Held block{random() % kPools, random() % 2 == 0 ? kSmallPool : kLargePool,
                       random() % 5000 + 1};
      settled.allocate(block.pool, block.type, block.size, block.size);
      held.push_back(block);
      now[block.type] += static_cast<int64_t>(block.size);
      now[kAggregate] += static_cast<int64_t>(block.size);
    } else {
      std::swap(held[random() % held.size()], held.back());
      const Held block = held.back();
      held.pop_back();
      settled.free(block.pool, block.type, block.size, block.size);
      now[block.type] -= static_cast<int64_t>(block.size);
      now[kAggregate] -= static_cast<int64_t>(block.size);
    }
    if (step == 10'000) {
      settled.reset();
      peak = now;
    }
    for (size_t type = 0; type < kPoolTypes; ++type) {
      peak[type] = std::max(peak[type], now[type]);
      ASSERT_EQ(settled.peak(kAllocatedBytes, static_cast<PoolType>(type)), peak[type])
          << "step " << step << " type " << type;
    }
  }
}

TEST(PeaksTest, UseTheHighestValueOfEachPool) {
  Settled settled(2);
  PoolUsage high;
  high[0].allocated(1000, 1000);
  PoolUsage low;
  PoolUsage other;
  std::vector<PoolUsage*> pools = {&low, &other};
  Peaks peaks;
  peaks.settle(pools, 0, current_of(high));
  EXPECT_EQ(peaks.peak(kAllocatedBytes, kAggregate), 1000);
  EXPECT_EQ(peaks.peak(kAllocatedBytes, kLargePool), 0);
}

// Checks the purpose of the limits: a loop that repeats the same steps soon stops settling.
TEST(PeaksTest, AreNotSettledInASteadyState) {
  Settled settled(2);
  const auto loop = [&settled] {
    for (const size_t pool : {0, 1}) {
      for (int i = 0; i < 100; ++i) {
        settled.allocate(pool, kSmallPool, 64, 60);
      }
    }
    for (const size_t pool : {0, 1}) {
      for (int i = 0; i < 100; ++i) {
        settled.free(pool, kSmallPool, 64, 60);
      }
    }
  };
  for (int warm_up = 0; warm_up < 10; ++warm_up) {
    loop();
  }
  const int before = settled.settled();
  for (int again = 0; again < 10; ++again) {
    loop();
  }
  EXPECT_EQ(settled.settled(), before);
}

}  // namespace
}  // namespace openreg::allocator
