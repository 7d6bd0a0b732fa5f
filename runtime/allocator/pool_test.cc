// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/pool.h"

#include <gtest/gtest.h>

#include <list>
#include <mutex>
#include <set>
#include <vector>

#include "runtime/allocator/fake_device.h"

namespace openreg::allocator {
namespace {

class PoolTest : public testing::Test {
 protected:
  // Allocates like CachingAllocator: adds a segment to the pool if no block is free.
  Block* allocate(size_t bytes) {
    const std::lock_guard lock(pool_.lock);
    Block* block = pool_.allocate(bytes);
    if (block == nullptr) {
      const bool large = bytes > kLargestSmall;
      const size_t size = large ? kLargeSegment : kSmallSegment;
      pool_.add_segment(large ? kLargePool : kSmallPool, reinterpret_cast<void*>(next_base_), size);
      next_base_ += 64 * kMiB;
      ++segments_;
      block = pool_.allocate(bytes);
    }
    return block;
  }
  void free(Block* block) {
    const std::lock_guard lock(pool_.lock);
    pool_.free(block);
  }
  std::list<Segment> detach() {
    const std::lock_guard lock(pool_.lock);
    std::list<Segment> segments;
    pool_.detach_free_segments(&segments, [](const Segment&) { return true; });
    return segments;
  }
  int64_t current(Quantity quantity, PoolType type) {
    return pool_.usage()[usage_index(type)].current()[quantity];
  }

  Pool pool_{fake_stream(1), 3, 0};
  uintptr_t next_base_ = uintptr_t{1} << 40;
  int segments_ = 0;
};

TEST_F(PoolTest, BlocksDescribeThemselves) {
  Block* block = allocate(100);
  EXPECT_EQ(block->size, 128U);
  EXPECT_EQ(block->requested, 100U);
  EXPECT_EQ(block->stream, fake_stream(1));
  EXPECT_EQ(block->device, 3);
  EXPECT_EQ(block->pool, &pool_);
}

TEST_F(PoolTest, TheLatestFreeIsTheNextAllocation) {
  Block* a = allocate(1000);
  Block* b = allocate(1000);
  free(a);
  free(b);
  EXPECT_EQ(allocate(1000), b);
  EXPECT_EQ(allocate(900), a) << "900 and 1000 bytes are of one class";
}

TEST_F(PoolTest, BlocksOfASlabDoNotOverlap) {
  for (const size_t bytes : {1, 64, 500, 5000, 40'000, 262'144}) {
    std::set<char*> starts;
    std::vector<Block*> blocks;
    for (int i = 0; i < 100; ++i) {
      blocks.push_back(allocate(bytes));
      starts.insert(static_cast<char*>(blocks.back()->pointer));
    }
    ASSERT_EQ(starts.size(), blocks.size());
    for (auto start = starts.begin(); std::next(start) != starts.end(); ++start) {
      ASSERT_GE(*std::next(start) - *start, static_cast<std::ptrdiff_t>(blocks[0]->size));
    }
    for (Block* block : blocks) {
      free(block);
    }
  }
}

TEST_F(PoolTest, AnEmptySlabFreesItsMemoryForOtherClasses) {
  // Each round fills the only segment with blocks of a different class. This works only if empty
  // slabs return their memory.
  for (const size_t bytes : {4096, 8192, 16'384, 2048}) {
    std::vector<Block*> blocks;
    for (size_t sum = 0; sum + 64 * kKiB * 8 <= kSmallSegment; sum += bytes) {
      blocks.push_back(allocate(bytes));
    }
    for (Block* block : blocks) {
      free(block);
    }
  }
  EXPECT_EQ(segments_, 1);
}

TEST_F(PoolTest, OneBlockAtATimeDoesNotCreateSlabs) {
  Block* first = allocate(300);
  const Slab* const slab = first->slab;
  for (int i = 0; i < 10; ++i) {
    free(first);
    ASSERT_EQ(allocate(300), first);
    ASSERT_EQ(first->slab, slab) << "the slab was replaced";
  }
}

TEST_F(PoolTest, LargeAndSmallRequestsUseSeparateSegments) {
  Block* small = allocate(kLargestSmall);
  Block* large = allocate(kLargestSmall + 1);
  EXPECT_EQ(small->type, kSmallPool);
  EXPECT_EQ(large->type, kLargePool);
  EXPECT_EQ(current(kReservedBytes, kSmallPool), static_cast<int64_t>(kSmallSegment));
  EXPECT_EQ(current(kReservedBytes, kLargePool), static_cast<int64_t>(kLargeSegment));
  EXPECT_EQ(current(kAllocatedBytes, kLargePool),
            static_cast<int64_t>(kLargestSmall + kRangeGranule));
}

TEST_F(PoolTest, DetachesSegmentsWithoutABlockInUse) {
  Block* small = allocate(10);
  Block* large = allocate(3 * kMiB);
  EXPECT_TRUE(detach().empty());
  free(small);
  std::list<Segment> segments = detach();
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_EQ(segments.front().size, kSmallSegment);
  free(large);
  EXPECT_EQ(detach().size(), 1U);
  EXPECT_EQ(current(kReservedBytes, kSmallPool), 0);
  EXPECT_EQ(current(kReservedBytes, kLargePool), 0);
}

TEST_F(PoolTest, APendingBlockWaitsForAllOfItsMarks) {
  FakeTimeline timeline;
  const orStream_t other = fake_stream(2);
  const orStream_t third = fake_stream(3);
  timeline.queue(other);
  timeline.queue(third);
  Block* block = allocate(2 * kMiB);
  {
    const std::lock_guard lock(pool_.lock);
    block->users = {other, third};
    pool_.suspend(block);
    pool_.await(other, timeline.mark(other), block);
    pool_.await(third, timeline.mark(third), block);
    EXPECT_EQ(pool_.awaited_streams(), (std::vector{other, third}));
    pool_.collect(&timeline);
    EXPECT_EQ(block->state, BlockState::kPending);
    timeline.run(third, 1);
    pool_.collect(&timeline);
    EXPECT_EQ(block->state, BlockState::kPending);
    timeline.run(other, 1);
    pool_.collect(&timeline);
    EXPECT_EQ(block->state, BlockState::kFree);
    EXPECT_FALSE(pool_.has_pending());
    EXPECT_EQ(timeline.marks_in_use(), 0U);
  }
  EXPECT_EQ(allocate(2 * kMiB), block);
}

TEST_F(PoolTest, FindsTheBlockThatContainsAnAddress) {
  Block* small = allocate(1000);
  Block* large = allocate(3 * kMiB);
  EXPECT_EQ(pool_.find(static_cast<char*>(small->pointer) + 999), small);
  EXPECT_EQ(pool_.find(large->pointer), large);
  EXPECT_EQ(pool_.find(static_cast<char*>(large->pointer) + large->size - 1), large);
  EXPECT_NE(pool_.find(static_cast<char*>(large->pointer) + large->size), large);
  EXPECT_EQ(pool_.find(reinterpret_cast<void*>(4096)), nullptr);
}

}  // namespace
}  // namespace openreg::allocator
