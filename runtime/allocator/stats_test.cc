// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdint>

#include "runtime/allocator/caching_allocator_fixture.h"
#include "runtime/allocator/stats_collector.h"

namespace openreg::allocator {
namespace {

using StatsTest = CachingAllocatorTest;

TEST_F(StatsTest, StatsFollowBlocks) {
  Block* small = allocator_.allocate(1000, stream_);
  Block* large = allocator_.allocate(5'000'000, stream_);
  allocator_.free(large);
  EXPECT_EQ(stat(kAllocation).current, 1);
  EXPECT_EQ(stat(kAllocation).peak, 2);
  EXPECT_EQ(stat(kAllocation).allocated, 2);
  EXPECT_EQ(stat(kAllocation).freed, 1);
  EXPECT_EQ(stat(kAllocation, kLargePool).current, 0);
  EXPECT_EQ(stat(kRequestedBytes).peak, 5'001'000);
  EXPECT_EQ(stat(kRequestedBytes, kSmallPool).peak, 1000);
  EXPECT_EQ(stat(kAllocatedBytes, kSmallPool).current, 1024);
  EXPECT_EQ(stat(kReservedBytes).current, static_cast<int64_t>(22 * kMiB));
  EXPECT_EQ(stat(kInactiveSplitBytes).current, static_cast<int64_t>(2 * kMiB - 1024))
      << "the large segment is free as a whole";
  EXPECT_EQ(stat(kInactiveSplitBytes, kLargePool).peak,
            static_cast<int64_t>(20 * kMiB - round_up(5'000'000, kRangeGranule)));

  allocator_.reset_peak();
  allocator_.reset_accumulated();
  EXPECT_EQ(stat(kAllocation).peak, 1);
  EXPECT_EQ(stat(kAllocation).allocated, 0);
  EXPECT_EQ(stat(kReservedBytes).peak, static_cast<int64_t>(22 * kMiB));
  EXPECT_EQ(stats_.num_device_alloc, 0);
  allocator_.free(small);
  EXPECT_EQ(stat(kAllocation).current, 0);
  EXPECT_EQ(stat(kAllocation).freed, 1);
  EXPECT_EQ(stat(kAllocation).peak, 1);
}

}  // namespace
}  // namespace openreg::allocator
