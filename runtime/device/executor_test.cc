// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/executor.h"

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/device/device_fixture.h"

namespace openreg::device {
namespace {

class ExecutorTest : public DeviceTest {
 protected:
  // Launches `function` as a kernel with these flags.
  template <class Function>
  static void Launch(orStream_t stream, uint32_t flags, Function* function) {
    const orLaunchAttributes attributes{"test", flags, 0};
    ASSERT_OK(orLaunchKernel(
        stream,
        [](void* arguments) {
          (**static_cast<Function**>(arguments))();
          return orSuccess;
        },
        &function, sizeof(function), &attributes));
  }
};

TEST_F(ExecutorTest, AllParallelKernelsRunOnOneThread) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::set<std::string> names;
  auto where = [&] {
    char name[16];
    pthread_getname_np(pthread_self(), name, sizeof(name));
    std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    names.insert(name);
  };
  for (int device = 0; device < count_; ++device) {
    ASSERT_OK(orSetDevice(device));
    for (int number = 0; number < 3; ++number) {
      const orStream_t stream = CreateStream();
      for (int round = 0; round < 50; ++round) {
        Launch(stream, orLaunchParallel, &where);
      }
    }
  }
  for (int device = 0; device < count_; ++device) {
    ASSERT_OK(orSetDevice(device));
    ASSERT_OK(orDeviceSynchronize());
  }
  EXPECT_EQ(threads.size(), 1u);
  EXPECT_EQ(names, std::set<std::string>{"openreg-exec"});
}

TEST_F(ExecutorTest, ShortKernelsBetweenParallelOnesStayOnTheExecutor) {
  QueueLaunches();
  const orStream_t stream = CreateStream();
  std::set<std::thread::id> threads;  // needs no lock, because the stream runs one kernel at a time
  auto where = [&] { threads.insert(std::this_thread::get_id()); };
  Gate gate;
  ASSERT_OK(gate.Launch(stream, orLaunchParallel));
  Launch(stream, orLaunchShort, &where);
  Launch(stream, orLaunchInline, &where);
  Launch(stream, orLaunchParallel, &where);
  gate.Open();
  ASSERT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(threads.size(), 1u);
  Launch(stream, 0, &where);  // a kernel that may take long runs on the worker
  ASSERT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(threads.size(), 2u);
}

// Returns whether the operating system reports the thread as asleep.
bool IsAsleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string stat;
  std::getline(file, stat);
  return stat.substr(stat.rfind(')') + 2, 1) == "S";
}

