// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/limited_source.h"

#include <gtest/gtest.h>

#include <string>

#include "runtime/allocator/fake_device.h"
#include "runtime/allocator/size_class.h"

namespace openreg::allocator {
namespace {

class LimitedSourceTest : public testing::Test {
 protected:
  FakeSource whole_{100 * kMiB};
  LimitedSource source_{&whole_};
  std::string reason_;
};

TEST_F(LimitedSourceTest, WithoutALimitItBehavesLikeTheOtherSource) {
  EXPECT_EQ(source_.room().limit, Source::kNoLimit);
  EXPECT_EQ(source_.room().free, 100 * kMiB);
  void* segment = source_.allocate(90 * kMiB, &reason_);
  ASSERT_NE(segment, nullptr);
  EXPECT_EQ(whole_.reserved(), 90 * kMiB);
  EXPECT_EQ(source_.allocate(20 * kMiB, &reason_), nullptr);
  EXPECT_EQ(reason_, "the fake device is full");
  source_.trim();
  EXPECT_EQ(whole_.trims(), 1);
  source_.free(segment, 90 * kMiB);
  EXPECT_EQ(whole_.reserved(), 0U);
}

TEST_F(LimitedSourceTest, RefusesAllocationsAboveTheLimit) {
  source_.set_limit(30 * kMiB);
  void* first = source_.allocate(20 * kMiB, &reason_);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(source_.room().free, 80 * kMiB);
  EXPECT_EQ(source_.room().total, 100 * kMiB);
  EXPECT_EQ(source_.room().limit, 30 * kMiB);
  EXPECT_EQ(source_.allocate(10 * kMiB + 1, &reason_), nullptr);
  EXPECT_NE(reason_.find(std::to_string(30 * kMiB)), std::string::npos) << reason_;
  EXPECT_NE(reason_.find(std::to_string(20 * kMiB)), std::string::npos) << reason_;
  void* second = source_.allocate(10 * kMiB, &reason_);
  ASSERT_NE(second, nullptr);
  source_.free(first, 20 * kMiB);
  EXPECT_NE(source_.allocate(20 * kMiB, &reason_), nullptr);
}

TEST_F(LimitedSourceTest, ALimitBelowTheHeldMemoryOnlyStopsGrowth) {
  void* segment = source_.allocate(50 * kMiB, &reason_);
  source_.set_limit(10 * kMiB);
  EXPECT_EQ(source_.room().free, 50 * kMiB);
  EXPECT_EQ(source_.allocate(1, &reason_), nullptr);
  source_.free(segment, 50 * kMiB);
  EXPECT_EQ(source_.room().free, 100 * kMiB);
  EXPECT_NE(source_.allocate(10 * kMiB, &reason_), nullptr);
}

TEST_F(LimitedSourceTest, FailedAllocationsAreNotCounted) {
  source_.set_limit(200 * kMiB);
  EXPECT_EQ(source_.allocate(150 * kMiB, &reason_), nullptr);
  EXPECT_EQ(reason_, "the fake device is full");
  EXPECT_NE(source_.allocate(100 * kMiB, &reason_), nullptr);
}

}  // namespace
}  // namespace openreg::allocator
