// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/event.h"

#include <cstdint>

#include "runtime/device/device_fixture.h"

namespace openreg::device {
namespace {

class EventTest : public DeviceTest {
 protected:
  orEvent_t CreateEvent(unsigned flags = orEventDisableTiming) {
    orEvent_t event = nullptr;
    EXPECT_OK(orEventCreateWithFlags(&event, flags));
    return event;
  }
};

TEST_F(EventTest, AnEventThatWasNeverRecordedIsComplete) {
  const orEvent_t event = CreateEvent();
  EXPECT_OK(orEventQuery(event));
  EXPECT_OK(orEventSynchronize(event));
  EXPECT_OK(orStreamWaitEvent(CreateStream(), event, 0));
}

TEST_F(EventTest, CapturesOnlyTheQueuedWork) {
  QueueLaunches();
  const orStream_t stream = CreateStream();
  const orEvent_t event = CreateEvent();
  Gate first, second;
  ASSERT_OK(first.Launch(stream));
  ASSERT_OK(orEventRecord(event, stream));
  ASSERT_OK(second.Launch(stream));
  EXPECT_EQ(orEventQuery(event), orErrorNotReady);
  EXPECT_EQ(orPeekAtLastError(), orSuccess);
  first.Open();
  EXPECT_OK(orEventSynchronize(event));
  EXPECT_OK(orEventQuery(event));
  EXPECT_EQ(orStreamQuery(stream), orErrorNotReady);
  second.Open();
  EXPECT_OK(orStreamSynchronize(stream));
}

TEST_F(EventTest, AStreamWaitsForAStreamOfAnyDevice) {
  QueueLaunches();
  const orEvent_t event = CreateEvent();
  const orStream_t producer = CreateStream();
  Gate gate;
  std::atomic<bool> produced{false}, seen{false};
  ASSERT_OK(gate.Launch(producer));
  ASSERT_OK(orLaunchKernel(producer, [&] { produced = true; }));
  ASSERT_OK(orEventRecord(event, producer));
  ASSERT_OK(orSetDevice(other()));
  const orStream_t consumer = CreateStream();
  ASSERT_OK(orStreamWaitEvent(consumer, event, 0));
  ASSERT_OK(orLaunchKernel(consumer, [&] { seen = produced.load(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(orStreamQuery(consumer), orErrorNotReady);
  gate.Open();
  ASSERT_OK(orStreamSynchronize(consumer));
  EXPECT_TRUE(seen.load());
}

TEST_F(EventTest, RecordingAgainDoesNotChangeAWaitInProgress) {
  QueueLaunches();
  const orEvent_t event = CreateEvent();
  const orStream_t producer = CreateStream();
  const orStream_t consumer = CreateStream();
  Gate first, second;
  ASSERT_OK(first.Launch(producer));
  ASSERT_OK(orEventRecord(event, producer));
  ASSERT_OK(orStreamWaitEvent(consumer, event, 0));
  ASSERT_OK(second.Launch(producer));
  ASSERT_OK(orEventRecord(event, producer));
  first.Open();
  EXPECT_OK(orStreamSynchronize(consumer));  // the wait ignores the second record
  EXPECT_EQ(orEventQuery(event), orErrorNotReady);
  second.Open();
  EXPECT_OK(orEventSynchronize(event));
}

TEST_F(EventTest, WaitingForTheOwnStreamDoesNotBlock) {
  QueueLaunches();
  const orEvent_t event = CreateEvent();
  const orStream_t stream = CreateStream();
  for (int round = 0; round < 100; ++round) {
    ASSERT_OK(orLaunchKernel(stream, [] {}));
    ASSERT_OK(orEventRecord(event, stream));
    ASSERT_OK(orStreamWaitEvent(stream, event, 0));
  }
  EXPECT_OK(orStreamSynchronize(stream));
}

TEST_F(EventTest, OutlivesTheStreamItCaptured) {
  QueueLaunches();
  const orEvent_t event = CreateEvent();
  const orStream_t stream = CreateStream();
  Gate gate;
  ASSERT_OK(gate.Launch(stream));
  ASSERT_OK(orEventRecord(event, stream));
  ASSERT_OK(orStreamDestroy(stream));
  const orStream_t consumer = CreateStream();
  ASSERT_OK(orStreamWaitEvent(consumer, event, 0));
  EXPECT_EQ(orEventQuery(event), orErrorNotReady);
  EXPECT_EQ(orStreamQuery(consumer), orErrorNotReady);
  gate.Open();
  EXPECT_OK(orStreamSynchronize(consumer));
  EXPECT_OK(orEventSynchronize(event));
  // New users of the stream's slot must not make the event incomplete.
  ASSERT_OK(orDeviceSynchronize());
  for (int round = 0; round < 4; ++round) {
    const orStream_t next = CreateStream();
    Gate busy;
    ASSERT_OK(busy.Launch(next));
    EXPECT_OK(orEventQuery(event));
    busy.Open();
    ASSERT_OK(orStreamSynchronize(next));
  }
}

TEST_F(EventTest, SynchronizeReturnsAnErrorOfItsStreamOnce) {
  QueueLaunches();
  const orStream_t stream = CreateStream();
  const orEvent_t event = CreateEvent();
  ASSERT_OK(orLaunchKernel(
      stream, [] { (void)orKernelFail(orErrorUnknown, "before the event", nullptr, nullptr); }));
  ASSERT_OK(orEventRecord(event, stream));
  EXPECT_FAILS(orEventSynchronize(event), orErrorUnknown, "before the event");
  EXPECT_OK(orEventSynchronize(event));
  EXPECT_OK(orStreamSynchronize(stream));
}

TEST_F(EventTest, BelongsToTheDeviceItWasCreatedOn) {
  ASSERT_OK(orSetDevice(other()));
  const orEvent_t event = CreateEvent();
  int device = -1;
  ASSERT_OK(orEventGetDevice(event, &device));
  EXPECT_EQ(device, other());
  EXPECT_FAILS(orEventGetDevice(event, nullptr), orErrorInvalidValue, "device is null");
  if (count_ > 1) {
    ASSERT_OK(orSetDevice(0));
    EXPECT_FAILS(orEventRecord(event, nullptr), orErrorInvalidDevice,
                 "the event belongs to device " + std::to_string(other()));
  }
}

TEST_F(EventTest, ElapsedTimeIsMeasuredBetweenTwoPointsOfTheQueue) {
  const orStream_t stream = CreateStream();
  const orEvent_t start = CreateEvent(orEventEnableTiming);
  const orEvent_t end = CreateEvent(orEventEnableTiming);
  ASSERT_OK(orEventRecord(start, stream));
  ASSERT_OK(
      orLaunchKernel(stream, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }));
  ASSERT_OK(orEventRecord(end, stream));
  ASSERT_OK(orEventSynchronize(end));
  float milliseconds = 0;
  ASSERT_OK(orEventElapsedTime(&milliseconds, start, end));
  EXPECT_GE(milliseconds, 20.0f);
  EXPECT_LT(milliseconds, 10000.0f);
  float backwards = 0;
  ASSERT_OK(orEventElapsedTime(&backwards, end, start));
  EXPECT_EQ(backwards, -milliseconds);
}

TEST_F(EventTest, ElapsedTimeNeedsTwoCompleteTimedEvents) {
  QueueLaunches();
  const orStream_t stream = CreateStream();
  const orEvent_t timed = CreateEvent(orEventEnableTiming);
  const orEvent_t never = CreateEvent(orEventEnableTiming);
  const orEvent_t untimed = CreateEvent();
  float milliseconds = 0;
  ASSERT_OK(orEventRecord(timed, stream));
  EXPECT_FAILS(orEventElapsedTime(&milliseconds, timed, never), orErrorInvalidValue,
               "the end event was never recorded");
  EXPECT_FAILS(orEventElapsedTime(&milliseconds, untimed, timed), orErrorNotSupported,
               "the start event records no time");
  EXPECT_FAILS(orEventElapsedTime(nullptr, timed, timed), orErrorInvalidValue,
               "milliseconds is null");
  Gate gate;
  ASSERT_OK(gate.Launch(stream));
  ASSERT_OK(orEventRecord(never, stream));
  EXPECT_EQ(orEventElapsedTime(&milliseconds, timed, never), orErrorNotReady);
  gate.Open();
  EXPECT_OK(orEventSynchronize(never));
  EXPECT_OK(orEventElapsedTime(&milliseconds, timed, never));
}

TEST_F(EventTest, ElapsedTimeNeedsEventsOfOneDevice) {
  if (count_ == 1) {
    GTEST_SKIP() << "needs an event of another device";
  }
  const orEvent_t here = CreateEvent(orEventEnableTiming);
  ASSERT_OK(orEventRecord(here, nullptr));
  ASSERT_OK(orSetDevice(1));
  const orEvent_t there = CreateEvent(orEventEnableTiming);
  ASSERT_OK(orEventRecord(there, nullptr));
  ASSERT_OK(orSetDevice(0));
  float milliseconds = 0;
  EXPECT_FAILS(orEventElapsedTime(&milliseconds, here, there), orErrorInvalidValue,
               "device 0 and the end event to device 1");
}

TEST_F(EventTest, AnOldTimestampDoesNotOverwriteANewOne) {
  QueueLaunches();
  const orStream_t busy = CreateStream();
  const orStream_t idle = CreateStream();
  const orEvent_t start = CreateEvent(orEventEnableTiming);
  const orEvent_t event = CreateEvent(orEventEnableTiming);
  Gate gate;
  ASSERT_OK(gate.Launch(busy));
  ASSERT_OK(orEventRecord(event, busy));
  ASSERT_OK(orEventRecord(event, idle));
  ASSERT_OK(orEventRecord(start, idle));
  float before = 0, after = 0;
  ASSERT_OK(orEventElapsedTime(&before, start, event));
  gate.Open();
  ASSERT_OK(orStreamSynchronize(busy));
  ASSERT_OK(orEventElapsedTime(&after, start, event));
  EXPECT_EQ(before, after);
}

TEST_F(EventTest, DestroyingAnEventDoesNotDisturbWaiters) {
  QueueLaunches();
  const orStream_t producer = CreateStream();
  const orStream_t consumer = CreateStream();
  const orEvent_t event = CreateEvent(orEventEnableTiming);
  Gate gate;
  ASSERT_OK(gate.Launch(producer));
  ASSERT_OK(orEventRecord(event, producer));
  ASSERT_OK(orStreamWaitEvent(consumer, event, 0));
  ASSERT_OK(orEventDestroy(event));
  // This event reuses the slot of the destroyed event.
  const orEvent_t reuse = CreateEvent(orEventEnableTiming);
  EXPECT_OK(orEventQuery(reuse));
  EXPECT_EQ(orStreamQuery(consumer), orErrorNotReady);
  gate.Open();
  EXPECT_OK(orStreamSynchronize(consumer));
}

TEST_F(EventTest, StaleAndForeignHandlesAreErrors) {
  const orEvent_t stale = CreateEvent();
  ASSERT_OK(orEventDestroy(stale));
  const orEvent_t good = CreateEvent(orEventEnableTiming);
  orStream_t stream;
  ASSERT_OK(orGetDefaultStream(&stream, 0));
  int dummy = 0;
  float milliseconds = 0;
  std::vector<orEvent_t> handles = {nullptr,
                                    stale,
                                    reinterpret_cast<orEvent_t>(stream),
                                    reinterpret_cast<orEvent_t>(&dummy),
                                    reinterpret_cast<orEvent_t>(UINT64_MAX),
                                    reinterpret_cast<orEvent_t>(uint64_t{2})};
  for (orEvent_t handle : handles) {
    EXPECT_FAILS(orEventDestroy(handle), orErrorInvalidHandle, "is not a valid event");
    EXPECT_FAILS(orEventQuery(handle), orErrorInvalidHandle, "is not a valid event");
    EXPECT_FAILS(orEventSynchronize(handle), orErrorInvalidHandle, "is not a valid event");
    EXPECT_FAILS(orEventRecord(handle, nullptr), orErrorInvalidHandle, "is not a valid event");
    EXPECT_FAILS(orEventGetDevice(handle, &dummy), orErrorInvalidHandle, "is not a valid event");
    EXPECT_FAILS(orStreamWaitEvent(nullptr, handle, 0), orErrorInvalidHandle,
                 "is not a valid event");
    EXPECT_FAILS(orEventElapsedTime(&milliseconds, good, handle), orErrorInvalidHandle,
                 "is not a valid event");
  }
  EXPECT_FAILS(orEventCreate(nullptr), orErrorInvalidValue, "event is null");
  orEvent_t event;
  EXPECT_FAILS(orEventCreateWithFlags(&event, 8), orErrorInvalidValue, "flags are 0x8");
  EXPECT_FAILS(orStreamWaitEvent(nullptr, good, 1), orErrorInvalidValue, "flags are 0x1");
}

TEST_F(EventTest, ManyEventsAreRecycled) {
  std::vector<orEvent_t> events;
  for (int round = 0; round < 3; ++round) {
    for (int number = 0; number < 5000; ++number) {
      events.push_back(CreateEvent());
    }
    for (orEvent_t event : events) {
      ASSERT_OK(orEventDestroy(event));
    }
    events.clear();
  }
}

}  // namespace
}  // namespace openreg::device
