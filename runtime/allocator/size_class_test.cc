// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/size_class.h"

#include <gtest/gtest.h>

namespace openreg::allocator {
namespace {

TEST(SizeClassTest, EveryRequestGetsTheSmallestClassThatHoldsIt) {
  for (size_t bytes = 1; bytes <= kLargestClass; ++bytes) {
    const int found = size_class(bytes);
    ASSERT_GE(found, 0);
    ASSERT_LT(found, kSizeClasses);
    ASSERT_GE(class_bytes(found), bytes);
    if (found > 0) {
      ASSERT_LT(class_bytes(found - 1), bytes);
    }
  }
}

TEST(SizeClassTest, ClassesAreAlignedAndGrowByAtMostAQuarter) {
  for (int i = 0; i < kSizeClasses; ++i) {
    EXPECT_EQ(class_bytes(i) % kAlignment, 0U);
    if (class_bytes(i) > 512) {
      EXPECT_LE(class_bytes(i) * 4, class_bytes(i - 1) * 5) << class_bytes(i);
    }
  }
}

TEST(SizeClassTest, SlabsHoldSeveralBlocksAndFitInASmallSegment) {
  for (int i = 0; i < kSizeClasses; ++i) {
    EXPECT_GE(slab_bytes(i) / class_bytes(i), 4U);
    EXPECT_EQ(slab_bytes(i) % kRangeGranule, 0U);
    EXPECT_LE(slab_bytes(i), kSmallSegment);
  }
}

}  // namespace
}  // namespace openreg::allocator
