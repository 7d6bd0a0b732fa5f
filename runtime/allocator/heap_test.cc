// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/heap.h"

#include <gtest/gtest.h>

#include <list>
#include <vector>

namespace openreg::allocator {
namespace {

constexpr size_t kUnit = kRangeGranule;

// A heap whose segments are only addresses. No memory is accessed.
class HeapTest : public testing::TestWithParam<PoolType> {
 protected:
  void add(uintptr_t base, size_t size) { heap_.add_segment(reinterpret_cast<void*>(base), size); }
  Block* allocate(size_t size) {
    Block* range = heap_.allocate(size);
    if (range != nullptr) {
      range->state = BlockState::kAllocated;
      heap_.hold(range->segment);
    }
    return range;
  }
  void free(Block* range) {
    heap_.release(range->segment);
    heap_.free(range);
  }
  int64_t pieces_in_use() { return usage_.current()[kInactiveSplit] + usage_.current()[kActive]; }

  Usage usage_;
  BlockStore store_{nullptr, nullptr, 0};
  Heap heap_{GetParam(), &store_, &usage_};
};

INSTANTIATE_TEST_SUITE_P(All, HeapTest, testing::Values(kSmallPool, kLargePool),
                         [](const auto& info) {
                           return info.param == kSmallPool ? "Small" : "Large";
                         });

TEST_P(HeapTest, AnEmptyHeapAllocatesNothing) {
  EXPECT_EQ(heap_.allocate(kUnit), nullptr);
  EXPECT_EQ(heap_.largest_free(), 0U);
}

TEST_P(HeapTest, SplitsInOrderAndMergesInAnyOrder) {
  add(1 << 20, 4 * kMiB);
  for (const std::vector<int>& order :
       {std::vector{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}}) {
    std::vector<Block*> ranges;
    for (uintptr_t i = 0; i < 4; ++i) {
      Block* range = allocate(kMiB);
      ASSERT_NE(range, nullptr);
      EXPECT_EQ(range->pointer, reinterpret_cast<void*>((1 << 20) + i * kMiB));
      EXPECT_EQ(range->size, kMiB);
      ranges.push_back(range);
    }
    EXPECT_EQ(allocate(kUnit), nullptr);
    EXPECT_EQ(pieces_in_use(), 4);
    for (const int i : order) {
      free(ranges[i]);
    }
    EXPECT_EQ(heap_.largest_free(), 4 * kMiB);
    EXPECT_EQ(pieces_in_use(), 0);
  }
}

TEST_P(HeapTest, AllocatesTheBestFit) {
  const std::vector<size_t> sizes = {8 * kMiB, 5 * kMiB, 3 * kMiB, 6 * kMiB};
  uintptr_t base = 1 << 30;
  for (const size_t size : sizes) {
    add(base, size);
    base += 16 * kMiB;  // the next segment is not adjacent
  }
  EXPECT_EQ(allocate(5 * kMiB - kUnit)->pointer, reinterpret_cast<void*>((1 << 30) + 16 * kMiB));
  EXPECT_EQ(allocate(3 * kMiB)->pointer, reinterpret_cast<void*>((1 << 30) + 32 * kMiB));
  EXPECT_EQ(allocate(7 * kMiB)->pointer, reinterpret_cast<void*>(1 << 30));
  EXPECT_EQ(allocate(7 * kMiB), nullptr);
}

TEST_P(HeapTest, FindsTheOneThatFitsBehindManyThatDoNot) {
  // All ranges are in one bin. The only one that fits was inserted first, so it is examined last.
  const size_t fits = 4 * kMiB + 3 * kUnit;
  add(1 << 30, fits);
  for (uintptr_t i = 1; i <= 200; ++i) {
    add((1 << 30) + i * 8 * kMiB, 4 * kMiB);
  }
  Block* range = allocate(4 * kMiB + kUnit);
  ASSERT_NE(range, nullptr);
  EXPECT_EQ(range->pointer, reinterpret_cast<void*>(1 << 30));
}

TEST_P(HeapTest, SegmentsAreNeverMerged) {
  add(1 << 20, 2 * kMiB);
  add((1 << 20) + 2 * kMiB, 2 * kMiB);  // two segments that are adjacent by chance
  EXPECT_EQ(heap_.largest_free(), 2 * kMiB);
  EXPECT_EQ(allocate(3 * kMiB), nullptr);
}

TEST_P(HeapTest, DetachesOnlyCompletelyFreeSegments) {
  add(1 << 30, 4 * kMiB);
  add(1 << 28, 6 * kMiB);
  Block* range = allocate(5 * kMiB);
  std::list<Segment> out;
  heap_.detach_free_segments(&out, [](const Segment&) { return true; });
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out.front().base, reinterpret_cast<void*>(1 << 30));
  EXPECT_EQ(out.front().size, 4 * kMiB);
  EXPECT_EQ(usage_.current()[kSegment], 1);
  free(range);
  heap_.detach_free_segments(&out, [](const Segment&) { return true; });
  EXPECT_EQ(out.size(), 2U);
  EXPECT_EQ(usage_.current()[kReservedBytes], 0);
  EXPECT_EQ(allocate(kUnit), nullptr);
}

using LargeHeapTest = HeapTest;
INSTANTIATE_TEST_SUITE_P(Large, LargeHeapTest, testing::Values(kLargePool));

TEST_P(LargeHeapTest, ASmallRestIsNotSplitOff) {
  add(1 << 30, 8 * kMiB + 512 * kKiB);
  EXPECT_EQ(allocate(8 * kMiB)->size, 8 * kMiB + 512 * kKiB);
}

TEST_P(LargeHeapTest, NeverWastesMoreThanAnEighth) {
  add(1 << 30, 2 * kMiB);
  EXPECT_EQ(allocate(kMiB + 512 * kKiB)->size, kMiB + 512 * kKiB);
}

}  // namespace
}  // namespace openreg::allocator
