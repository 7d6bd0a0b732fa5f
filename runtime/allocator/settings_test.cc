// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/settings.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/fake_device.h"
#include "runtime/allocator/limited_source.h"

namespace openreg::allocator {
namespace {

TEST(SettingsTest, RoundsUpToStepsBetweenPowersOfTwo) {
  Settings settings;
  EXPECT_FALSE(settings.rounds());
  EXPECT_EQ(settings.rounded(1201), 1201U);
  settings.divisions = {4};
  EXPECT_TRUE(settings.rounds());
  EXPECT_EQ(settings.rounded(1024), 1024U);
  EXPECT_EQ(settings.rounded(1025), 1280U);
  EXPECT_EQ(settings.rounded(1281), 1536U);
  EXPECT_EQ(settings.rounded(2047), 2048U);
  EXPECT_EQ(settings.rounded(1), 1U);
  EXPECT_EQ(settings.rounded(3), 3U);  // too small for four steps
  settings.divisions = {1, 2};
  EXPECT_EQ(settings.rounded(kMiB + 1), kMiB + 1);
  EXPECT_EQ(settings.rounded(2 * kMiB + 1), 3 * kMiB);
  EXPECT_EQ(settings.rounded(64 * kMiB + 1),
            96 * kMiB);  // the last entry applies to all larger sizes
  settings.divisions = {1, 0};
  EXPECT_FALSE(settings.rounds());
}

class SettingsOfAllocatorTest : public testing::Test {
 protected:
  void set(const Settings& settings) { allocator_.set_settings(settings); }
  size_t reserved() const { return whole_.reserved(); }

