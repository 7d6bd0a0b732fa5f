// SPDX-License-Identifier: BSD-3-Clause
//
// Tests events (tier 2).
#include <cstdint>

#include "runtime/device/cts/fixture.h"

namespace openreg::cts {
namespace {

using Tier2EventTest = Tier2Test;

TEST_F(Tier2EventTest, AnEventThatWasNeverRecordedIsComplete) {
  const orEvent_t event = CreateEvent();
  EXPECT_OK(orEventQuery(event));
  EXPECT_OK(orEventSynchronize(event));
  EXPECT_OK(orStreamWaitEvent(CreateStream(), event, 0));
}

TEST_F(Tier2EventTest, CapturesOnlyTheQueuedWork) {
  const orStream_t stream = CreateStream();
  const orEvent_t event = CreateEvent();
  Gate first, second;
  ASSERT_OK(first.Queue(stream));
  ASSERT_OK(orEventRecord(event, stream));
  ASSERT_OK(second.Queue(stream));
  EXPECT_EQ(orEventQuery(event), orErrorNotReady);
  EXPECT_EQ(orPeekAtLastError(), orSuccess);
  first.Open();
  EXPECT_OK(orEventSynchronize(event));
  EXPECT_OK(orEventQuery(event));
  EXPECT_EQ(orStreamQuery(stream), orErrorNotReady);
  second.Open();
  EXPECT_OK(orStreamSynchronize(stream));
}

TEST_F(Tier2EventTest, AStreamWaitsForAStreamOfAnyDevice) {
  const orEvent_t event = CreateEvent();
  const orStream_t producer = CreateStream();
  Gate gate;
  std::atomic<bool> produced{false}, seen{false};
  ASSERT_OK(gate.Queue(producer));
  ASSERT_OK(QueueFunction(producer, [&] { produced = true; }));
  ASSERT_OK(orEventRecord(event, producer));
  ASSERT_OK(orSetDevice(other()));
  const orStream_t consumer = CreateStream();
  ASSERT_OK(orStreamWaitEvent(consumer, event, 0));
  ASSERT_OK(QueueFunction(consumer, [&] { seen = produced.load(); }));
  Sleep(2);
  EXPECT_EQ(orStreamQuery(consumer), orErrorNotReady);
  gate.Open();
  ASSERT_OK(orStreamSynchronize(consumer));
  EXPECT_TRUE(seen.load());
}

TEST_F(Tier2EventTest, RecordingAgainDoesNotChangeAWaitInProgress) {
  const orEvent_t event = CreateEvent();
  const orStream_t producer = CreateStream();
  const orStream_t consumer = CreateStream();
  Gate first, second;
  ASSERT_OK(first.Queue(producer));
  ASSERT_OK(orEventRecord(event, producer));
  ASSERT_OK(orStreamWaitEvent(consumer, event, 0));
  ASSERT_OK(second.Queue(producer));
  ASSERT_OK(orEventRecord(event, producer));
  first.Open();
  EXPECT_OK(orStreamSynchronize(consumer));  // does not wait for the second record
  EXPECT_EQ(orEventQuery(event), orErrorNotReady);
  second.Open();
  EXPECT_OK(orEventSynchronize(event));
}

TEST_F(Tier2EventTest, WaitingForTheOwnStreamDoesNotBlock) {
  const orEvent_t event = CreateEvent();
  const orStream_t stream = CreateStream();
  for (int round = 0; round < 100; ++round) {
    ASSERT_OK(QueueFunction(stream, [] {}));
    ASSERT_OK(orEventRecord(event, stream));
    ASSERT_OK(orStreamWaitEvent(stream, event, 0));
  }
  EXPECT_OK(orStreamSynchronize(stream));
}

TEST_F(Tier2EventTest, OutlivesTheStreamItCaptured) {
  const orEvent_t event = CreateEvent();
  const orStream_t stream = CreateStream();
  Gate gate;
  ASSERT_OK(gate.Queue(stream));
  ASSERT_OK(orEventRecord(event, stream));
  ASSERT_OK(orStreamDestroy(stream));
  const orStream_t consumer = CreateStream();
  ASSERT_OK(orStreamWaitEvent(consumer, event, 0));
  EXPECT_EQ(orEventQuery(event), orErrorNotReady);
  EXPECT_EQ(orStreamQuery(consumer), orErrorNotReady);
  gate.Open();
  EXPECT_OK(orStreamSynchronize(consumer));
  EXPECT_OK(orEventSynchronize(event));
  // A stream that reuses the destroyed stream's resources must not make the event incomplete.
  ASSERT_OK(orDeviceSynchronize());
  for (int round = 0; round < 4; ++round) {
    const orStream_t next = CreateStream();
    Gate busy;
    ASSERT_OK(busy.Queue(next));
    EXPECT_OK(orEventQuery(event));
    busy.Open();
    ASSERT_OK(orStreamSynchronize(next));
  }
}

TEST_F(Tier2EventTest, SynchronizeReturnsAnErrorOfItsStreamOnce) {
  const orStream_t stream = CreateStream();
  const orEvent_t event = CreateEvent();
  ASSERT_OK(TestedDriver().launch_failing(stream));
  ASSERT_OK(orEventRecord(event, stream));
  EXPECT_FAILS(orEventSynchronize(event), orErrorLaunchFailure);
  EXPECT_OK(orEventSynchronize(event));
  EXPECT_OK(orStreamSynchronize(stream));
}

TEST_F(Tier2EventTest, BelongsToTheDeviceItWasCreatedOn) {
  ASSERT_OK(orSetDevice(other()));
  const orEvent_t event = CreateEvent();
  int device = -1;
  ASSERT_OK(orEventGetDevice(event, &device));
  EXPECT_EQ(device, other());
  EXPECT_FAILS(orEventGetDevice(event, nullptr), orErrorInvalidValue);
  if (count_ > 1) {
    ASSERT_OK(orSetDevice(0));
    EXPECT_FAILS(orEventRecord(event, nullptr), orErrorInvalidDevice);
  }
}

TEST_F(Tier2EventTest, ElapsedTimeIsMeasuredBetweenTwoPointsOfTheQueue) {
  const orStream_t stream = CreateStream();
  const orEvent_t start = CreateEvent(orEventEnableTiming);
  const orEvent_t end = CreateEvent(orEventEnableTiming);
  ASSERT_OK(orEventRecord(start, stream));
  ASSERT_OK(QueueFunction(stream, [] { Sleep(20); }));
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

TEST_F(Tier2EventTest, ElapsedTimeNeedsTwoCompleteTimedEvents) {
  const orStream_t stream = CreateStream();
  const orEvent_t timed = CreateEvent(orEventEnableTiming);
  const orEvent_t never = CreateEvent(orEventEnableTiming);
  const orEvent_t untimed = CreateEvent();
  float milliseconds = 0;
  ASSERT_OK(orEventRecord(timed, stream));
  EXPECT_FAILS(orEventElapsedTime(&milliseconds, timed, never), orErrorInvalidValue);
  EXPECT_FAILS(orEventElapsedTime(&milliseconds, untimed, timed), orErrorNotSupported);
  EXPECT_FAILS(orEventElapsedTime(nullptr, timed, timed), orErrorInvalidValue);
  ASSERT_OK(orEventSynchronize(timed));
  Gate gate;
  ASSERT_OK(gate.Queue(stream));
  ASSERT_OK(orEventRecord(never, stream));
  EXPECT_EQ(orEventElapsedTime(&milliseconds, timed, never), orErrorNotReady);
  gate.Open();
  EXPECT_OK(orEventSynchronize(never));
  EXPECT_OK(orEventElapsedTime(&milliseconds, timed, never));
}

TEST_F(Tier2EventTest, ElapsedTimeNeedsEventsOfOneDevice) {
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
  EXPECT_FAILS(orEventElapsedTime(&milliseconds, here, there), orErrorInvalidValue);
}

TEST_F(Tier2EventTest, AnOldTimestampDoesNotOverwriteANewOne) {
  const orStream_t busy = CreateStream();
  const orStream_t idle = CreateStream();
  const orEvent_t start = CreateEvent(orEventEnableTiming);
  const orEvent_t event = CreateEvent(orEventEnableTiming);
  Gate gate;
  ASSERT_OK(gate.Queue(busy));
  ASSERT_OK(orEventRecord(event, busy));
  ASSERT_OK(orEventRecord(event, idle));
  ASSERT_OK(orEventRecord(start, idle));
  ASSERT_OK(orStreamSynchronize(idle));
  float before = 0, after = 0;
  ASSERT_OK(orEventElapsedTime(&before, start, event));
  gate.Open();
  ASSERT_OK(orStreamSynchronize(busy));
  ASSERT_OK(orEventElapsedTime(&after, start, event));
  EXPECT_EQ(before, after);
}

TEST_F(Tier2EventTest, DestroyingAnEventDoesNotDisturbWaiters) {
  const orStream_t producer = CreateStream();
  const orStream_t consumer = CreateStream();
  const orEvent_t event = CreateEvent(orEventEnableTiming);
  Gate gate;
  ASSERT_OK(gate.Queue(producer));
  ASSERT_OK(orEventRecord(event, producer));
  ASSERT_OK(orStreamWaitEvent(consumer, event, 0));
  ASSERT_OK(orEventDestroy(event));
  // May reuse the resources of the first event.
  const orEvent_t reuse = CreateEvent(orEventEnableTiming);
  EXPECT_OK(orEventQuery(reuse));
  EXPECT_EQ(orStreamQuery(consumer), orErrorNotReady);
  gate.Open();
  EXPECT_OK(orStreamSynchronize(consumer));
}

TEST_F(Tier2EventTest, StaleAndForeignHandlesAreErrors) {
  const orEvent_t stale = CreateEvent();
  ASSERT_OK(orEventDestroy(stale));
  const orEvent_t good = CreateEvent(orEventEnableTiming);
  orStream_t stream;
  ASSERT_OK(orGetDefaultStream(&stream, 0));
  int dummy = 0;
  float milliseconds = 0;
  for (orEvent_t handle :
       {orEvent_t{nullptr}, stale, reinterpret_cast<orEvent_t>(stream),
        reinterpret_cast<orEvent_t>(&dummy), reinterpret_cast<orEvent_t>(UINT64_MAX),
        reinterpret_cast<orEvent_t>(uint64_t{2})}) {
    EXPECT_FAILS(orEventDestroy(handle), orErrorInvalidHandle);
    EXPECT_FAILS(orEventQuery(handle), orErrorInvalidHandle);
    EXPECT_FAILS(orEventSynchronize(handle), orErrorInvalidHandle);
    EXPECT_FAILS(orEventRecord(handle, nullptr), orErrorInvalidHandle);
    EXPECT_FAILS(orEventGetDevice(handle, &dummy), orErrorInvalidHandle);
    EXPECT_FAILS(orStreamWaitEvent(nullptr, handle, 0), orErrorInvalidHandle);
    EXPECT_FAILS(orEventElapsedTime(&milliseconds, good, handle), orErrorInvalidHandle);
  }
  orEvent_t event;
  EXPECT_FAILS(orEventCreate(nullptr), orErrorInvalidValue);
  EXPECT_FAILS(orEventCreateWithFlags(&event, 8), orErrorInvalidValue);
  EXPECT_FAILS(orEventCreateWithFlags(&event, orEventEnableTiming | orEventInterprocess),
               orErrorInvalidValue);
  EXPECT_FAILS(orStreamWaitEvent(nullptr, good, 1), orErrorInvalidValue);
}

TEST_F(Tier2EventTest, ManyEventsAreRecycled) {
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
}  // namespace openreg::cts
