// SPDX-License-Identifier: BSD-3-Clause
//
// Tests private pools through the CachingAllocator.
#include "runtime/allocator/private_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <latch>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/fake_device.h"
#include "runtime/allocator/size_class.h"

namespace openreg::allocator {
namespace {

constexpr PoolId kPool{0, 7};
constexpr PoolId kOtherPool{0, 8};

bool any(orStream_t /*stream*/) { return true; }

class PrivatePoolTest : public testing::Test {
 protected:
  // Allocates a block in the private pool.
  Block* allocate_in(PoolId id, size_t bytes, orStream_t stream) {
    allocator_.begin_allocate_to_pool(id, any);
    Block* block = allocator_.allocate(bytes, stream);
    allocator_.end_allocate_to_pool(id);
    allocator_.release_pool(id);
    return block;
  }
  // Returns the description of the segment that contains the block.
  SegmentDescription segment_of(const Block* block) {
    for (SegmentDescription& segment : allocator_.segments()) {
      const auto* base = static_cast<char*>(segment.base);
      if (block->pointer >= base && block->pointer < base + segment.size) {
        return segment;
      }
    }
    throw std::logic_error("no segment");
  }
  PoolId pool_of(const Block* block) { return segment_of(block).pool; }
  std::string refused(const std::function<void()>& act) {
    try {
      act();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), orErrorInvalidValue);
      return error.what();
    }
    return "";
  }

  const orStream_t stream_ = fake_stream(1);
  const orStream_t other_ = fake_stream(2);
  FakeSource source_{100 * kMiB};
  FakeTimeline timeline_;
  CachingAllocator allocator_{5, &source_, &timeline_};
};

TEST_F(PrivatePoolTest, ServesAllocationsThatTheFilterAccepts) {
  allocator_.begin_allocate_to_pool(kPool, [this](orStream_t s) { return s == stream_; });
  Block* mine = allocator_.allocate(100, stream_);
  Block* common = allocator_.allocate(100, other_);
  Block* large = allocator_.allocate(5 * kMiB, stream_);
  EXPECT_EQ(pool_of(mine), kPool);
  EXPECT_EQ(pool_of(large), kPool);
  EXPECT_EQ(pool_of(common), kCommonPool);
  allocator_.end_allocate_to_pool(kPool);
  Block* after = allocator_.allocate(100, stream_);
  EXPECT_EQ(pool_of(after), kCommonPool);
  for (Block* block : {mine, common, large, after}) {
    allocator_.free(block);
  }
}

TEST_F(PrivatePoolTest, SegmentsServeNoOtherAllocations) {
  allocator_.use_pool(kPool);
  Block* first = allocate_in(kPool, 100, stream_);
  void* const address = first->pointer;
  allocator_.free(first);
  // A freed block returns to its own pool, even outside the redirection.
  Block* common = allocator_.allocate(100, stream_);
  EXPECT_NE(common->pointer, address);
  EXPECT_EQ(pool_of(common), kCommonPool);
  Block* again = allocate_in(kPool, 100, stream_);
  EXPECT_EQ(again->pointer, address);
  Block* elsewhere = allocate_in(kOtherPool, 100, stream_);
  EXPECT_EQ(pool_of(elsewhere), kOtherPool);
  Block* on_other_stream = allocate_in(kPool, 100, other_);
  EXPECT_EQ(pool_of(on_other_stream), kPool);
  EXPECT_NE(segment_of(on_other_stream).base, segment_of(again).base);
  for (Block* block : {common, again, elsewhere, on_other_stream}) {
    allocator_.free(block);
  }
}

TEST_F(PrivatePoolTest, KeepsItsSegmentsWhileItHasAUse) {
  allocator_.use_pool(kPool);
  allocator_.free(allocate_in(kPool, 30 * kMiB, stream_));
  const size_t held = source_.reserved();
  EXPECT_GE(held, 30 * kMiB);
  allocator_.empty_cache();
  allocator_.empty_cache(kPool);
  EXPECT_EQ(source_.reserved(), held);
  EXPECT_THROW(allocator_.allocate(90 * kMiB, stream_), OutOfMemoryError);
  EXPECT_EQ(source_.reserved(), held);

  timeline_.queue(stream_);  // queued work prevents an automatic release
  allocator_.release_pool(kPool);
  EXPECT_TRUE(allocator_.pool_exists(kPool));
  allocator_.empty_cache(kOtherPool);
  EXPECT_EQ(source_.reserved(), held);
  allocator_.empty_cache(kPool);
  EXPECT_EQ(source_.reserved(), 0U);
  EXPECT_FALSE(allocator_.pool_exists(kPool));
}

