// SPDX-License-Identifier: BSD-3-Clause
//
// Random operations on a CachingAllocator, each checked against a model that is too simple to be
// wrong:
//   - a block holds what was asked, is aligned, lies inside a segment and overlaps no other live
//   block;
//   - memory is given to a stream only when all earlier use of it is done or earlier in that
//   stream;
//   - after every operation all statistics are those that counting by hand gives, peaks included.
// OPENREG_FUZZ_OPERATIONS and OPENREG_FUZZ_SEED give another number of operations and another seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/fake_device.h"
#include "runtime/allocator/size_class.h"

namespace openreg::allocator {
namespace {

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Scenario {
  const char* name;
  size_t capacity;
  uint64_t streams;
  bool record;         // uses record_stream
  size_t largest_log;  // requests have up to 2^largest_log bytes
};

class Fuzz : public testing::TestWithParam<Scenario> {
 protected:
  struct Live {
    Block* block;
    uintptr_t base;
    size_t size;
    size_t requested;
    PoolType type;
    std::vector<orStream_t> users;  // without the block's own stream
  };
  // Memory that was freed while streams had work on it.
  struct Past {
    uintptr_t base;
    size_t size;
    PoolType type;
    orStream_t owner;
    int64_t owner_position;
    std::vector<std::pair<orStream_t, int64_t>> users;
    bool passed;  // all users, as far as the allocator has been able to see
  };
  struct Count {
    int64_t current = 0;
    int64_t peak = 0;
    int64_t allocated = 0;
    int64_t freed = 0;
    void change(int64_t by) {
      (by > 0 ? allocated : freed) += by > 0 ? by : -by;
      current += by;
    }
  };

  orStream_t any_stream() { return fake_stream(random_() % GetParam().streams + 1); }

  Count& count(Quantity quantity, PoolType type) { return counts_[quantity][type]; }
  void change(Quantity quantity, PoolType type, int64_t by) {
    count(quantity, type).change(by);
    count(quantity, kAggregate).change(by);
  }

  bool done(orStream_t stream, int64_t position) { return timeline_.done(stream) >= position; }

  void allocate() {
    const orStream_t stream = any_stream();
    const size_t log = random_() % (GetParam().largest_log + 1);
    const size_t bytes = random_() % (size_t{1} << log) + 1;
    Block* block = nullptr;
    try {
      block = allocator_.allocate(bytes, stream);
    } catch (const OutOfMemoryError& error) {
      ++ooms_;
      ASSERT_EQ(error.figures().asked, bytes);
      ASSERT_EQ(static_cast<int64_t>(error.figures().allocated),
                count(kAllocatedBytes, kAggregate).current);
      ASSERT_LT(error.figures().device_free, bytes + kSmallSegment) << "there was room";
      return;
    }
    const Live live{.block = block,
                    .base = reinterpret_cast<uintptr_t>(block->pointer),
                    .size = block->size,
                    .requested = bytes,
                    .type = bytes > kLargestSmall ? kLargePool : kSmallPool,
                    .users = {}};
    ASSERT_EQ(block->requested, bytes);
    ASSERT_EQ(block->stream, stream);
    ASSERT_GE(live.size, bytes);
    ASSERT_LE(live.size, bytes + std::max<size_t>(bytes / 4, kRangeGranule) + kAlignment);
    ASSERT_EQ(live.base % kAlignment, 0U);

    const auto segment = [&] {
      auto after = source_.segments().upper_bound(block->pointer);
      return *std::prev(after);
    }();
    ASSERT_LE(live.base + live.size, reinterpret_cast<uintptr_t>(segment.first) + segment.second);
    for (const Live& other : live_) {
      ASSERT_TRUE(live.base + live.size <= other.base || other.base + other.size <= live.base);
    }
    for (const Past& past : past_) {
      if (live.base + live.size <= past.base || past.base + past.size <= live.base) {
        continue;
      }
      ASSERT_TRUE(past.owner == stream || done(past.owner, past.owner_position));
      for (const auto& [user, position] : past.users) {
        ASSERT_TRUE(done(user, position));
      }
    }
    live_.push_back(live);
    change(kAllocation, live.type, 1);
    change(kAllocatedBytes, live.type, static_cast<int64_t>(live.size));
    change(kRequestedBytes, live.type, static_cast<int64_t>(live.requested));
    CachingAllocator::Description found{};
    ASSERT_TRUE(allocator_.describe(static_cast<char*>(block->pointer) + bytes - 1, &found));
    ASSERT_EQ(found.base, block->pointer);
    ASSERT_EQ(found.size, bytes);
    ASSERT_TRUE(found.in_use);
  }

