// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/observer.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/allocator/caching_allocator_fixture.h"

namespace openreg::allocator {
namespace {

using ObserverTest = CachingAllocatorTest;

// Stores the events that an observer receives.
class Recorder : public Observer {
 public:
  void observe(const Event& event) override { events.push_back(event); }
  std::vector<Action> actions() const {
    std::vector<Action> result;
    for (const Event& event : events) {
      result.push_back(event.action);
    }
    return result;
  }
  std::vector<Event> events;
};
using Actions = std::vector<Action>;

TEST_F(ObserverTest, SeesBlocksAndSegments) {
  Recorder recorder;
  allocator_.free(allocator_.allocate(100, stream_));
  allocator_.empty_cache();
  allocator_.set_observer(&recorder);
  Block* block = allocator_.allocate(100, stream_);
  const auto address = reinterpret_cast<uintptr_t>(block->pointer);
  allocator_.free(block);
  allocator_.empty_cache();
  EXPECT_EQ(recorder.actions(),
            (Actions{Action::kSegmentAlloc, Action::kAlloc, Action::kFreeRequested,
                     Action::kFreeCompleted, Action::kSegmentFree}));
  EXPECT_EQ(recorder.events[0].size, kSmallSegment);
  EXPECT_EQ(recorder.events[0].address, recorder.events[4].address);
  for (const size_t event : {1U, 2U, 3U}) {
    EXPECT_EQ(recorder.events[event].address, address);
    EXPECT_EQ(recorder.events[event].size, 100U);
    EXPECT_EQ(recorder.events[event].stream, stream_);
    EXPECT_EQ(recorder.events[event].pool, kCommonPool);
  }
  allocator_.set_observer(nullptr);
  allocator_.free(allocator_.allocate(100, stream_));
  EXPECT_EQ(recorder.events.size(), 5U);
}

TEST_F(ObserverTest, SeesWhenPendingMemoryIsFree) {
  Recorder recorder;
  allocator_.set_observer(&recorder);
  Block* block = allocator_.allocate(100, stream_);
  const auto address = reinterpret_cast<uintptr_t>(block->pointer);
  timeline_.queue(other_);
  allocator_.record_stream(block, other_);
  allocator_.free(block);
  EXPECT_EQ(recorder.actions(),
            (Actions{Action::kSegmentAlloc, Action::kAlloc, Action::kFreeRequested}));
  timeline_.run(other_, 1);
  Block* next = allocator_.allocate(100, stream_);
  ASSERT_EQ(recorder.events.size(), 5U);
  EXPECT_EQ(recorder.events[3].action, Action::kFreeCompleted);
  EXPECT_EQ(recorder.events[3].address, address);
  EXPECT_EQ(recorder.events[3].size, 100U);
  EXPECT_EQ(recorder.events[4].action, Action::kAlloc);
  allocator_.free(next);
}

TEST_F(ObserverTest, SeesOutOfMemory) {
  Recorder recorder;
  allocator_.set_observer(&recorder);
  EXPECT_THROW(allocator_.allocate(kCapacity + 1, stream_), OutOfMemoryError);
  ASSERT_EQ(recorder.actions(), (Actions{Action::kOutOfMemory}));
  EXPECT_EQ(recorder.events[0].size, kCapacity + 1);
  EXPECT_EQ(recorder.events[0].address, kCapacity);  // number of free bytes
}

TEST_F(ObserverTest, SeesThePool) {
  Recorder recorder;
  allocator_.set_observer(&recorder);
  const PoolId id{0, 7};
  allocator_.begin_allocate_to_pool(id, [](orStream_t) { return true; });
  allocator_.free(allocator_.allocate(100, stream_));
  allocator_.end_allocate_to_pool(id);
  allocator_.release_pool(id);
  allocator_.empty_cache();
  ASSERT_EQ(recorder.events.size(), 5U);
  for (const Event& event : recorder.events) {
    EXPECT_EQ(event.pool, id) << static_cast<int>(event.action);
  }
}

TEST_F(ObserverTest, DoesNotSeeAnInvalidFree) {
  Block* block = allocator_.allocate(100, stream_);
  allocator_.free(block);
  Recorder recorder;
  allocator_.set_observer(&recorder);
  EXPECT_THROW(allocator_.free(block), Error);
  EXPECT_TRUE(recorder.events.empty());
}

}  // namespace
}  // namespace openreg::allocator
