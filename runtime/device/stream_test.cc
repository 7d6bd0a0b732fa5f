// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/stream.h"

#include <dirent.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>

#include "runtime/device/device_fixture.h"
#include "runtime/device/host_wait.h"

namespace openreg::device {
namespace {

class StreamTest : public DeviceTest {
 protected:
  static int ThreadCount() {
    int count = 0;
    DIR* tasks = opendir("/proc/self/task");
    for (const dirent* entry = readdir(tasks); entry != nullptr; entry = readdir(tasks)) {
      count += entry->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
  }
};

TEST_F(StreamTest, CommandsRunInOrder) {
  const orStream_t stream = CreateStream();
  std::vector<int> order;
  for (int number = 0; number < 2000; ++number) {  // several times the capacity of the ring
    ASSERT_OK(orLaunchKernel(stream, [&order, number] { order.push_back(number); }));
  }
  ASSERT_OK(orStreamSynchronize(stream));
  ASSERT_EQ(order.size(), 2000u);
  for (int number = 0; number < 2000; ++number) {
    EXPECT_EQ(order[static_cast<size_t>(number)], number);
  }
}

TEST_F(StreamTest, StreamsAreIndependentOfEachOther) {
  QueueLaunches();
  Gate gate;
  ASSERT_OK(gate.Launch(nullptr));
  const orStream_t stream = CreateStream();
  std::atomic<bool> ran{false};
  ASSERT_OK(orLaunchKernel(stream, [&ran] { ran = true; }));
  ASSERT_OK(orStreamSynchronize(stream));
  EXPECT_TRUE(ran.load());
  EXPECT_EQ(orStreamQuery(nullptr), orErrorNotReady);
  EXPECT_EQ(orPeekAtLastError(), orSuccess);  // orErrorNotReady is a result and not an error
  gate.Open();
  EXPECT_OK(orStreamSynchronize(nullptr));
  EXPECT_OK(orStreamQuery(nullptr));
}

TEST_F(StreamTest, ANullHandleIsTheDefaultStreamOfTheCurrentDevice) {
  for (int device = 0; device < count_; ++device) {
    ASSERT_OK(orSetDevice(device));
    orStream_t stream = nullptr;
    ASSERT_OK(orGetDefaultStream(&stream, device));
    ASSERT_NE(stream, nullptr);
    int of = -1;
    ASSERT_OK(orStreamGetDevice(stream, &of));
    EXPECT_EQ(of, device);
    ASSERT_OK(orStreamGetDevice(nullptr, &of));
    EXPECT_EQ(of, device);
    EXPECT_FAILS(orStreamDestroy(stream), orErrorInvalidValue,
                 "default stream, which cannot be destroyed");
  }
  EXPECT_FAILS(orStreamDestroy(nullptr), orErrorInvalidHandle, "is not a valid stream");
  EXPECT_FAILS(orGetDefaultStream(nullptr, 0), orErrorInvalidValue, "stream is null");
}

TEST_F(StreamTest, PrioritiesHaveARange) {
  int least = 0, greatest = 0;
  ASSERT_OK(orDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT_LT(greatest, least);
  for (int wanted = greatest; wanted <= least; ++wanted) {
    orStream_t stream;
    ASSERT_OK(orStreamCreateWithPriority(&stream, 0, wanted));
    int priority = 99;
    ASSERT_OK(orStreamGetPriority(stream, &priority));
    EXPECT_EQ(priority, wanted);
  }
  orStream_t stream;
  EXPECT_FAILS(orStreamCreateWithPriority(&stream, 0, least + 1), orErrorInvalidValue,
               "is out of range");
  EXPECT_FAILS(orStreamCreateWithPriority(&stream, 0, greatest - 1), orErrorInvalidValue,
               "is out of range");
  EXPECT_FAILS(orStreamCreateWithPriority(&stream, 1, least), orErrorInvalidValue, "flags are 0x1");
  EXPECT_FAILS(orStreamCreate(nullptr), orErrorInvalidValue, "stream is null");
  EXPECT_FAILS(orDeviceGetStreamPriorityRange(nullptr, &greatest), orErrorInvalidValue, "null");
  EXPECT_FAILS(orStreamGetPriority(nullptr, nullptr), orErrorInvalidValue, "priority is null");
  EXPECT_FAILS(orStreamGetDevice(nullptr, nullptr), orErrorInvalidValue, "device is null");
}

TEST_F(StreamTest, StaleAndForeignHandlesAreErrors) {
  const orStream_t stale = CreateStream();
  ASSERT_OK(orStreamDestroy(stale));
  orEvent_t event;
  ASSERT_OK(orEventCreate(&event));
  int dummy = 0;
  std::vector<orStream_t> handles = {stale, reinterpret_cast<orStream_t>(event),
                                     reinterpret_cast<orStream_t>(&dummy)};
  for (uint64_t number : {uint64_t{1}, uint64_t{5}, uint64_t{0x3ffd}, UINT64_MAX, UINT64_MAX - 2,
                          uint64_t{1} << 63}) {
    handles.push_back(reinterpret_cast<orStream_t>(number));
  }
  for (orStream_t handle : handles) {
    EXPECT_FAILS(orStreamDestroy(handle), orErrorInvalidHandle, "is not a valid stream");
    EXPECT_FAILS(orStreamQuery(handle), orErrorInvalidHandle, "is not a valid stream");
    EXPECT_FAILS(orStreamSynchronize(handle), orErrorInvalidHandle, "is not a valid stream");
    EXPECT_FAILS(orStreamWaitEvent(handle, event, 0), orErrorInvalidHandle,
                 "is not a valid stream");
    EXPECT_FAILS(orStreamGetDevice(handle, &dummy), orErrorInvalidHandle, "is not a valid stream");
    EXPECT_FAILS(orStreamGetPriority(handle, &dummy), orErrorInvalidHandle,
                 "is not a valid stream");
    EXPECT_FAILS(orEventRecord(event, handle), orErrorInvalidHandle, "is not a valid stream");
    EXPECT_FAILS(orLaunchKernel(handle, [] {}), orErrorInvalidHandle, "is not a valid stream");
    EXPECT_FAILS(orLaunchHostFunc(
                     handle, [](void*) {}, nullptr),
                 orErrorInvalidHandle, "is not a valid stream");
    EXPECT_FAILS(orMemsetAsync(nullptr, 0, 1, handle), orErrorInvalidHandle,
                 "is not a valid stream");
    EXPECT_FAILS(orMemcpyAsync(nullptr, nullptr, 1, orMemcpyDefault, handle), orErrorInvalidHandle,
                 "is not a valid stream");
  }
  // The slot now has a new user, but the old handle must remain invalid.
  (void)CreateStream();
  EXPECT_FAILS(orStreamQuery(stale), orErrorInvalidHandle, "is not a valid stream");
}

TEST_F(StreamTest, DestroyDoesNotWaitAndQueuedCommandsStillRun) {
  QueueLaunches();
  const orStream_t stream = CreateStream();
  std::atomic<int> ran{0};
  Gate gate;
  ASSERT_OK(gate.Launch(stream));
  for (int number = 0; number < 10; ++number) {
    ASSERT_OK(orLaunchKernel(stream, [&ran] { ++ran; }));
  }
  ASSERT_OK(orStreamDestroy(stream));
  EXPECT_EQ(ran.load(), 0);
  gate.Open();
  EXPECT_OK(orDeviceSynchronize());  // must also wait for destroyed streams
  EXPECT_EQ(ran.load(), 10);
}

TEST_F(StreamTest, TheErrorOfADestroyedStreamReachesItsDevice) {
  QueueLaunches();
  for (int round = 0; round < 200; ++round) {
    const orStream_t stream = CreateStream();
    ASSERT_OK(orLaunchKernel(stream, [] {
      (void)orKernelFail(orErrorUnknown, "from a stream that is gone", nullptr, nullptr);
    }));
    ASSERT_OK(orStreamDestroy(stream));
    EXPECT_FAILS(orDeviceSynchronize(), orErrorUnknown, "from a stream that is gone");
    EXPECT_OK(orDeviceSynchronize());
  }
}

TEST_F(StreamTest, TenThousandStreamsLeaveNoThreadsBehind) {
  const int before = ThreadCount();
  std::atomic<int> ran{0};
  for (int number = 0; number < 10000; ++number) {
    const orStream_t stream = CreateStream();
    ASSERT_OK(orLaunchKernel(stream, [&ran] { ++ran; }));
    ASSERT_OK(orStreamDestroy(stream));
    if (number % 100 == 0) {
      // A destroyed stream's thread ends on its own, on a busy machine after some time.
      ASSERT_TRUE(Eventually([&] { return ThreadCount() <= before + 100; })) << ThreadCount();
    }
  }
  ASSERT_OK(orDeviceSynchronize());
  EXPECT_EQ(ran.load(), 10000);
  EXPECT_TRUE(Eventually([&] { return ThreadCount() <= before + 1; })) << ThreadCount();
}

TEST_F(StreamTest, TheNumberOfStreamsIsLimited) {
  std::vector<orStream_t> streams;
  orError_t error;
  for (;;) {
    orStream_t stream;
    error = orStreamCreate(&stream);
    if (error != orSuccess) {
      break;
    }
    streams.push_back(stream);
    ASSERT_LE(streams.size(), 4096u);
  }
  EXPECT_FAILS(error, orErrorSystem, "limit of 4096 streams");
  EXPECT_GT(streams.size(), 4000u);
  for (orStream_t stream : streams) {
    ASSERT_OK(orStreamDestroy(stream));
  }
  ASSERT_OK(orStreamDestroy(CreateStream()));
}

TEST_F(StreamTest, AFullQueueMakesTheLaunchWaitAndLosesNothing) {
  QueueLaunches();
  const orStream_t stream = CreateStream();
  Gate gate;
  ASSERT_OK(gate.Launch(stream));
  ASSERT_TRUE(gate.AwaitEntered());
  std::atomic<int> launched{0}, ran{0};
  std::thread producer([&] {
    for (int number = 0; number < 1000; ++number) {
      EXPECT_OK(orLaunchKernel(stream, [&ran] { ++ran; }));
      ++launched;
    }
  });
  EXPECT_TRUE(Eventually([&] { return launched.load() == Stream::kRing - 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  // The producer waits for room in the queue.
  EXPECT_EQ(launched.load(), static_cast<int>(Stream::kRing) - 1);
  gate.Open();
  producer.join();
  ASSERT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(ran.load(), 1000);
}

// Hooks that open the gate for which the stream waits. A wait can therefore end only if it calls
// the hooks.
Gate* gate_of_hooks = nullptr;
std::atomic<int> hooks_inside{0};
std::atomic<int> hooks_called{0};
constexpr orHostWaitHooks kHooks{[] {
                                   ++hooks_called;
                                   ++hooks_inside;
                                   gate_of_hooks->Open();
                                   return static_cast<void*>(&hooks_inside);
                                 },
                                 [](void* state) { --*static_cast<std::atomic<int>*>(state); }};

class HostWaitTest : public StreamTest {
 protected:
  void SetUp() override {
    StreamTest::SetUp();
    QueueLaunches();
    stream_ = CreateStream();
    gate_of_hooks = &gate_;
    hooks_called = 0;
    ASSERT_OK(gate_.Launch(stream_));
    orSetHostWaitHooks(&kHooks);
  }
  void TearDown() override {
    orSetHostWaitHooks(nullptr);
    EXPECT_GT(hooks_called, 0);
    EXPECT_EQ(hooks_inside, 0);
    StreamTest::TearDown();
  }

  Gate gate_;
  orStream_t stream_ = nullptr;
};

TEST_F(HostWaitTest, OfAStream) { EXPECT_OK(orStreamSynchronize(stream_)); }

TEST_F(HostWaitTest, OfADevice) { EXPECT_OK(orDeviceSynchronize()); }

TEST_F(HostWaitTest, OfAnEvent) {
  orEvent_t event = nullptr;
  ASSERT_OK(orEventCreate(&event));
  ASSERT_OK(orEventRecord(event, stream_));
  EXPECT_OK(orEventSynchronize(event));
  EXPECT_OK(orEventDestroy(event));
}

TEST_F(HostWaitTest, OfALaunchForRoomInTheQueue) {
  for (uint64_t i = 0; i <= Stream::kRing; ++i) {
    ASSERT_OK(orLaunchKernel(stream_, [] {}));
  }
  ASSERT_OK(orStreamSynchronize(stream_));
}

TEST_F(HostWaitTest, OfACallerAndForALock) {
  std::mutex mutex;
  std::unique_lock held(mutex);
  std::thread other([&] {
    const auto lock = LockForWait(mutex);
    EXPECT_TRUE(lock.owns_lock());
  });
  while (hooks_called == 0) {
    std::this_thread::yield();
  }
  held.unlock();
  other.join();
  const HostWait wait;
  EXPECT_EQ(hooks_inside, 1);
}

TEST_F(StreamTest, SynchronizeWaitsForAnInlineKernelOfAnotherThread) {
  const orStream_t stream = CreateStream();
  Gate gate;
  std::thread launcher([&] { EXPECT_OK(gate.Launch(stream, orLaunchInline)); });
  ASSERT_TRUE(gate.AwaitEntered());
  EXPECT_EQ(orStreamQuery(stream), orErrorNotReady);
  std::atomic<bool> synchronized{false};
  std::thread waiter([&] {
    EXPECT_OK(orStreamSynchronize(stream));
    synchronized = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(synchronized.load());
  gate.Open();
  waiter.join();
  launcher.join();
  EXPECT_OK(orStreamQuery(stream));
}

TEST_F(StreamTest, AReusedSlotDoesNotInheritAnError) {
  QueueLaunches();
  for (const bool with_worker : {false, true}) {
    const orStream_t stream = CreateStream();
    if (with_worker) {
      ASSERT_OK(orLaunchKernel(stream, [] {}));
      ASSERT_OK(orStreamSynchronize(stream));
    }
    struct State {
      std::atomic<bool> entered{false};
      std::atomic<bool> open{false};
      std::atomic<int> on_host{-1};
      static orError_t Run(void* arguments) {
        State& state = **static_cast<State**>(arguments);
        state.on_host = orKernelOnHost();
        state.entered = true;
        while (!state.open) {
          std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        return orKernelFail(orErrorLaunchFailure, "on purpose", nullptr, nullptr);
      }
    } state;
    std::thread launcher([&] {
      State* argument = &state;
      const orLaunchAttributes cheap{"failing", orLaunchInline, 0};
      EXPECT_OK(orLaunchKernel(stream, State::Run, &argument, sizeof(argument), &cheap));
    });
    ASSERT_TRUE(Eventually([&] { return state.entered.load(); }));
    if (!with_worker) {  // otherwise, on a busy machine, a worker may still hold the token
      EXPECT_EQ(state.on_host, 1);
    }
    ASSERT_OK(orStreamDestroy(stream));
    // During this pause, the stream's worker ends if there is one.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::vector<orStream_t> next;
    for (int number = 0; number < 3; ++number) {
      next.push_back(CreateStream());
    }
    state.open = true;
    launcher.join();
    for (const orStream_t other_one : next) {
      EXPECT_OK(orStreamSynchronize(other_one));
    }
    EXPECT_FAILS(orDeviceSynchronize(), orErrorLaunchFailure, "on purpose");
    for (const orStream_t other_one : next) {
      EXPECT_OK(orStreamDestroy(other_one));
    }
  }
}

}  // namespace
}  // namespace openreg::device
