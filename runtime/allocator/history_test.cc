// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/history.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace openreg::allocator {
namespace {

Event alloc(uintptr_t address, size_t size = 64) {
  return {.action = Action::kAlloc, .address = address, .size = size};
}
Event free_requested(uintptr_t address) {
  return {.action = Action::kFreeRequested, .address = address};
}
Event free_completed(uintptr_t address) {
  return {.action = Action::kFreeCompleted, .address = address};
}

History::Settings everything(size_t capacity = 100) {
  return {.events = true, .capacity = capacity, .contexts = ContextLevel::kAll};
}

std::vector<uintptr_t> addresses(const History& history) {
  std::vector<uintptr_t> result;
  for (const History::Entry& entry : history.content().entries) {
    result.push_back(entry.event.address);
  }
  return result;
}

using Addresses = std::vector<uintptr_t>;

TEST(HistoryTest, RecordsNothingBeforeItStarts) {
  History history;
  history.observe(alloc(1));
  EXPECT_TRUE(history.content().entries.empty());
  EXPECT_TRUE(history.content().blocks.empty());
}

TEST(HistoryTest, KeepsEventsInOrderWithTheirTimes) {
  History history;
  history.start(everything(), /*clear=*/false);
  const int64_t before = std::chrono::duration_cast<std::chrono::microseconds>(
                             std::chrono::system_clock::now().time_since_epoch())
                             .count();
  history.observe(alloc(1, 4096));
  history.observe({.action = Action::kOutOfMemory, .address = 77, .size = 1 << 20});
  history.observe(free_requested(1));
  history.observe(free_completed(1));
  const History::Content content = history.content();
  ASSERT_EQ(content.entries.size(), 4);
  EXPECT_EQ(content.entries[0].event.action, Action::kAlloc);
  EXPECT_EQ(content.entries[0].event.size, 4096);
  EXPECT_EQ(content.entries[1].event.action, Action::kOutOfMemory);
  EXPECT_EQ(content.entries[1].event.address, 77);
  EXPECT_EQ(content.entries[2].event.action, Action::kFreeRequested);
  EXPECT_EQ(content.entries[3].event.action, Action::kFreeCompleted);
  EXPECT_GE(content.entries[0].time_us, before);
  EXPECT_LE(content.entries[0].time_us, before + 60'000'000);
}

TEST(HistoryTest, DropsTheOldestBeyondItsCapacity) {
  History history;
  history.start(everything(3), /*clear=*/false);
  for (uintptr_t address = 1; address <= 5; ++address) {
    history.observe(alloc(address));
  }
  EXPECT_EQ(addresses(history), (Addresses{3, 4, 5}));
  history.start(everything(2), /*clear=*/false);
  EXPECT_EQ(addresses(history), (Addresses{4, 5}));
  history.start(everything(2), /*clear=*/true);
  EXPECT_TRUE(history.content().entries.empty());
  // Memory in use is tracked even if few events are stored.
  EXPECT_EQ(history.content().blocks.size(), 5);
}

TEST(HistoryTest, StoppingDropsEverything) {
  History history;
  history.start(everything(), /*clear=*/false);
  history.observe(alloc(1));
  history.stop();
  history.observe(alloc(2));
  EXPECT_TRUE(history.content().entries.empty());
  EXPECT_TRUE(history.content().blocks.empty());
  history.start(everything(), /*clear=*/false);
  history.observe(alloc(3));
  EXPECT_EQ(addresses(history), (Addresses{3}));
}

TEST(HistoryTest, SkipsActions) {
  History history;
  History::Settings settings = everything();
  settings.skipped = 1U << static_cast<int>(Action::kFreeRequested);
  history.start(settings, /*clear=*/false);
  history.observe(alloc(1));
  history.observe(free_requested(1));
  history.observe(free_completed(1));
  const History::Content content = history.content();
  ASSERT_EQ(content.entries.size(), 2);
  EXPECT_EQ(content.entries[1].event.action, Action::kFreeCompleted);
  EXPECT_TRUE(content.blocks.empty());
}

TEST(HistoryTest, ContextsFollowTheThread) {
  const auto outer = std::make_shared<int>(1);
  const auto inner = std::make_shared<int>(2);
  EXPECT_EQ(ContextScope::current(), nullptr);
  {
    const ContextScope scope(outer);
    {
      const ContextScope nested(inner);
      EXPECT_EQ(ContextScope::current(), inner);
      std::thread([] { EXPECT_EQ(ContextScope::current(), nullptr); }).join();
    }
    EXPECT_EQ(ContextScope::current(), outer);
  }
  EXPECT_EQ(ContextScope::current(), nullptr);
}

TEST(HistoryTest, ContextsAreKeptAccordingToTheLevel) {
  const auto here = std::make_shared<int>(0);
  const ContextScope scope(here);
  struct Case {
    ContextLevel level;
    bool held, allocs, frees;
  };
  for (const Case& expected : {Case{ContextLevel::kNone, false, false, false},
                               Case{ContextLevel::kState, true, false, false},
                               Case{ContextLevel::kAlloc, true, true, false},
                               Case{ContextLevel::kAll, true, true, true}}) {
    History history;
    History::Settings settings = everything();
    settings.contexts = expected.level;
    history.start(settings, /*clear=*/false);
    history.observe({.action = Action::kSegmentAlloc, .address = 9});
    history.observe(alloc(1));
    history.observe(alloc(2));
    history.observe(free_requested(2));
    history.observe(free_completed(2));
    const History::Content content = history.content();
    ASSERT_EQ(content.entries.size(), 5);
    EXPECT_EQ(content.blocks.count(1) == 1 && content.blocks.at(1) == here, expected.held);
    EXPECT_EQ(content.segments.count(9) == 1 && content.segments.at(9) == here, expected.held);
    EXPECT_EQ(content.blocks.count(2), 0);
    EXPECT_EQ(content.entries[1].context == here, expected.allocs);
    EXPECT_EQ(content.entries[3].context == here, expected.frees);
  }
}

TEST(HistoryTest, DroppedEntriesReleaseTheirContexts) {
  History history;
  history.start(everything(1), /*clear=*/false);
  std::weak_ptr<int> watched;
  {
    const auto context = std::make_shared<int>(0);
    watched = context;
    const ContextScope scope(context);
    history.observe(alloc(1));
    history.observe(free_completed(1));
  }
  EXPECT_FALSE(watched.expired());
  history.observe(alloc(2));
  EXPECT_TRUE(watched.expired());
}

TEST(HistoryTest, WithoutEventsOnlyTheStateIsKept) {
  History history;
  History::Settings settings = everything();
  settings.events = false;
  history.start(settings, /*clear=*/false);
  const ContextScope scope(std::make_shared<int>(0));
  history.observe(alloc(1));
  history.observe(alloc(2));
  history.observe(free_completed(1));
  EXPECT_TRUE(history.content().entries.empty());
  EXPECT_EQ(history.content().blocks.size(), 1);
  EXPECT_NE(history.content().blocks.at(2), nullptr);
}

TEST(HistoryTest, ThreadsMayObserveTogether) {
  History history;
  history.start(everything(1000), /*clear=*/false);
  {
    std::vector<std::jthread> threads;
    for (uintptr_t thread = 1; thread <= 4; ++thread) {
      threads.emplace_back([&history, thread] {
        for (uintptr_t i = 0; i < 1000; ++i) {
          history.observe(alloc(thread << 32 | i));
          history.observe(free_completed(thread << 32 | i));
        }
      });
    }
  }
  EXPECT_EQ(history.content().entries.size(), 1000);
  EXPECT_TRUE(history.content().blocks.empty());
}

}  // namespace
}  // namespace openreg::allocator
