// SPDX-License-Identifier: BSD-3-Clause
//
// Tests default streams (tier 1), and other streams and host waits (tier 2).
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <thread>

#include "runtime/device/cts/fixture.h"
#include "runtime/device/host_wait.h"

namespace openreg::cts {
namespace {

using Tier1StreamTest = DriverTest;
using Tier2StreamTest = Tier2Test;

TEST_F(Tier1StreamTest, ANullHandleIsTheDefaultStreamOfTheCurrentDevice) {
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
    EXPECT_OK(orStreamSynchronize(stream));
    EXPECT_OK(orStreamQuery(stream));
  }
  EXPECT_FAILS(orGetDefaultStream(nullptr, 0), orErrorInvalidValue);
  EXPECT_FAILS(orStreamGetDevice(nullptr, nullptr), orErrorInvalidValue);
}

TEST_F(Tier1StreamTest, ForeignHandlesAreErrors) {
  int dummy = 0;
  std::vector<orStream_t> handles = {reinterpret_cast<orStream_t>(&dummy)};
  for (uint64_t number : {uint64_t{1}, uint64_t{5}, uint64_t{0x3ffd}, UINT64_MAX, UINT64_MAX - 2,
                          uint64_t{1} << 63}) {
    handles.push_back(reinterpret_cast<orStream_t>(number));
  }
  for (orStream_t handle : handles) {
    EXPECT_FAILS(orStreamQuery(handle), orErrorInvalidHandle);
    EXPECT_FAILS(orStreamSynchronize(handle), orErrorInvalidHandle);
    EXPECT_FAILS(orStreamGetDevice(handle, &dummy), orErrorInvalidHandle);
    EXPECT_FAILS(orMemsetAsync(nullptr, 0, 1, handle), orErrorInvalidHandle);
    EXPECT_FAILS(orMemcpyAsync(nullptr, nullptr, 1, orMemcpyDefault, handle), orErrorInvalidHandle);
    EXPECT_FAILS(TestedDriver().launch_failing(handle), orErrorInvalidHandle);
  }
}

TEST_F(Tier2StreamTest, CommandsRunInOrder) {
  const orStream_t stream = CreateStream();
  std::vector<int> order;
  for (int number = 0; number < 3000; ++number) {  // more than the capacity of a typical queue
    ASSERT_OK(QueueFunction(stream, [&order, number] { order.push_back(number); }));
  }
  ASSERT_OK(orStreamSynchronize(stream));
  ASSERT_EQ(order.size(), 3000u);
  for (int number = 0; number < 3000; ++number) {
    EXPECT_EQ(order[static_cast<size_t>(number)], number);
  }
}

TEST_F(Tier2StreamTest, StreamsAreIndependentOfEachOther) {
  Gate gate;
  ASSERT_OK(gate.Queue(nullptr));
  const orStream_t stream = CreateStream();
  std::atomic<bool> ran{false};
  ASSERT_OK(QueueFunction(stream, [&ran] { ran = true; }));
  ASSERT_OK(orStreamSynchronize(stream));
  EXPECT_TRUE(ran.load());
  EXPECT_EQ(orStreamQuery(nullptr), orErrorNotReady);
  EXPECT_EQ(orPeekAtLastError(), orSuccess);  // orErrorNotReady is a result and not an error
  gate.Open();
  EXPECT_OK(orStreamSynchronize(nullptr));
  EXPECT_OK(orStreamQuery(nullptr));
}

TEST_F(Tier2StreamTest, BelongsToTheDeviceItWasCreatedOn) {
  ASSERT_OK(orSetDevice(other()));
  const orStream_t stream = CreateStream();
  ASSERT_OK(orSetDevice(0));
  int device = -1;
  ASSERT_OK(orStreamGetDevice(stream, &device));
  EXPECT_EQ(device, other());
}

TEST_F(Tier2StreamTest, TheDefaultStreamCannotBeDestroyed) {
  orStream_t stream = nullptr;
  ASSERT_OK(orGetDefaultStream(&stream, 0));
  EXPECT_FAILS(orStreamDestroy(stream), orErrorInvalidValue);
  EXPECT_FAILS(orStreamDestroy(nullptr), orErrorInvalidHandle);
}

TEST_F(Tier2StreamTest, PrioritiesHaveARange) {
  int least = 0, greatest = 0;
  ASSERT_OK(orDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT_LE(greatest, least);
  for (int wanted = greatest; wanted <= least; ++wanted) {
    orStream_t stream;
    ASSERT_OK(orStreamCreateWithPriority(&stream, 0, wanted));
    int priority = 99;
    ASSERT_OK(orStreamGetPriority(stream, &priority));
    EXPECT_EQ(priority, wanted);
  }
  orStream_t stream;
  EXPECT_FAILS(orStreamCreateWithPriority(&stream, 0, least + 1), orErrorInvalidValue);
  EXPECT_FAILS(orStreamCreateWithPriority(&stream, 0, greatest - 1), orErrorInvalidValue);
  EXPECT_FAILS(orStreamCreateWithPriority(&stream, 1, least), orErrorInvalidValue);
  EXPECT_FAILS(orStreamCreate(nullptr), orErrorInvalidValue);
  EXPECT_FAILS(orDeviceGetStreamPriorityRange(nullptr, &greatest), orErrorInvalidValue);
  EXPECT_FAILS(orDeviceGetStreamPriorityRange(&least, nullptr), orErrorInvalidValue);
  EXPECT_FAILS(orStreamGetPriority(nullptr, nullptr), orErrorInvalidValue);
}

TEST_F(Tier2StreamTest, StaleHandlesAndHandlesOfEventsAreErrors) {
  const orStream_t stale = CreateStream();
  ASSERT_OK(orStreamDestroy(stale));
  const orEvent_t event = CreateEvent();
  (void)CreateStream();  // may reuse the resources of the destroyed stream
  int value = 0;
  for (orStream_t handle : {stale, reinterpret_cast<orStream_t>(event)}) {
    EXPECT_FAILS(orStreamDestroy(handle), orErrorInvalidHandle);
    EXPECT_FAILS(orStreamQuery(handle), orErrorInvalidHandle);
    EXPECT_FAILS(orStreamSynchronize(handle), orErrorInvalidHandle);
    EXPECT_FAILS(orStreamWaitEvent(handle, event, 0), orErrorInvalidHandle);
    EXPECT_FAILS(orStreamGetDevice(handle, &value), orErrorInvalidHandle);
    EXPECT_FAILS(orStreamGetPriority(handle, &value), orErrorInvalidHandle);
    EXPECT_FAILS(orEventRecord(event, handle), orErrorInvalidHandle);
    EXPECT_FAILS(orLaunchHostFunc(handle, [](void*) {}, nullptr), orErrorInvalidHandle);
    EXPECT_FAILS(TestedDriver().launch_failing(handle), orErrorInvalidHandle);
  }
}

TEST_F(Tier2StreamTest, DestroyDoesNotWaitAndQueuedCommandsStillRun) {
  const orStream_t stream = CreateStream();
  std::atomic<int> ran{0};
  Gate gate;
  ASSERT_OK(gate.Queue(stream));
  for (int number = 0; number < 10; ++number) {
    ASSERT_OK(QueueFunction(stream, [&ran] { ++ran; }));
  }
  ASSERT_OK(orStreamDestroy(stream));
  EXPECT_EQ(ran.load(), 0);
  gate.Open();
  EXPECT_OK(orDeviceSynchronize());  // must also wait for destroyed streams
  EXPECT_EQ(ran.load(), 10);
}

TEST_F(Tier2StreamTest, TheErrorOfADestroyedStreamReachesItsDevice) {
  for (int round = 0; round < 100; ++round) {
    const orStream_t stream = CreateStream();
    ASSERT_OK(TestedDriver().launch_failing(stream));
    ASSERT_OK(orStreamDestroy(stream));
    EXPECT_FAILS(orDeviceSynchronize(), orErrorLaunchFailure);
    EXPECT_OK(orDeviceSynchronize());
  }
}

TEST_F(Tier2StreamTest, ThousandsOfStreamsAreRecycled) {
  std::atomic<int> ran{0};
  for (int number = 0; number < 5000; ++number) {
    const orStream_t stream = CreateStream();
    ASSERT_OK(QueueFunction(stream, [&ran] { ++ran; }));
    ASSERT_OK(orStreamDestroy(stream));
    if (number % 100 == 0) {
      ASSERT_OK(orDeviceSynchronize());
    }
  }
  ASSERT_OK(orDeviceSynchronize());
  EXPECT_EQ(ran.load(), 5000);
}

TEST_F(Tier2StreamTest, TheNumberOfStreamsIsLimited) {
  std::vector<orStream_t> streams;
  orError_t error = orSuccess;
  while (error == orSuccess) {
    orStream_t stream;
    error = orStreamCreate(&stream);
    if (error == orSuccess) {
      streams.push_back(stream);
    }
    ASSERT_LE(streams.size(), 4096u);
  }
  EXPECT_FAILS(error, orErrorSystem);
  for (orStream_t stream : streams) {
    ASSERT_OK(orStreamDestroy(stream));
  }
  ASSERT_OK(orStreamDestroy(CreateStream()));
}

TEST_F(Tier2StreamTest, AFullQueueMakesTheCallerWaitAndLosesNothing) {
  const orStream_t stream = CreateStream();
  Gate gate;
  ASSERT_OK(gate.Queue(stream));
  ASSERT_TRUE(gate.AwaitEntered());
  std::atomic<int> queued{0}, ran{0};
  std::thread producer([&] {
    for (int number = 0; number < 20000; ++number) {
      EXPECT_OK(QueueFunction(stream, [&ran] { ++ran; }));
      ++queued;
    }
  });
  int before = -1;
  while (queued != before) {  // until the queue is full or contains all functions
    before = queued;
    Sleep(50);
  }
  EXPECT_EQ(ran.load(), 0);
  gate.Open();
  producer.join();
  ASSERT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(ran.load(), 20000);
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

// A wait without hooks would never end. After half a minute, a thread ends it, and the test fails.
class Tier2HostWaitTest : public Tier2Test {
 protected:
  void SetUp() override {
    Tier2Test::SetUp();
    stream_ = CreateStream();
    gate_of_hooks = &gate_;
    hooks_called = 0;
    ASSERT_OK(gate_.Queue(stream_));
    orSetHostWaitHooks(&kHooks);
    EXPECT_EQ(orGetHostWaitHooks(), &kHooks);
    timeout_ = std::jthread([this](const std::stop_token& stop) {
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any().wait_for(lock, stop, std::chrono::seconds(30),
                                             [] { return false; });
      gate_.Open();
    });
  }
  void TearDown() override {
    gate_.Open();  // a test that fails before it waits has not called the hooks
    timeout_ = {};
    orSetHostWaitHooks(nullptr);
    EXPECT_GT(hooks_called, 0) << "the host waited without a HostWait object (host_wait.h)";
    EXPECT_EQ(hooks_inside, 0);
    Tier2Test::TearDown();
  }

  Gate gate_;
  orStream_t stream_ = nullptr;
  std::jthread timeout_;
};

TEST_F(Tier2HostWaitTest, OfAStream) { EXPECT_OK(orStreamSynchronize(stream_)); }

TEST_F(Tier2HostWaitTest, OfADevice) { EXPECT_OK(orDeviceSynchronize()); }

TEST_F(Tier2HostWaitTest, OfAnEvent) {
  const orEvent_t event = CreateEvent();
  ASSERT_OK(orEventRecord(event, stream_));
  EXPECT_OK(orEventSynchronize(event));
}

TEST_F(Tier2HostWaitTest, OfAPageableCopy) {
  char byte = 0;
  ASSERT_OK(orMemcpyAsync(&byte, Allocate<char>(1), 1, orMemcpyDeviceToHost, stream_));
}

TEST_F(Tier2HostWaitTest, OfAFullQueue) {
  for (int number = 0; number < 5000; ++number) {
    ASSERT_OK(QueueFunction(stream_, [] {}));
  }
  ASSERT_OK(orStreamSynchronize(stream_));
}

TEST_F(Tier2HostWaitTest, OfACallerAndForALock) {
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

}  // namespace
}  // namespace openreg::cts