TEST_F(PrivatePoolTest, EmptyingOnePoolLeavesTheCommonMemory) {
  allocator_.free(allocator_.allocate(100, stream_));
  allocator_.free(allocate_in(kPool, 100, stream_));
  EXPECT_EQ(source_.segments().size(), 2U);
  allocator_.empty_cache(kPool);
  ASSERT_EQ(allocator_.segments().size(), 1U);
  EXPECT_EQ(allocator_.segments().front().pool, kCommonPool);
  allocator_.empty_cache();
  EXPECT_TRUE(source_.segments().empty());
}

TEST_F(PrivatePoolTest, AFullDeviceReclaimsTheMemoryOfReleasedPools) {
  allocator_.free(allocate_in(kPool, 60 * kMiB, stream_));
  EXPECT_NE(allocator_.allocate(90 * kMiB, other_), nullptr);
  EXPECT_FALSE(allocator_.pool_exists(kPool));
}

TEST_F(PrivatePoolTest, ALastResortServesOthersBeforeTheyFail) {
  allocator_.use_pool(kPool, {.last_resort = true});
  Block* small = allocate_in(kPool, 100, stream_);
  allocator_.free(allocate_in(kPool, 60 * kMiB, stream_));
  Block* common = allocator_.allocate(20 * kMiB, stream_);
  EXPECT_EQ(pool_of(common), kCommonPool);  // the device still has room
  Block* lent = allocator_.allocate(50 * kMiB, stream_);
  EXPECT_EQ(pool_of(lent), kPool);
  EXPECT_THROW(allocator_.allocate(50 * kMiB, stream_), OutOfMemoryError);
  allocator_.free(lent);
  // Streams never share memory, so another stream gets an error.
  EXPECT_THROW(allocator_.allocate(50 * kMiB, other_), OutOfMemoryError);
  // Another private pool may use the memory, too.
  lent = allocate_in(kOtherPool, 50 * kMiB, stream_);
  EXPECT_EQ(pool_of(lent), kPool);
  allocator_.free(lent);
  for (Block* block : {small, common}) {
    allocator_.free(block);
  }
  allocator_.release_pool(kPool);
  EXPECT_NE(allocator_.allocate(90 * kMiB, stream_), nullptr);
}

TEST_F(PrivatePoolTest, AWholePoolSplitsNothing) {
  allocator_.use_pool(kPool, {.whole = true});
  std::vector<Block*> blocks;
  for (const size_t bytes : {size_t{100}, size_t{100}, 300 * kKiB, 3 * kMiB, 3 * kMiB, 11 * kMiB}) {
    blocks.push_back(allocate_in(kPool, bytes, stream_));
    const SegmentDescription segment = segment_of(blocks.back());
    EXPECT_EQ(segment.blocks.size(), 1U);
    EXPECT_EQ(segment.base, blocks.back()->pointer);
    EXPECT_EQ(segment.size, blocks.back()->size);
    EXPECT_LT(segment.size, bytes + 2 * kMiB);
  }
  EXPECT_EQ(source_.segments().size(), blocks.size());
  allocator_.set_settings({});  // settings do not change the traits of a pool
  // Free segments serve requests that fit, without being split.
  void* const address = blocks.back()->pointer;
  allocator_.free(blocks.back());
  blocks.back() = allocate_in(kPool, 10 * kMiB, stream_);
  EXPECT_EQ(blocks.back()->pointer, address);
  EXPECT_EQ(segment_of(blocks.back()).blocks.size(), 1U);
  for (Block* block : blocks) {
    allocator_.free(block);
  }
  allocator_.release_pool(kPool);
  EXPECT_TRUE(source_.segments().empty());
  // Other private pools reuse the Pool objects. Their blocks may be split.
  allocator_.use_pool(kOtherPool);
  Block* first = allocate_in(kOtherPool, 3 * kMiB, stream_);
  Block* second = allocate_in(kOtherPool, 3 * kMiB, stream_);
  EXPECT_EQ(segment_of(first).base, segment_of(second).base);
  allocator_.free(first);
  allocator_.free(second);
}