// Queues four moldable kernels of 100 us behind a closed gate and calls `wait`, which opens the
// gate. Returns 1 for each kernel that had a team, otherwise 0.
template <class Wait>
std::vector<int> Teams(orStream_t stream, Wait&& wait) {
  std::vector<int> teams;
  auto* const where = &teams;
  Gate gate;
  EXPECT_OK(gate.Launch(stream));
  for (int i = 0; i < 4; ++i) {
    const orLaunchAttributes attributes{"moldable", orLaunchMoldable, 100'000};
    EXPECT_OK(orLaunchKernel(
        stream,
        [](void* arguments) {
          (*static_cast<std::vector<int>**>(arguments))->push_back(orKernelHasTeam());
          return orSuccess;
        },
        &where, sizeof(where), &attributes));
  }
  wait(gate);
  return teams;
}

TEST_F(ExecutorTest, MoldableKernelsHaveATeamIfTheHostSleepsAndMuchIsQueued) {
  QueueLaunches();
  const orStream_t stream = CreateStream();
  const auto sleep = [&](Gate& gate) {
    const pid_t host = gettid();
    std::atomic<bool> waits{false};
    std::thread opener([&] {
      EXPECT_TRUE(Eventually([&] { return waits && IsAsleep(host); }));
      gate.Open();
    });
    waits = true;
    EXPECT_OK(orStreamSynchronize(stream));
    opener.join();
  };
  // A team is worth its cost for at least 250 us of queued work; the last two kernels have less.
  // The comparison is repeated, because the host may be woken too early.
  EXPECT_TRUE(Eventually([&] { return Teams(stream, sleep) == std::vector<int>{1, 1, 0, 0}; }));
}

TEST_F(ExecutorTest, MoldableKernelsHaveOneThreadWhileTheHostIsAwake) {
  QueueLaunches();
  const orStream_t stream = CreateStream();
  const auto poll = [&](Gate& gate) {
    gate.Open();
    while (orStreamQuery(stream) == orErrorNotReady) {
    }
  };
  EXPECT_EQ(Teams(stream, poll), (std::vector<int>{0, 0, 0, 0}));
}

TEST_F(ExecutorTest, KernelsOfAllKindsRunInOrder) {
  const orStream_t stream = CreateStream();
  std::vector<int> order;
  struct Step {
    std::vector<int>* order;
    int number;
    void operator()() const { order->push_back(number); }
  };
  std::vector<Step> steps;
  for (int number = 0; number < 3000; ++number) {
    steps.push_back({&order, number});
  }
  for (int number = 0; number < 3000; ++number) {
    const uint32_t kinds[] = {0, orLaunchInline, orLaunchParallel, orLaunchParallel, orLaunchShort};
    Launch(stream, kinds[(number * 7 + number / 13) % 5], &steps[static_cast<size_t>(number)]);
    if (number % 100 == 50) {
      // The pause lets threads fall asleep.
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  ASSERT_OK(orStreamSynchronize(stream));
  ASSERT_EQ(order.size(), 3000u);
  for (int number = 0; number < 3000; ++number) {
    ASSERT_EQ(order[static_cast<size_t>(number)], number);
  }
}

TEST_F(ExecutorTest, ALongKernelDoesNotDelayParallelKernelsOfOtherStreams) {
  QueueLaunches();
  const orStream_t first = CreateStream();
  const orStream_t second = CreateStream();
  auto nothing = [] {};
  Gate gate;
  Launch(first, orLaunchParallel, &nothing);
  ASSERT_OK(gate.Launch(first));
  ASSERT_TRUE(gate.AwaitEntered());
  Launch(second, orLaunchParallel, &nothing);
  // Hangs if the executor waits for the first stream's kernel.
  EXPECT_OK(orStreamSynchronize(second));
  gate.Open();
  EXPECT_OK(orStreamSynchronize(first));
}

TEST_F(ExecutorTest, WaitsBetweenStreamsWithParallelKernelsDoNotDeadlock) {
  QueueLaunches();
  const orStream_t first = CreateStream();
  const orStream_t second = CreateStream();
  orEvent_t event;
  ASSERT_OK(orEventCreate(&event));
  int counter = 0;  // needs no lock, because the events order all accesses
  auto increment = [&counter] { ++counter; };
  for (int round = 0; round < 500; ++round) {
    Launch(first, orLaunchParallel, &increment);
    ASSERT_OK(orEventRecord(event, first));
    ASSERT_OK(orStreamWaitEvent(second, event, 0));
    Launch(second, round % 3 == 0 ? 0 : orLaunchParallel, &increment);
    ASSERT_OK(orEventRecord(event, second));
    ASSERT_OK(orStreamWaitEvent(first, event, 0));
  }
  ASSERT_OK(orStreamSynchronize(first));
  EXPECT_EQ(counter, 1000);
}

TEST_F(ExecutorTest, TheHighestPriorityGoesFirst) {
  QueueLaunches();
  int least = 0, greatest = 0;
  ASSERT_OK(orDeviceGetStreamPriorityRange(&least, &greatest));
  const orStream_t blocker = CreateStream();
  Gate gate;
  ASSERT_OK(gate.Launch(blocker, orLaunchParallel));
  ASSERT_TRUE(gate.AwaitEntered());
  std::vector<int> order;
  struct Step {
    std::vector<int>* order;
    int priority;
    void operator()() const { order->push_back(priority); }
  };
  std::vector<Step> steps;
  steps.reserve(16);
  for (int priority = least; priority >= greatest; --priority) {
    orStream_t stream;
    ASSERT_OK(orStreamCreateWithPriority(&stream, 0, priority));
    steps.push_back({&order, priority});
    Launch(stream, orLaunchParallel, &steps.back());
  }
  // All workers must request the executor before it becomes free.
  EXPECT_TRUE(Eventually(
      [&] { return Executor::Get().waiting() == static_cast<uint32_t>(least - greatest + 1); }));
  gate.Open();
  ASSERT_OK(orDeviceSynchronize());
  std::vector<int> expected;
  for (int priority = greatest; priority <= least; ++priority) {
    expected.push_back(priority);
  }
  EXPECT_EQ(order, expected);
}

TEST_F(ExecutorTest, AStreamMayBeDestroyedWhileTheExecutorWatchesIt) {
  auto nothing = [] {};
  for (int round = 0; round < 300; ++round) {
    const orStream_t stream = CreateStream();
    Launch(stream, orLaunchParallel, &nothing);
    if (round % 3 == 0) {
      ASSERT_OK(orStreamSynchronize(stream));
    }
    if (round % 5 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    ASSERT_OK(orStreamDestroy(stream));
  }
  EXPECT_OK(orDeviceSynchronize());
}

}  // namespace
}  // namespace openreg::device