  void free_one() {
    std::swap(live_[random_() % live_.size()], live_.back());
    const Live live = live_.back();
    live_.pop_back();
    Past past{.base = live.base,
              .size = live.size,
              .type = live.type,
              .owner = live.block->stream,
              .owner_position = timeline_.queued(live.block->stream),
              .users = {},
              .passed = live.users.empty()};
    for (orStream_t user : live.users) {
      past.users.emplace_back(user, timeline_.queued(user));
    }
    allocator_.free(live.block);
    change(kAllocation, live.type, -1);
    change(kAllocatedBytes, live.type, -static_cast<int64_t>(live.size));
    change(kRequestedBytes, live.type, -static_cast<int64_t>(live.requested));
    past_.push_back(past);
  }

  void record() {
    Live& live = live_[random_() % live_.size()];
    const orStream_t stream = any_stream();
    allocator_.record_stream(live.block, stream);
    if (stream != live.block->stream && std::ranges::find(live.users, stream) == live.users.end()) {
      live.users.push_back(stream);
    }
  }

  void step() {
    const uint64_t dice = random_() % 1000;
    // Sways between growing and shrinking, so that the device fills up and gets empty.
    const uint64_t allocations = (operation_ / 2000) % 2 == 0 ? 400 : 300;
    if (dice < allocations || live_.empty()) {
      allocate();
    } else if (dice < 700) {
      free_one();
    } else if (dice < 750 && GetParam().record) {
      record();
    } else if (dice < 850) {
      timeline_.queue(any_stream());
    } else if (dice < 990) {
      timeline_.run(any_stream(), static_cast<int64_t>(random_() % 4));
    } else if (dice < 993) {
      allocator_.empty_cache();
    } else if (dice < 995) {
      allocator_.reset_peak();
      for (auto& quantity : counts_) {
        for (Count& count : quantity) {
          count.peak = count.current;
        }
      }
    } else if (dice < 997) {
      allocator_.reset_accumulated();
      ooms_ = 0;
      for (auto& quantity : counts_) {
        for (Count& count : quantity) {
          count.allocated = 0;
          count.freed = 0;
        }
      }
    } else {
      while (!live_.empty() && random_() % 200 != 0) {
        free_one();
        compare();
      }
    }
  }

  // Bytes of segments, and how much of those with an active block is not active.
  void count_segments() {
    int64_t reserved = 0;
    for (const auto& [base, size] : source_.segments()) {
      reserved += static_cast<int64_t>(size);
    }
    Count& bytes = count(kReservedBytes, kAggregate);
    bytes.current = reserved;
    count(kSegment, kAggregate).current = static_cast<int64_t>(source_.segments().size());
    if (GetParam().record) {
      return;
    }
    int64_t split = 0;
    for (const auto& [base, size] : source_.segments()) {
      const auto first = reinterpret_cast<uintptr_t>(base);
      int64_t used = 0;
      for (const Live& live : live_) {
        if (live.base - first < size) {
          used += static_cast<int64_t>(live.size);
        }
      }
      split += used > 0 ? static_cast<int64_t>(size) - used : 0;
    }
    count(kInactiveSplitBytes, kAggregate).current = split;
  }

