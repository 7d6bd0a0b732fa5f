// SPDX-License-Identifier: BSD-3-Clause
//
// Runs random operations on a CachingAllocator and checks each one against a simple model:
//
//   - A block has the requested size, is aligned, lies inside a segment and overlaps no other live
//     block.
//   - A stream receives memory only if all earlier work on the memory is done or precedes the new
//     work in the same stream.
//   - A segment serves one stream and one pool: the pool from which its blocks were requested. It
//     exists at least as long as the pool has a use. The pool exists as long as it has a use or a
//     segment.
//   - The source never provides more than the limit.
//   - After every operation, all statistics including peaks match those that the model counts.
//
// OPENREG_FUZZ_OPERATIONS and OPENREG_FUZZ_SEED set the number of operations and the seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/fake_device.h"
#include "runtime/allocator/limited_source.h"
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
  bool pools;          // uses private pools
  bool limits;         // uses limits and a threshold for garbage collection
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
    PoolId pool;
    std::vector<orStream_t> users;  // streams other than the block's own
  };
  // Memory that was freed while streams still had work that uses it.
  struct Past {
    uintptr_t base;
    size_t size;
    PoolType type;
    orStream_t owner;
    int64_t owner_position;
    std::vector<std::pair<orStream_t, int64_t>> users;
    bool passed;  // whether all users had passed when the allocator last checked
  };
  struct Owner {
    PoolId pool;
    orStream_t stream;
    void* base;
    bool operator==(const Owner&) const = default;
  };
  struct Redirect {
    PoolId pool;
    uint64_t streams;  // a set with one bit per stream
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

  static constexpr uint64_t kPools = 4;
  PoolId any_pool() { return {0, random_() % kPools + 1}; }

  PoolId pool_for(orStream_t stream) const {
    const uint64_t bit = uint64_t{1} << (reinterpret_cast<uintptr_t>(stream) / 0x1000);
    const auto redirect = std::ranges::find_if(redirects_.rbegin(), redirects_.rend(),
                                               [&](const Redirect& r) { return r.streams & bit; });
    return redirect != redirects_.rend() ? redirect->pool : kCommonPool;
  }

  bool owns_segments(PoolId id) const {
    return std::ranges::any_of(owners_, [&](const auto& owner) { return owner.second.pool == id; });
  }

  void begin_pool() {
    const PoolId id = any_pool();
    const uint64_t streams = random_();
    const auto filter = [streams](orStream_t stream) {
      return ((streams >> (reinterpret_cast<uintptr_t>(stream) / 0x1000)) & 1) != 0;
    };
    if (uses_[id] == 0 && owns_segments(id)) {
      ASSERT_THROW(allocator_.begin_allocate_to_pool(id, filter), Error);
      return;
    }
    allocator_.begin_allocate_to_pool(id, filter);
    redirects_.push_back({id, streams});
    ++uses_[id];
  }

  void end_pool() {
    const PoolId id = redirects_[random_() % redirects_.size()].pool;
    allocator_.end_allocate_to_pool(id);
    const auto latest =
        std::ranges::find(redirects_.rbegin(), redirects_.rend(), id, &Redirect::pool);
    redirects_.erase(std::next(latest).base());
  }

  void release_pool() {
    const PoolId id = any_pool();
    const bool redirected = std::ranges::find(redirects_, id, &Redirect::pool) != redirects_.end();
    if (uses_[id] == 0 || (uses_[id] == 1 && redirected)) {
      ASSERT_THROW(allocator_.release_pool(id), Error);
      return;
    }
    allocator_.release_pool(id);
    --uses_[id];
  }

  // Removes segments that no longer exist from the model. Checks that the allocator was allowed to
  // release them.
  void compare_pools() {
    for (auto owner = owners_.begin(); owner != owners_.end();) {
      const bool gone = whole_.serial(owner->second.base) != owner->first;
      ASSERT_FALSE(gone && uses_[owner->second.pool] > 0) << "a pool in use lost a segment";
      owner = gone ? owners_.erase(owner) : std::next(owner);
    }
    for (uint64_t i = 1; i <= kPools; ++i) {
      const PoolId id{0, i};
      ASSERT_EQ(allocator_.pool_uses(id), uses_[id]);
      ASSERT_EQ(allocator_.pool_exists(id), uses_[id] > 0 || owns_segments(id)) << i;
    }
  }

  void change_limit() {
    const uint64_t dice = random_() % 4;
    source_.set_limit(dice == 0 ? Source::kNoLimit : GetParam().capacity / 4 * dice);
    allocator_.set_settings({.collect_above = random_() % 2 == 0 ? 0 : 0.7});
  }

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
    const PoolId pool = pool_for(stream);
    const size_t held_before = whole_.reserved();
    Block* block = nullptr;
    try {
      block = allocator_.allocate(bytes, stream);
    } catch (const OutOfMemoryError& error) {
      ++ooms_;
      ASSERT_EQ(error.figures().asked, bytes);
      ASSERT_EQ(static_cast<int64_t>(error.figures().allocated),
                count(kAllocatedBytes, kAggregate).current);
      const size_t allowed = source_.limit() - std::min(source_.limit(), error.figures().reserved);
      ASSERT_LT(std::min(error.figures().device_free, allowed), bytes + kSmallSegment)
          << "there was room";
      return;
    }
    const Live live{.block = block,
                    .base = reinterpret_cast<uintptr_t>(block->pointer),
                    .size = block->size,
                    .requested = bytes,
                    .type = bytes > kLargestSmall ? kLargePool : kSmallPool,
                    .pool = pool,
                    .users = {}};
    ASSERT_EQ(block->requested, bytes);
    ASSERT_EQ(block->stream, stream);
    ASSERT_GE(live.size, bytes);
    ASSERT_LE(live.size, bytes + std::max<size_t>(bytes / 4, kRangeGranule) + kAlignment);
    ASSERT_EQ(live.base % kAlignment, 0U);

    const auto segment = [&] {
      auto after = whole_.segments().upper_bound(block->pointer);
      return *std::prev(after);
    }();
    ASSERT_LE(whole_.reserved(), std::max(source_.limit(), held_before));
    const Owner owner{.pool = pool, .stream = stream, .base = segment.first};
    const auto [known, is_new] = owners_.try_emplace(whole_.serial(segment.first), owner);
    ASSERT_TRUE(known->second == owner) << "a segment of another pool";
    for (const Live& other : live_) {
      if (other.base - reinterpret_cast<uintptr_t>(segment.first) < segment.second) {
        ASSERT_TRUE(other.pool == pool && other.block->stream == stream);
      }
    }
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
    // Alternate between growing and shrinking, so that the device becomes full and empty.
    const uint64_t allocations = (operation_ / 2000) % 2 == 0 ? 400 : 300;
    if (dice < allocations || live_.empty()) {
      allocate();
    } else if (dice < 700) {
      free_one();
    } else if (dice < 750 && GetParam().record) {
      record();
    } else if (dice < 850) {
      timeline_.queue(any_stream());
    } else if (dice < 955) {
      timeline_.run(any_stream(), static_cast<int64_t>(random_() % 4));
    } else if (dice < 964 && GetParam().pools) {
      begin_pool();
    } else if (dice < 975 && GetParam().pools && !redirects_.empty()) {
      end_pool();
    } else if (dice < 985 && GetParam().pools) {
      release_pool();
    } else if (dice < 988 && GetParam().pools) {
      allocator_.empty_cache(any_pool());
    } else if (dice < 990 && GetParam().limits) {
      change_limit();
    } else if (dice < 990) {
      timeline_.run(any_stream(), 1);
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

  // Counts the bytes of all segments, and the inactive bytes of those with an active block.
  void count_segments() {
    int64_t reserved = 0;
    for (const auto& [base, size] : whole_.segments()) {
      reserved += static_cast<int64_t>(size);
    }
    Count& bytes = count(kReservedBytes, kAggregate);
    bytes.current = reserved;
    count(kSegment, kAggregate).current = static_cast<int64_t>(whole_.segments().size());
    if (GetParam().record) {
      return;
    }
    int64_t split = 0;
    for (const auto& [base, size] : whole_.segments()) {
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
    ASSERT_NO_FATAL_FAILURE(compare_pools());
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
    ASSERT_EQ(static_cast<int64_t>(whole_.reserved()),
              stats.stat[kReservedBytes][kSmallPool].current +
                  stats.stat[kReservedBytes][kLargePool].current);

    // A freed block stays active while its users have work, and then until the allocator checks it.
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

  // Checks for leaks: after all blocks are freed and all work is done, all memory must return to
  // the source.
  void finish() {
    while (!live_.empty()) {
      free_one();
    }
    for (uint64_t stream = 1; stream <= GetParam().streams; ++stream) {
      timeline_.run(fake_stream(stream), INT64_MAX / 2);
    }
    while (!redirects_.empty()) {
      end_pool();
    }
    for (auto& [id, uses] : uses_) {
      for (; uses > 0; --uses) {
        allocator_.release_pool(id);
      }
    }
    allocator_.empty_cache();
    ASSERT_NO_FATAL_FAILURE(compare_pools());
    const Stats stats = allocator_.stats();
    for (size_t quantity = 0; quantity < kQuantities; ++quantity) {
      for (const Stat& stat : stats.stat[quantity]) {
        ASSERT_EQ(stat.current, 0) << quantity;
      }
    }
    ASSERT_TRUE(whole_.segments().empty());
    ASSERT_EQ(timeline_.marks_in_use(), 0U);
  }

  std::mt19937_64 random_{setting("OPENREG_FUZZ_SEED", 1)};
  FakeSource whole_{GetParam().capacity};
  LimitedSource source_{&whole_};
  FakeTimeline timeline_;
  CachingAllocator allocator_{0, &source_, &timeline_};
  uint64_t operation_ = 0;
  std::vector<Live> live_;
  std::vector<Past> past_;
  std::array<std::array<Count, kPoolTypes>, kQuantities> counts_{};
  int64_t ooms_ = 0;
  std::map<int64_t, Owner> owners_;  // the model's segments, by serial number
  std::vector<Redirect> redirects_;
  std::map<PoolId, int64_t> uses_;
};

TEST_P(Fuzz, AgreesWithTheModel) {
  const uint64_t operations = setting("OPENREG_FUZZ_OPERATIONS", 100'000) / 5;
  for (; operation_ < operations; ++operation_) {
    ASSERT_NO_FATAL_FAILURE(step()) << "operation " << operation_;
    ASSERT_NO_FATAL_FAILURE(compare()) << "operation " << operation_;
  }
  ASSERT_NO_FATAL_FAILURE(finish());
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, Fuzz,
    testing::Values(Scenario{"OneStream", size_t{1} << 40, 1, false, false, false, 24},
                    Scenario{"SeveralStreams", size_t{1} << 40, 5, true, true, false, 24},
                    Scenario{"NearlyFullDevice", 48 * kMiB, 3, true, false, true, 23},
                    Scenario{"SmallBlocks", 24 * kMiB, 3, false, false, false, 18},
                    Scenario{"PoolsOnASmallDevice", 96 * kMiB, 2, false, true, true, 22}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace openreg::allocator
