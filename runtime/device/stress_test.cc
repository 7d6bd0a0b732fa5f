// SPDX-License-Identifier: BSD-3-Clause
//
// Tests in which eight threads use all features at the same time. The tests check the results of
// the computations, and the sanitizers check the synchronization.
//
// If OPENREG_STRESS_SECONDS is set, the test of shared streams runs for that time:
//
//   ./bazelw test --config=tsan //runtime/device:device_test_2_devices_async
//       --test_filter='StressTest.*Share*' --test_env=OPENREG_STRESS_SECONDS=60
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <random>
#include <string>

#include "runtime/device/device_fixture.h"

namespace openreg::device {
namespace {

constexpr int kThreads = 8;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kRounds = 300;
#else
constexpr int kRounds = 2000;
#endif

class StressTest : public DeviceTest {
 protected:
  template <class Function>
  static void OnAllThreads(Function function) {
    std::vector<std::thread> threads;
    for (int number = 0; number < kThreads; ++number) {
      threads.emplace_back([&function, number] { function(number); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  // An arbitrary estimate, for which a few moldable kernels are worth a team.
  static constexpr uint32_t kWork = 100'000;

  // The counter is not atomic: the stream must run kernels one at a time and make their writes
  // visible.
  static orError_t Increment(void* arguments) {
    ++**static_cast<int64_t**>(arguments);
    return orSuccess;
  }
};

TEST_F(StressTest, AllThreadsLaunchAllKindsOnOneStream) {
  const orStream_t stream = CreateStream();
  int64_t counter = 0;
  OnAllThreads([&](int number) {
    std::mt19937 random(static_cast<unsigned>(number));
    int64_t* pointer = &counter;
    for (int round = 0; round < kRounds; ++round) {
      const uint32_t kinds[] = {0, orLaunchInline, orLaunchMoldable, orLaunchParallel};
      const orLaunchAttributes attributes{"increment", kinds[random() % 4], kWork};
      ASSERT_OK(orLaunchKernel(stream, Increment, &pointer, sizeof(pointer), &attributes));
      if (random() % 64 == 0) {
        ASSERT_OK(orStreamSynchronize(stream));
      }
    }
  });
  ASSERT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(counter, int64_t{kThreads} * kRounds);
}

TEST_F(StressTest, EventsOrderStreamsOfAllThreads) {
  // The events form a chain through all streams, which orders each kernel after the previous one.
  std::mutex mutex;
  int64_t counter = 0;
  orEvent_t last;
  ASSERT_OK(orEventCreate(&last));
  OnAllThreads([&](int) {
    const orStream_t stream = CreateStream();
    int64_t* pointer = &counter;
    for (int round = 0; round < kRounds / 4; ++round) {
      std::lock_guard lock(mutex);
      ASSERT_OK(orStreamWaitEvent(stream, last, 0));
      const uint32_t kinds[] = {0, orLaunchInline, orLaunchMoldable, orLaunchParallel};
      const orLaunchAttributes attributes{"increment", kinds[round % 4], kWork};
      ASSERT_OK(orLaunchKernel(stream, Increment, &pointer, sizeof(pointer), &attributes));
      ASSERT_OK(orEventRecord(last, stream));
    }
  });
  ASSERT_OK(orEventSynchronize(last));
  EXPECT_EQ(counter, int64_t{kThreads} * (kRounds / 4));
}

TEST_F(StressTest, ThreadsUseAllFeaturesOnSeparateStreams) {
  OnAllThreads([this](int number) {
    std::mt19937 random(static_cast<unsigned>(number));
    ASSERT_OK(orSetDevice(number % count_));
    orStream_t stream = CreateStream();
    orEvent_t event;
    ASSERT_OK(orEventCreate(&event));
    for (int round = 0; round < kRounds / 10; ++round) {
      const size_t size = 1 + random() % 50000;
      void* memory = nullptr;
      void* pinned = nullptr;
      ASSERT_OK(orMalloc(&memory, size));
      ASSERT_OK(orMallocHost(&pinned, size));
      const int value = static_cast<int>(random() % 256);
      ASSERT_OK(orMemsetAsync(memory, value, size, stream));
      ASSERT_OK(orMemcpyAsync(pinned, memory, size, orMemcpyDeviceToHost, stream));
      ASSERT_OK(orEventRecord(event, stream));
      ASSERT_OK(orEventSynchronize(event));
      const auto* bytes = static_cast<const unsigned char*>(pinned);
      ASSERT_EQ(bytes[0], value);
      ASSERT_EQ(bytes[size - 1], value);
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
    ASSERT_OK(orEventDestroy(event));
    ASSERT_OK(orStreamDestroy(stream));
  });
}

// Each thread moves its numbers between streams and devices that all threads use. Events order each
// step after the previous one.
TEST_F(StressTest, ThreadsShareFourStreamsOfEachDevice) {
  constexpr int kStreams = 4;
  constexpr size_t kNumbers = 1000;
  constexpr size_t kSize = kNumbers * sizeof(int64_t);
  const int devices = std::min(count_, 2);
  std::array<std::array<orStream_t, kStreams>, 2> streams{};
  for (int device = 0; device < devices; ++device) {
    ASSERT_OK(orSetDevice(device));
    for (orStream_t& stream : streams[static_cast<size_t>(device)]) {
      stream = CreateStream();
    }
  }
  const char* const seconds = std::getenv("OPENREG_STRESS_SECONDS");
  std::optional<std::chrono::steady_clock::time_point> end;
  if (seconds != nullptr) {
    end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(seconds));
  }
  std::atomic<int64_t> programs{0};
  OnAllThreads([&](int thread) {
    struct Addition {
      int64_t* numbers;
      int64_t value;
    };
    const orKernelFunction_t add = [](void* arguments) {
      const auto& addition = *static_cast<const Addition*>(arguments);
      for (size_t i = 0; i < kNumbers; ++i) {
        addition.numbers[i] += addition.value;
      }
      return orSuccess;
    };
    std::mt19937 random(static_cast<unsigned>(thread));
    const auto draw = [&random](int below) {
      return static_cast<size_t>(random() % static_cast<unsigned>(below));
    };
    std::array<void*, 2> memory{};
    std::array<orEvent_t, 2> events{};
    void* pinned = nullptr;
    for (size_t device = 0; device < static_cast<size_t>(devices); ++device) {
      ASSERT_OK(orSetDevice(static_cast<int>(device)));
      ASSERT_OK(orMalloc(&memory[device], kSize));
      ASSERT_OK(orEventCreate(&events[device]));
    }
    ASSERT_OK(orMallocHost(&pinned, kSize));
    for (int round = 0; end ? std::chrono::steady_clock::now() < *end : round < kRounds / 20;
         ++round) {
      size_t device = draw(devices);
      orStream_t stream = streams[device][draw(kStreams)];
      int64_t expected = 0;
      ASSERT_OK(orMemsetAsync(memory[device], 0, kSize, stream));
      for (int hop = 0; hop < 6; ++hop) {
        ASSERT_OK(orEventRecord(events[device], stream));
        const size_t next = draw(devices);
        stream = streams[next][draw(kStreams)];
        ASSERT_OK(orStreamWaitEvent(stream, events[device], 0));
        if (next != device) {
          ASSERT_OK(orMemcpyPeerAsync(memory[next], static_cast<int>(next), memory[device],
                                      static_cast<int>(device), kSize, stream));
          device = next;
        }
        const auto value = static_cast<int64_t>(draw(1000));
        void* seen = nullptr;
        ASSERT_OK(orGetKernelPointer(&seen, memory[device]));
        const Addition addition{static_cast<int64_t*>(seen), value};
        const uint32_t kinds[] = {0, orLaunchInline, orLaunchMoldable, orLaunchParallel};
        const orLaunchAttributes attributes{"add", kinds[draw(4)], kWork};
        ASSERT_OK(orLaunchKernel(stream, add, &addition, sizeof(addition), &attributes));
        expected += value;
      }
      ASSERT_OK(orMemcpyAsync(pinned, memory[device], kSize, orMemcpyDeviceToHost, stream));
      ASSERT_OK(orEventRecord(events[device], stream));
      ASSERT_OK(orEventSynchronize(events[device]));
      const auto* const numbers = static_cast<const int64_t*>(pinned);
      ASSERT_EQ(std::count(numbers, numbers + kNumbers, expected), int64_t{kNumbers});
      programs.fetch_add(1, std::memory_order_relaxed);
    }
    for (size_t device = 0; device < static_cast<size_t>(devices); ++device) {
      ASSERT_OK(orFree(memory[device]));
      ASSERT_OK(orEventDestroy(events[device]));
    }
    ASSERT_OK(orFreeHost(pinned));
  });
  RecordProperty("programs", std::to_string(programs.load()));
  std::cout << programs.load() << " programs of " << kThreads << " threads\n";
}

TEST_F(StressTest, SleepingAndWakingLosesNoCommand) {
  // The pauses have about the length after which a worker falls asleep.
  const orStream_t stream = CreateStream();
  std::mt19937 random(7);
  int64_t counter = 0;
  int64_t* pointer = &counter;
  for (int round = 0; round < kRounds; ++round) {
    const orLaunchAttributes attributes{"increment",
                                        round % 5 == 0 ? uint32_t{orLaunchParallel} : 0u, 0};
    ASSERT_OK(orLaunchKernel(stream, Increment, &pointer, sizeof(pointer), &attributes));
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 60);
    while (std::chrono::steady_clock::now() < end) {
    }
    if (round % 3 == 0) {
      ASSERT_OK(orStreamSynchronize(stream));
    }
  }
  ASSERT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(counter, kRounds);
}

TEST_F(StressTest, StaleHandlesUsedByOtherThreadsNeverCrash) {
  std::atomic<orStream_t> shared{CreateStream()};
  std::atomic<bool> stop{false};
  std::vector<std::thread> users;
  for (int number = 0; number < kThreads - 1; ++number) {
    users.emplace_back([&] {
      while (!stop.load()) {
        const orStream_t stream = shared.load();
        const orError_t launched =
            orLaunchKernel(stream, [](void*) { return orSuccess; }, nullptr, 0, nullptr);
        ASSERT_TRUE(launched == orSuccess || launched == orErrorInvalidHandle)
            << orGetErrorName(launched);
        const orError_t queried = orStreamQuery(stream);
        ASSERT_TRUE(queried == orSuccess || queried == orErrorNotReady ||
                    queried == orErrorInvalidHandle);
      }
    });
  }
  for (int round = 0; round < kRounds / 10; ++round) {
    const orStream_t old = shared.exchange(CreateStream());
    ASSERT_OK(orStreamDestroy(old));
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  stop = true;
  for (std::thread& user : users) {
    user.join();
  }
  EXPECT_OK(orDeviceSynchronize());
}

}  // namespace
}  // namespace openreg::device