TEST_F(PrivatePoolTest, EndsWithItsLastBlock) {
  Block* block = allocate_in(kPool, 100, stream_);
  EXPECT_EQ(allocator_.pool_uses(kPool), 0);
  allocator_.empty_cache();
  EXPECT_TRUE(allocator_.pool_exists(kPool));
  EXPECT_EQ(pool_of(block), kPool);
  allocator_.free(block);
  allocator_.empty_cache();
  EXPECT_FALSE(allocator_.pool_exists(kPool));
  // A pool that never had memory ends immediately.
  allocator_.use_pool(kPool);
  EXPECT_TRUE(allocator_.pool_exists(kPool));
  allocator_.release_pool(kPool);
  EXPECT_FALSE(allocator_.pool_exists(kPool));
}

TEST_F(PrivatePoolTest, CountsUses) {
  EXPECT_EQ(allocator_.pool_uses(kPool), 0);
  allocator_.use_pool(kPool);
  allocator_.begin_allocate_to_pool(kPool, any);
  EXPECT_EQ(allocator_.pool_uses(kPool), 2);
  allocator_.end_allocate_to_pool(kPool);
  EXPECT_EQ(allocator_.pool_uses(kPool), 2);
  allocator_.release_pool(kPool);
  EXPECT_EQ(allocator_.pool_uses(kPool), 1);
  allocator_.release_pool(kPool);
  EXPECT_EQ(allocator_.pool_uses(kPool), 0);
}

TEST_F(PrivatePoolTest, TheLatestFilterIsCalledFirst) {
  allocator_.begin_allocate_to_pool(kPool, any);
  allocator_.begin_allocate_to_pool(kOtherPool, [this](orStream_t s) { return s == stream_; });
  Block* inner = allocator_.allocate(100, stream_);
  Block* outer = allocator_.allocate(100, other_);
  EXPECT_EQ(pool_of(inner), kOtherPool);
  EXPECT_EQ(pool_of(outer), kPool);
  // Ends the redirections out of order.
  allocator_.end_allocate_to_pool(kPool);
  Block* third = allocator_.allocate(100, other_);
  EXPECT_EQ(pool_of(third), kCommonPool);
  allocator_.end_allocate_to_pool(kOtherPool);
  for (Block* block : {inner, outer, third}) {
    allocator_.free(block);
  }
}

TEST_F(PrivatePoolTest, EndEndsTheBeginOfItsThread) {
  const auto this_thread = [](std::thread::id id) {
    return [id](orStream_t) { return std::this_thread::get_id() == id; };
  };
  allocator_.begin_allocate_to_pool(kPool, this_thread(std::this_thread::get_id()));
  std::latch begun(1);
  std::latch ended(1);
  PoolId seen = kCommonPool;
  std::jthread other([&] {
    allocator_.begin_allocate_to_pool(kPool, this_thread(std::this_thread::get_id()));
    begun.count_down();
    ended.wait();
    Block* block = allocator_.allocate(100, stream_);
    seen = pool_of(block);
    allocator_.free(block);
    allocator_.end_allocate_to_pool(kPool);
  });
  begun.wait();
  allocator_.end_allocate_to_pool(
      kPool);  // ends this thread's begin, although the other one is later
  Block* block = allocator_.allocate(100, stream_);
  EXPECT_EQ(pool_of(block), kCommonPool);
  ended.count_down();
  other.join();
  EXPECT_EQ(seen, kPool);
  allocator_.free(block);
}

