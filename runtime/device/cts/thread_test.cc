// SPDX-License-Identifier: BSD-3-Clause
//
// Calls all functions of tiers 1 and 2 from several threads at the same time.
#include <mutex>
#include <random>

#include "runtime/device/cts/fixture.h"

namespace openreg::cts {
namespace {

constexpr int kThreads = 6;
constexpr int kRounds = 200;

class Tier2ThreadTest : public Tier2Test {
 protected:
  template <class Body>
  static void OnAllThreads(Body body) {
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int number = 0; number < kThreads; ++number) {
      threads.emplace_back([&body, number] { body(number); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
};

TEST_F(Tier2ThreadTest, ThreadsShareAStream) {
  const orStream_t stream = CreateStream();
  int counter = 0;  // needs no lock, because only commands of the stream access it
  OnAllThreads([&](int) {
    for (int round = 0; round < kRounds; ++round) {
      ASSERT_OK(QueueFunction(stream, [&counter] { ++counter; }));
      if (round % 64 == 0) {
        ASSERT_OK(orStreamSynchronize(stream));
      }
    }
  });
  ASSERT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(counter, kThreads * kRounds);
}

TEST_F(Tier2ThreadTest, EventsOrderStreamsOfAllThreads) {
  std::mutex mutex;
  int counter = 0;  // needs no lock, because the events order all accesses
  const orEvent_t last = CreateEvent();
  OnAllThreads([&](int) {
    const orStream_t stream = CreateStream();
    for (int round = 0; round < kRounds; ++round) {
      const std::lock_guard lock(mutex);
      ASSERT_OK(orStreamWaitEvent(stream, last, 0));
      ASSERT_OK(QueueFunction(stream, [&counter] { ++counter; }));
      ASSERT_OK(orEventRecord(last, stream));
    }
  });
  ASSERT_OK(orEventSynchronize(last));
  EXPECT_EQ(counter, kThreads * kRounds);
}

TEST_F(Tier2ThreadTest, ThreadsUseAllFeaturesOnStreamsOfTheirOwn) {
  OnAllThreads([this](int number) {
    std::mt19937 random(static_cast<unsigned>(number));
    ASSERT_OK(orSetDevice(number % count_));
    orStream_t stream = CreateStream();
    const orEvent_t event = CreateEvent(number % 2 == 0 ? orEventEnableTiming : 0);
    for (int round = 0; round < kRounds; ++round) {
      const size_t count = 1 + random() % 10000;
      const size_t size = count * sizeof(uint32_t);
      void* memory = nullptr;
      void* pinned = nullptr;
      ASSERT_OK(orMalloc(&memory, size));
      ASSERT_OK(orMallocHost(&pinned, size));
      const uint32_t value = random();
      ASSERT_OK(orMemsetAsync(memory, 0, size, stream));
      ASSERT_OK(TestedDriver().launch_fill(stream, memory, count, value));
      ASSERT_OK(orMemcpyAsync(pinned, memory, size, orMemcpyDeviceToHost, stream));
      ASSERT_OK(orEventRecord(event, stream));
      ASSERT_OK(orEventSynchronize(event));
      const auto* words = static_cast<const uint32_t*>(pinned);
      ASSERT_EQ(words[0], value);
      ASSERT_EQ(words[count - 1], value);
      orPointerAttributes attributes;
      ASSERT_OK(orPointerGetAttributes(&attributes, static_cast<char*>(memory) + size - 1));
      ASSERT_EQ(attributes.base, memory);
      ASSERT_OK(orFree(memory));
      ASSERT_OK(orFreeHost(pinned));
      if (round % 8 == 0) {
        ASSERT_OK(orStreamDestroy(stream));
        stream = CreateStream();
        ASSERT_OK(orMemTrim(nullptr));
      }
      if (round % 16 == 0) {
        ASSERT_OK(orDeviceSynchronize());
      }
    }
  });
}

}  // namespace
}  // namespace openreg::cts
