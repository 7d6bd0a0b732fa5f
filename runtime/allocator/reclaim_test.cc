// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/reclaim.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "runtime/allocator/caching_allocator_fixture.h"

namespace openreg::allocator {
namespace {

using ReclaimTest = CachingAllocatorTest;

TEST_F(ReclaimTest, RecordedStreamsDelayTheReuseOfABlock) {
  Block* block = allocator_.allocate(1000, stream_);
  allocator_.record_stream(block, other_);
  allocator_.record_stream(block, other_);
  timeline_.queue(other_);
  allocator_.free(block);
  EXPECT_EQ(timeline_.marks_in_use(), 1U);
  EXPECT_NE(allocator_.allocate(1000, stream_), block);
  EXPECT_EQ(stat(kActive).current, 2);
  EXPECT_EQ(stat(kAllocation).current, 1);
  timeline_.queue(other_);  // the block does not wait for work queued after its free
  timeline_.run(other_, 1);
  EXPECT_EQ(allocator_.allocate(1000, stream_), block);
  EXPECT_EQ(stat(kActive).current, 2);
  EXPECT_EQ(timeline_.marks_in_use(), 0U);

  // free() has dropped the recorded streams, so this time the block waits for no stream.
  allocator_.free(block);
  EXPECT_EQ(allocator_.allocate(1000, stream_), block);
}

TEST_F(ReclaimTest, RecordingTheOwnStreamChangesNothing) {
  Block* block = allocator_.allocate(1000, stream_);
  allocator_.record_stream(block, stream_);
  queue_and_free(block);
  EXPECT_EQ(allocator_.allocate(1000, stream_), block);
}

TEST_F(ReclaimTest, EmptyCacheReturnsFreeMemoryAfterItsWork) {
  Block* kept = allocator_.allocate(100, stream_);
  queue_and_free(allocator_.allocate(3 * kMiB, stream_));
  queue_and_free(allocator_.allocate(30 * kMiB, other_));
  allocator_.empty_cache();
  EXPECT_EQ(source_.segments().size(), 1U) << "of the block that is kept";
  EXPECT_EQ(source_.trims(), 1);
  EXPECT_EQ(timeline_.done(stream_), 1);
  EXPECT_EQ(timeline_.done(other_), 1);
  EXPECT_EQ(timeline_.marks_in_use(), 0U);
  allocator_.free(kept);
  allocator_.empty_cache();
  EXPECT_TRUE(source_.segments().empty());
  EXPECT_EQ(stat(kReservedBytes).current, 0);
  EXPECT_EQ(stat(kSegment).allocated, 3);
  EXPECT_EQ(stat(kSegment).freed, 3);
  EXPECT_EQ(stats_.num_device_alloc, 3);
  EXPECT_EQ(stats_.num_device_free, 3);
}

TEST_F(ReclaimTest, EmptyCacheDoesNotWaitForStreamsWithoutFreeMemory) {
  Block* kept = allocator_.allocate(100, other_);
  timeline_.queue(other_);
  allocator_.empty_cache();
  EXPECT_EQ(timeline_.waits(), 0);
  allocator_.free(kept);
}

TEST_F(ReclaimTest, AFullDeviceReclaimsTheCacheOfOtherStreams) {
  queue_and_free(allocator_.allocate(80 * kMiB, other_));
  Block* block = allocator_.allocate(60 * kMiB, stream_);
  EXPECT_EQ(block->size, 60 * kMiB);
  EXPECT_EQ(timeline_.done(other_), 1);
  stats_ = allocator_.stats();
  EXPECT_EQ(stats_.num_alloc_retries, 1);
  EXPECT_EQ(stats_.num_sync_all_streams, 0);
  EXPECT_EQ(stats_.num_ooms, 0);
}

TEST_F(ReclaimTest, AFullDeviceWaitsForBlocksThatOtherStreamsUse) {
  Block* block = allocator_.allocate(80 * kMiB, stream_);
  allocator_.record_stream(block, other_);
  timeline_.queue(other_);
  allocator_.free(block);
  EXPECT_EQ(allocator_.allocate(90 * kMiB, stream_)->size, 90 * kMiB);
  EXPECT_EQ(timeline_.done(other_), 1);
  stats_ = allocator_.stats();
  EXPECT_EQ(stats_.num_sync_all_streams, 1);
  EXPECT_EQ(stats_.num_ooms, 0);
}

TEST_F(ReclaimTest, ABlockIsFreedEvenIfItsDestroyedStreamFailed) {
  class Dying : public FakeTimeline {
    Mark mark(orStream_t /*stream*/) override {
      throw Error(orErrorLaunchFailure, "openreg: a kernel failed");
    }
  } dying;
  CachingAllocator allocator(0, &source_, &dying);
  Block* block = allocator.allocate(100, stream_);
  allocator.record_stream(block, other_);
  EXPECT_THROW(allocator.free(block), Error);
  EXPECT_EQ(allocator.stats().stat[kActive][kAggregate].current, 0);
  EXPECT_THROW(allocator.empty_cache(), Error);
  EXPECT_EQ(allocator.stats().stat[kReservedBytes][kAggregate].current, 0);
  EXPECT_TRUE(source_.segments().empty());
}

TEST_F(ReclaimTest, MemoryThatCannotBeWaitedForIsKept) {
  class Captured : public FakeTimeline {
   public:
    void wait(Mark mark) override {
      if (captured) {
        throw Error(orErrorCaptureUnsupported, "openreg: a capture");
      }
      FakeTimeline::wait(mark);
    }
    bool captured = true;
  } timeline;
  CachingAllocator allocator(0, &source_, &timeline);
  const auto reserved = [&] { return allocator.stats().stat[kReservedBytes][kAggregate].current; };
  Block* small = allocator.allocate(100, stream_);
  Block* large = allocator.allocate(30 * kMiB, stream_);
  Block* pending = allocator.allocate(100, other_);
  allocator.record_stream(pending, stream_);
  timeline.queue(stream_);
  for (Block* block : {small, large, pending}) {
    allocator.free(block);
  }
  const int64_t before = reserved();
  EXPECT_THROW(allocator.empty_cache(), Error);
  EXPECT_EQ(reserved(), before);
  EXPECT_EQ(timeline.marks_in_use(), 1U) << "that of the pending block";
  EXPECT_THROW(allocator.allocate(90 * kMiB, other_), OutOfMemoryError);
  EXPECT_EQ(reserved(), before);
  EXPECT_EQ(timeline.marks_in_use(), 1U);
  timeline.captured = false;
  Block* block = allocator.allocate(90 * kMiB, other_);
  EXPECT_EQ(timeline.marks_in_use(), 0U);
  allocator.free(block);
}

}  // namespace
}  // namespace openreg::allocator