TEST_F(PrivatePoolTest, RefusesInvalidCalls) {
  EXPECT_NE(refused([&] { allocator_.use_pool(kCommonPool); }).find("(0, 0)"), std::string::npos);
  EXPECT_NE(refused([&] { allocator_.begin_allocate_to_pool(kCommonPool, any); }), "");
  EXPECT_NE(refused([&] { allocator_.end_allocate_to_pool(kPool); }).find("no matching begin"),
            std::string::npos);
  EXPECT_NE(refused([&] { allocator_.release_pool(kPool); }).find("does not exist"),
            std::string::npos);
  allocator_.begin_allocate_to_pool(kPool, any);
  EXPECT_NE(refused([&] { allocator_.release_pool(kPool); }).find("still gets allocations"),
            std::string::npos);
  allocator_.end_allocate_to_pool(kPool);
  EXPECT_NE(refused([&] { allocator_.end_allocate_to_pool(kPool); }), "");
  allocator_.release_pool(kPool);

  Block* block = allocate_in(kPool, 100, stream_);
  EXPECT_NE(refused([&] { allocator_.begin_allocate_to_pool(kPool, any); }).find("was released"),
            std::string::npos);
  EXPECT_NE(refused([&] { allocator_.release_pool(kPool); }).find("as often"), std::string::npos);
  // The failed begin has no effect.
  Block* common = allocator_.allocate(100, stream_);
  EXPECT_EQ(pool_of(common), kCommonPool);
  allocator_.free(block);
  allocator_.free(common);
}

TEST_F(PrivatePoolTest, AnExceptionOfTheFilterIsTheAllocationsError) {
  allocator_.begin_allocate_to_pool(kPool,
                                    [](orStream_t) -> bool { throw std::runtime_error("mine"); });
  EXPECT_THROW(allocator_.allocate(100, stream_), std::runtime_error);
  allocator_.end_allocate_to_pool(kPool);
  allocator_.release_pool(kPool);
  EXPECT_FALSE(allocator_.pool_exists(kPool));
}

TEST_F(PrivatePoolTest, RecordedStreamsDelayTheReuseOfBlocks) {
  allocator_.use_pool(kPool);
  Block* block = allocate_in(kPool, 100, stream_);
  allocator_.record_stream(block, other_);
  timeline_.queue(other_);
  allocator_.free(block);
  const SegmentDescription segment = segment_of(block);
  EXPECT_EQ(segment.blocks.front().state, BlockState::kPending);
  Block* second = allocate_in(kPool, 100, stream_);
  EXPECT_NE(second->pointer, segment.base);
  timeline_.run(other_, 1);
  Block* third = allocate_in(kPool, 100, stream_);
  EXPECT_EQ(third->pointer, segment.base);
  allocator_.free(second);
  allocator_.free(third);
}

TEST_F(PrivatePoolTest, SuccessivePoolsReuseTheSameRecords) {
  std::set<const Pool*> records;
  for (uint64_t i = 1; i <= 1000; ++i) {
    Block* block = allocate_in({0, i}, 100, stream_);
    records.insert(block->pool);
    allocator_.free(block);
    allocator_.empty_cache();
    ASSERT_FALSE(allocator_.pool_exists({0, i}));
  }
  EXPECT_EQ(records.size(), 1U);
}

TEST_F(PrivatePoolTest, StatisticsReportEachPool) {
  allocator_.use_pool(kPool);
  allocator_.free(allocate_in(kPool, 100, stream_));
  allocator_.free(allocator_.allocate(100, stream_));
  Stats stats = allocator_.stats();
  ASSERT_EQ(stats.private_reserved.size(), 1U);
  EXPECT_EQ(stats.private_reserved.at(kPool)[kAggregate].current, int64_t{kSmallSegment});
  EXPECT_EQ(stats.private_reserved.at(kPool)[kSmallPool].current, int64_t{kSmallSegment});
  EXPECT_EQ(stats.private_reserved.at(kPool)[kLargePool].current, 0);
  EXPECT_EQ(stats.stat[kReservedBytes][kAggregate].current, 2 * int64_t{kSmallSegment});

  allocator_.release_pool(kPool);
  EXPECT_TRUE(allocator_.stats().private_reserved.empty());  // no statistics of the pool remain
}

