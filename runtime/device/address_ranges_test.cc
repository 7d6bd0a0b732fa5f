// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/address_ranges.h"

#include <gtest/gtest.h>

#include <map>

namespace openreg::device {
namespace {

using Ranges = std::map<uintptr_t, size_t>;

TEST(AddressRangesTest, AllocatesTheLowestOfTheSmallestRangesThatFit) {
  AddressRanges ranges;
  ranges.Free(0x1000, 0x800);
  ranges.Free(0x3000, 0x400);
  ranges.Free(0x5000, 0x400);
  EXPECT_EQ(ranges.Allocate(0x300, 0x100), 0x3000u);
  EXPECT_EQ(ranges.Allocate(0x400, 0x100), 0x5000u);
  EXPECT_EQ(ranges.Allocate(0x400, 0x100), 0x1000u);
  EXPECT_EQ(ranges.ranges(), (Ranges{{0x1400, 0x400}, {0x3300, 0x100}}));
  EXPECT_EQ(ranges.largest(), 0x400u);
  EXPECT_EQ(ranges.Allocate(0x401, 1), 0u);
}

TEST(AddressRangesTest, AlignsAndKeepsTheSkippedBytes) {
  AddressRanges ranges;
  ranges.Free(0x1100, 0x2000);
  EXPECT_EQ(ranges.Allocate(0x1000, 0x1000), 0x2000u);
  EXPECT_EQ(ranges.ranges(), (Ranges{{0x1100, 0xf00}, {0x3000, 0x100}}));
  EXPECT_EQ(ranges.Allocate(0x100, 0x1000), 0x3000u);
  EXPECT_EQ(ranges.Allocate(0x100, 0x1000), 0u);
}

TEST(AddressRangesTest, SkipsARangeThatIsTooSmallAfterAlignment) {
  AddressRanges ranges;
  ranges.Free(0x1800, 0x1000);
  ranges.Free(0x8000, 0x1800);
  EXPECT_EQ(ranges.Allocate(0x1000, 0x1000), 0x8000u);
}

TEST(AddressRangesTest, MergesNeighbors) {
  AddressRanges ranges;
  ranges.Free(0x1000, 0x100);
  ranges.Free(0x1200, 0x100);
  ranges.Free(0x1400, 0x100);
  ranges.Free(0x1100, 0x100);  // adjacent to a range on each side
  EXPECT_EQ(ranges.ranges(), (Ranges{{0x1000, 0x300}, {0x1400, 0x100}}));
  ranges.Free(0x1500, 0x100);  // adjacent to the end of the second range
  ranges.Free(0x1300, 0x80);   // adjacent only to the end of the first range
  EXPECT_EQ(ranges.ranges(), (Ranges{{0x1000, 0x380}, {0x1400, 0x200}}));
  ranges.Free(0x1380, 0x80);
  EXPECT_EQ(ranges.ranges(), (Ranges{{0x1000, 0x600}}));
  EXPECT_EQ(ranges.largest(), 0x600u);
}

TEST(AddressRangesTest, AnEmptySetAllocatesNothing) {
  AddressRanges ranges;
  EXPECT_EQ(ranges.largest(), 0u);
  EXPECT_EQ(ranges.Allocate(1, 1), 0u);
}

}  // namespace
}  // namespace openreg::device