  void compare() {
    count_segments();
    const Stats stats = allocator_.stats();
    ASSERT_EQ(stats.num_ooms, ooms_);
    for (const Quantity quantity : {kAllocation, kAllocatedBytes, kRequestedBytes}) {
      for (const PoolType type : {kAggregate, kSmallPool, kLargePool}) {
        Count& expected = count(quantity, type);
        expected.peak = std::max(expected.peak, expected.current);
        const Stat& found = stats.stat[quantity][type];
        ASSERT_EQ(found.current, expected.current) << quantity << " " << type;
        ASSERT_EQ(found.peak, expected.peak) << quantity << " " << type;
        ASSERT_EQ(found.allocated, expected.allocated) << quantity << " " << type;
        ASSERT_EQ(found.freed, expected.freed) << quantity << " " << type;
      }
    }
    for (const Quantity quantity : {kReservedBytes, kSegment}) {
      Count& expected = count(quantity, kAggregate);
      expected.peak = std::max(expected.peak, expected.current);
      const Stat& found = stats.stat[quantity][kAggregate];
      ASSERT_EQ(found.current, expected.current);
      ASSERT_EQ(found.peak, expected.peak);
    }
    ASSERT_EQ(static_cast<int64_t>(source_.reserved()),
              stats.stat[kReservedBytes][kSmallPool].current +
                  stats.stat[kReservedBytes][kLargePool].current);

    // A freed block stays active for as long as its users have work, and until the allocator looks.
    std::erase_if(past_, [this](const Past& past) {
      return done(past.owner, past.owner_position) &&
             std::ranges::all_of(
                 past.users, [this](const auto& user) { return done(user.first, user.second); });
    });
    int64_t held_back = 0;
    for (const Past& past : past_) {
      if (!std::ranges::all_of(
              past.users, [this](const auto& user) { return done(user.first, user.second); })) {
        held_back += static_cast<int64_t>(past.size);
      }
    }
    const Stat& active = stats.stat[kActiveBytes][kAggregate];
    ASSERT_GE(active.current, count(kAllocatedBytes, kAggregate).current + held_back);
    ASSERT_GE(active.peak, active.current);
    if (!GetParam().record) {
      ASSERT_EQ(active.current, count(kAllocatedBytes, kAggregate).current);
      ASSERT_EQ(active.peak, count(kAllocatedBytes, kAggregate).peak);
      Count& split = count(kInactiveSplitBytes, kAggregate);
      split.peak = std::max(split.peak, split.current);
      ASSERT_EQ(stats.stat[kInactiveSplitBytes][kAggregate].current, split.current);
      ASSERT_EQ(stats.stat[kInactiveSplitBytes][kAggregate].peak, split.peak);
    }
    for (const PoolType type : {kAggregate, kSmallPool, kLargePool}) {
      const Stat& pieces = stats.stat[kInactiveSplit][type];
      const Stat& bytes = stats.stat[kInactiveSplitBytes][type];
      ASSERT_GE(pieces.current, 0);
      ASSERT_EQ(pieces.current == 0, bytes.current == 0);
      ASSERT_GE(pieces.peak, pieces.current);
      ASSERT_GE(bytes.peak, bytes.current);
    }
  }

  // Nothing is left behind: once all is freed and done, everything goes back.
  void finish() {
    while (!live_.empty()) {
      free_one();
    }
    for (uint64_t stream = 1; stream <= GetParam().streams; ++stream) {
      timeline_.run(fake_stream(stream), INT64_MAX / 2);
    }
    allocator_.empty_cache();
    const Stats stats = allocator_.stats();
    for (size_t quantity = 0; quantity < kQuantities; ++quantity) {
      for (const Stat& stat : stats.stat[quantity]) {
        ASSERT_EQ(stat.current, 0) << quantity;
      }
    }
    ASSERT_TRUE(source_.segments().empty());
    ASSERT_EQ(timeline_.marks_in_use(), 0U);
  }

  std::mt19937_64 random_{setting("OPENREG_FUZZ_SEED", 1)};
  FakeSource source_{GetParam().capacity};
  FakeTimeline timeline_;
  CachingAllocator allocator_{0, &source_, &timeline_};
  uint64_t operation_ = 0;
  std::vector<Live> live_;
  std::vector<Past> past_;
  std::array<std::array<Count, kPoolTypes>, kQuantities> counts_{};
  int64_t ooms_ = 0;
};

TEST_P(Fuzz, AgreesWithTheModel) {
  const uint64_t operations = setting("OPENREG_FUZZ_OPERATIONS", 100'000) / 4;
  for (; operation_ < operations; ++operation_) {
    ASSERT_NO_FATAL_FAILURE(step()) << "operation " << operation_;
    ASSERT_NO_FATAL_FAILURE(compare()) << "operation " << operation_;
  }
  ASSERT_NO_FATAL_FAILURE(finish());
}

INSTANTIATE_TEST_SUITE_P(Scenarios, Fuzz,
                         testing::Values(Scenario{"OneStream", size_t{1} << 40, 1, false, 24},
                                         Scenario{"SeveralStreams", size_t{1} << 40, 5, true, 24},
                                         Scenario{"NearlyFullDevice", 48 * kMiB, 3, true, 23},
                                         Scenario{"SmallBlocks", 24 * kMiB, 3, false, 18}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace openreg::allocator