TEST_F(PrivatePoolTest, SegmentsOfAPoolWithoutAUseReturnAutomatically) {
  allocator_.use_pool(kPool);
  Block* kept = allocate_in(kPool, 100, stream_);
  allocator_.free(allocate_in(kPool, 30 * kMiB, stream_));
  const auto reserved = [&] { return allocator_.stats().stat[kReservedBytes][kAggregate].current; };
  const int64_t before = reserved();
  allocator_.release_pool(kPool);
  EXPECT_EQ(reserved(), before - int64_t{30 * kMiB});  // the other segment has a block in use
  allocator_.free(kept);
  EXPECT_TRUE(allocator_.pool_exists(kPool));
  allocator_.free(allocator_.allocate(100, stream_));  // makes the common pool grow
  EXPECT_FALSE(allocator_.pool_exists(kPool));
  EXPECT_EQ(reserved(), int64_t{kSmallSegment});
}

TEST_F(PrivatePoolTest, TheEndOfAPoolDoesNotWait) {
  allocator_.use_pool(kPool);
  allocator_.free(allocate_in(kPool, 100, stream_));
  timeline_.queue(stream_);
  allocator_.release_pool(kPool);
  EXPECT_TRUE(allocator_.pool_exists(kPool));
  EXPECT_EQ(timeline_.waits(), 0);
  timeline_.run(stream_, 1);
  allocator_.use_pool(kOtherPool);
  allocator_.release_pool(kOtherPool);
  EXPECT_FALSE(allocator_.pool_exists(kPool));
}

TEST_F(PrivatePoolTest, ThreadsUsePrivatePoolsAndCommonMemory) {
  constexpr int kThreads = 4;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 200; ++round) {
        const PoolId id{0, static_cast<uint64_t>(100 + thread % 3)};
        const bool redirect = thread % 2 == 0;
        if (redirect) {
          try {
            allocator_.begin_allocate_to_pool(id, [me = std::this_thread::get_id()](orStream_t) {
              return std::this_thread::get_id() == me;
            });
          } catch (const Error&) {
            continue;  // the other thread that uses this pool has released it
          }
        }
        std::vector<Block*> blocks;
        for (const size_t bytes : {100UL, 3000UL, 300'000UL, 2'000'000UL}) {
          blocks.push_back(allocator_.allocate(bytes, fake_stream(1 + round % 2)));
        }
        if (redirect) {
          allocator_.end_allocate_to_pool(id);
          allocator_.release_pool(id);
        }
        for (Block* block : blocks) {
          allocator_.free(block);
        }
        if (round % 10 == 0) {
          allocator_.empty_cache();
        }
        (void)allocator_.segments();
      }
    });
  }
  threads.clear();
  allocator_.empty_cache();
  EXPECT_TRUE(source_.segments().empty());
  EXPECT_TRUE(allocator_.segments().empty());
}

// Checks that the list of segments is complete: the blocks are adjacent and fill their segments.
TEST_F(PrivatePoolTest, SegmentsAreListedWithAllTheirBlocks) {
  Block* small = allocator_.allocate(700, stream_);
  Block* gone = allocator_.allocate(700, stream_);
  Block* range = allocator_.allocate(300 * kKiB, stream_);
  Block* large = allocator_.allocate(3 * kMiB, other_);
  allocator_.free(gone);
  const std::vector<SegmentDescription> segments = allocator_.segments();
  ASSERT_EQ(segments.size(), 2U);
  std::vector<BlockDescription> used;
  for (const SegmentDescription& segment : segments) {
    EXPECT_EQ(source_.segments().at(segment.base), segment.size);
    EXPECT_EQ(segment.stream, segment.type == kSmallPool ? stream_ : other_);
    auto* position = static_cast<char*>(segment.base);
    for (const BlockDescription& block : segment.blocks) {
      EXPECT_EQ(block.base, position);
      position += block.size;
      if (block.state == BlockState::kAllocated) {
        used.push_back(block);
      } else {
        EXPECT_EQ(block.requested, 0U);
      }
    }
    EXPECT_EQ(position, static_cast<char*>(segment.base) + segment.size);
  }
  ASSERT_EQ(used.size(), 3U);
  for (const Block* block : {small, range, large}) {
    EXPECT_TRUE(std::ranges::any_of(used, [&](const BlockDescription& found) {
      return found.base == block->pointer && found.size == block->size &&
             found.requested == block->requested;
    }));
  }
  for (Block* block : {small, range, large}) {
    allocator_.free(block);
  }
}

}  // namespace
}  // namespace openreg::allocator
