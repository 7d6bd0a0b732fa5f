// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/handle.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <new>
#include <set>
#include <thread>

namespace openreg::device {
namespace {

struct Thing : HandleSlot {};
using Things = HandleTable<Thing, 6, 1>;
using Others = HandleTable<Thing, 6, 2>;

TEST(HandleTest, FindsOnlyPublishedHandles) {
  auto things = std::make_unique<Things>();
  EXPECT_EQ(things->Find(0), nullptr);
  EXPECT_EQ(things->Find(1), nullptr);
  Thing* thing = things->Take();
  EXPECT_EQ(things->Find(0), nullptr);  // allocated but not published yet
  const uint64_t handle = things->Publish(thing);
  EXPECT_EQ(things->Find(handle), thing);
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_EQ(things->Find(handle ^ (uint64_t{1} << bit)), nullptr) << bit;
  }
}

TEST(HandleTest, ARecycledObjectHasANewHandle) {
  auto things = std::make_unique<Things>();
  std::set<uint64_t> handles;
  for (int round = 0; round < 1000; ++round) {
    Thing* thing = things->Take();
    const uint64_t handle = things->Publish(thing);
    EXPECT_TRUE(handles.insert(handle).second);
    EXPECT_TRUE(things->Retire(thing, handle));
    EXPECT_FALSE(things->Retire(thing, handle));  // an object can be retired only once
    EXPECT_EQ(things->Find(handle), nullptr);
    things->Recycle(thing);
  }
  EXPECT_EQ(things->size(), 1u);
}

TEST(HandleTest, TablesDistinguishTheirHandles) {
  auto things = std::make_unique<Things>();
  auto others = std::make_unique<Others>();
  const uint64_t thing = things->Publish(things->Take());
  const uint64_t other = others->Publish(others->Take());
  EXPECT_NE(thing, other);
  EXPECT_EQ(things->Find(other), nullptr);
  EXPECT_EQ(others->Find(thing), nullptr);
}

// An object for which there is never enough memory.
struct Scarce : HandleSlot {
  static void* operator new[](size_t, const std::nothrow_t&) noexcept { return nullptr; }
  static void operator delete[](void*) {}
};

TEST(HandleTest, AFailureToTakeNamesItsCause) {
  HandleTable<Scarce, 6, 1> scarce;
  EXPECT_EQ(scarce.Take(), nullptr);
  EXPECT_EQ(scarce.FailTake("a thing", "things"), orErrorSystem);
  EXPECT_STREQ(orGetLastErrorDetail(), "openreg: cannot create a thing: out of host memory");
  Things things;
  while (things.Take() != nullptr) {
  }
  EXPECT_EQ(things.FailTake("a thing", "things"), orErrorSystem);
  EXPECT_STREQ(orGetLastErrorDetail(),
               "openreg: cannot create a thing: the limit of 64 things has been reached; destroy "
               "things that are no longer needed");
  EXPECT_EQ(orGetLastError(), orErrorSystem);
}

TEST(HandleTest, AFullTableReturnsNull) {
  auto things = std::make_unique<Things>();
  std::set<Thing*> taken;
  for (uint32_t index = 0; index < Things::kCapacity; ++index) {
    Thing* thing = things->Take();
    ASSERT_NE(thing, nullptr);
    EXPECT_TRUE(taken.insert(thing).second);
    EXPECT_EQ(things->At(index), thing);
  }
  EXPECT_EQ(things->Take(), nullptr);
  things->Recycle(*taken.begin());
  EXPECT_EQ(things->Take(), *taken.begin());
}

TEST(HandleTest, OnlyOneOfManyThreadsRetiresAnObject) {
  auto things = std::make_unique<Things>();
  for (int round = 0; round < 200; ++round) {
    Thing* thing = things->Take();
    const uint64_t handle = things->Publish(thing);
    std::atomic<int> retired{0};
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; ++number) {
      threads.emplace_back([&] { retired += things->Retire(thing, handle); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(retired.load(), 1);
    things->Recycle(thing);
  }
}

}  // namespace
}  // namespace openreg::device