  const orStream_t stream_ = fake_stream(1);
  FakeSource whole_{200 * kMiB};
  LimitedSource source_{&whole_};
  FakeTimeline timeline_;
  CachingAllocator allocator_{0, &source_, &timeline_};
};

TEST_F(SettingsOfAllocatorTest, RoundingChangesSizesAndCanBeTurnedOff) {
  set({.divisions = {2}});
  Block* block = allocator_.allocate(5 * kMiB, stream_);
  EXPECT_EQ(block->size, 6 * kMiB);
  EXPECT_EQ(block->requested, 5 * kMiB);
  EXPECT_EQ(allocator_.stats().stat[kRequestedBytes][kAggregate].current, int64_t{5 * kMiB});
  allocator_.free(block);
  EXPECT_EQ(allocator_.stats().stat[kRequestedBytes][kAggregate].current, 0);
  // The next request has a different size, but must receive the same block.
  void* const address = block->pointer;
  block = allocator_.allocate(6 * kMiB - 100, stream_);
  EXPECT_EQ(block->pointer, address);
  allocator_.free(block);
  set({});
  block = allocator_.allocate(5 * kMiB, stream_);
  EXPECT_EQ(block->size, 5 * kMiB);
  allocator_.free(block);
}

TEST_F(SettingsOfAllocatorTest, LargeBlocksAreNotSplit) {
  Block* whole = allocator_.allocate(60 * kMiB, stream_);
  allocator_.free(whole);
  set({.split = {.largest = 40 * kMiB, .slack = 4 * kMiB}});
  // The block must not be split for a small request, or for a large request that would leave more
  // than the slack unused.
  Block* small = allocator_.allocate(5 * kMiB, stream_);
  EXPECT_EQ(reserved(), 80 * kMiB);
  Block* near = allocator_.allocate(57 * kMiB, stream_);
  EXPECT_EQ(near->pointer, whole->pointer);
  EXPECT_EQ(near->size, 60 * kMiB);  // the range was not split
  EXPECT_EQ(reserved(), 80 * kMiB);
  allocator_.free(near);
  Block* far = allocator_.allocate(50 * kMiB, stream_);
  EXPECT_EQ(reserved(), 130 * kMiB);
  allocator_.free(far);
  allocator_.free(small);
  allocator_.empty_cache();
  // Without the limit, the block is split.
  set({});
  allocator_.free(allocator_.allocate(60 * kMiB, stream_));
  small = allocator_.allocate(5 * kMiB, stream_);
  EXPECT_EQ(reserved(), 60 * kMiB);
  allocator_.free(small);
}

TEST_F(SettingsOfAllocatorTest, LargeSegmentsHaveTheConfiguredSize) {
  set({.large_segment = 32 * kMiB});
  Block* block = allocator_.allocate(5 * kMiB, stream_);
  EXPECT_EQ(reserved(), 32 * kMiB);
  allocator_.free(block);
}

TEST_F(SettingsOfAllocatorTest, SegmentsUnusedForLongestAreReturnedBeforeGrowth) {
  set({.collect_above = 0.5});  // a threshold of 100 MiB
  Block* oldest = allocator_.allocate(30 * kMiB, stream_);
  Block* newer = allocator_.allocate(32 * kMiB, fake_stream(2));
  void* const newer_base = newer->pointer;
  allocator_.free(oldest);
  Block* held = allocator_.allocate(20 * kMiB, fake_stream(3));  // increases the age of `oldest`
  allocator_.free(newer);
  EXPECT_EQ(reserved(), 82 * kMiB);
  Block* more = allocator_.allocate(40 * kMiB, fake_stream(3));
  EXPECT_EQ(reserved(), 92 * kMiB);  // 20 + 32 + 40: releasing `oldest` was enough
  EXPECT_TRUE(whole_.segments().contains(newer_base));
  EXPECT_EQ(allocator_.stats().num_alloc_retries, 0);
  // Memory in use cannot be released and does not prevent growth beyond the threshold.
  Block* beyond = allocator_.allocate(90 * kMiB, fake_stream(3));
  EXPECT_EQ(reserved(), 150 * kMiB);
  for (Block* block : {held, more, beyond}) {
    allocator_.free(block);
  }
}

TEST_F(SettingsOfAllocatorTest, TheThresholdIsAFractionOfTheLimit) {
  source_.set_limit(100 * kMiB);
  set({.collect_above = 0.5});  // a threshold of 50 MiB
  allocator_.free(allocator_.allocate(30 * kMiB, stream_));
  Block* block = allocator_.allocate(40 * kMiB, stream_);
  EXPECT_EQ(reserved(), 40 * kMiB);
  allocator_.free(block);
}

TEST_F(SettingsOfAllocatorTest, WithoutAThresholdNothingIsReturnedUntilTheDeviceIsFull) {
  allocator_.free(allocator_.allocate(100 * kMiB, stream_));
  Block* block = allocator_.allocate(100 * kMiB, fake_stream(2));
  EXPECT_EQ(reserved(), 200 * kMiB);
  allocator_.free(block);
}

std::string out_of_memory(CachingAllocator* allocator, size_t bytes, orStream_t stream,
                          OutOfMemoryError::Figures* figures) {
  try {
    allocator->allocate(bytes, stream);
  } catch (const OutOfMemoryError& error) {
    *figures = error.figures();
    return error.what();
  }
  ADD_FAILURE() << "there was room";
  return "";
}

TEST_F(SettingsOfAllocatorTest, OutOfMemoryNamesTheLimit) {
  source_.set_limit(50 * kMiB);
  Block* held = allocator_.allocate(30 * kMiB, stream_);
  OutOfMemoryError::Figures figures;
  const std::string text = out_of_memory(&allocator_, 40 * kMiB, stream_, &figures);
  EXPECT_EQ(figures.limit, 50 * kMiB);
  EXPECT_EQ(figures.device_free, 200 * kMiB - figures.reserved);
  EXPECT_EQ(figures.device_total, 200 * kMiB);
  EXPECT_NE(text.find("50.00 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("set_per_process_memory_fraction"), std::string::npos) << text;
  EXPECT_EQ(text.find("max_split_size_mb"), std::string::npos) << text;
  source_.set_limit(Source::kNoLimit);
  Block* more = allocator_.allocate(40 * kMiB, stream_);
  EXPECT_EQ(out_of_memory(&allocator_, 900 * kMiB, stream_, &figures).find("fraction"),
            std::string::npos);
  EXPECT_EQ(figures.limit, std::nullopt);
  allocator_.free(held);
  allocator_.free(more);
}

TEST_F(SettingsOfAllocatorTest, OutOfMemoryMentionsFragmentationOnlyIfItIsTheCause) {
  // Allocate 200 MiB in segments of 20 MiB. Each segment has a small tensor and 16 MiB of free
  // memory.
  std::vector<Block*> held;
  std::vector<Block*> filled;
  for (int i = 0; i < 10; ++i) {
    held.push_back(allocator_.allocate(4 * kMiB, stream_));
    filled.push_back(allocator_.allocate(9 * kMiB, stream_));
    filled.push_back(allocator_.allocate(7 * kMiB, stream_));
  }
  OutOfMemoryError::Figures figures;
  std::string text = out_of_memory(&allocator_, 40 * kMiB, stream_, &figures);
  EXPECT_EQ(figures.cached, 0U);
  EXPECT_EQ(text.find("max_split_size_mb"), std::string::npos) << text;
  for (Block* block : filled) {
    allocator_.free(block);
  }
  text = out_of_memory(&allocator_, 40 * kMiB, stream_, &figures);
  EXPECT_EQ(figures.cached, 160 * kMiB);
  EXPECT_EQ(figures.largest_free, 16 * kMiB);
  EXPECT_NE(text.find("max_split_size_mb"), std::string::npos) << text;
  // If another stream has a large enough range, the message mentions the other streams instead.
  text = out_of_memory(&allocator_, 12 * kMiB, fake_stream(2), &figures);
  EXPECT_EQ(text.find("max_split_size_mb"), std::string::npos) << text;
  EXPECT_NE(text.find("other streams"), std::string::npos) << text;
  for (Block* block : held) {
    allocator_.free(block);
  }
}

TEST_F(SettingsOfAllocatorTest, OutOfMemoryReportsTheMemoryOfPrivatePools) {
  allocator_.begin_allocate_to_pool({0, 3}, [](orStream_t) { return true; });
  allocator_.free(allocator_.allocate(150 * kMiB, stream_));
  allocator_.end_allocate_to_pool({0, 3});
  OutOfMemoryError::Figures figures;
  const std::string text = out_of_memory(&allocator_, 100 * kMiB, stream_, &figures);
  EXPECT_EQ(figures.private_free, 150 * kMiB);
  EXPECT_NE(text.find("private pools"), std::string::npos) << text;
}

}  // namespace
}  // namespace openreg::allocator
