// SPDX-License-Identifier: BSD-3-Clause
//
// Tests streams, events, devices and errors through torch's interface, the device guard.
#include "runtime/c10/stream.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "runtime/c10/error.h"
#include "runtime/c10/event.h"
#include "runtime/device/openreg_emulation.h"

namespace openreg {
namespace {

using std::chrono::milliseconds;

const c10::impl::VirtualGuardImpl& guard() {
  static const c10::impl::VirtualGuardImpl impl(kOpenRegType);
  return impl;
}

c10::Device device(c10::DeviceIndex index) { return {kOpenRegType, index}; }

// Shared with launch_gate(), whose kernel runs until `open` is set and then increments `count`.
struct Gate {
  std::atomic<bool> open{false};
  std::atomic<int> count{0};
};

void launch_gate(const c10::Stream& stream, Gate* gate) {
  OPENREG_CHECK(orLaunchKernel(
      native_stream(stream),
      [](Gate* g) {
        while (!g->open.load()) {
          std::this_thread::yield();
        }
        ++g->count;
      },
      gate));
}

void launch_count(const c10::Stream& stream, Gate* gate) {
  OPENREG_CHECK(orLaunchKernel(native_stream(stream), [](Gate* g) { ++g->count; }, gate));
}

TEST(DeviceTest, CurrentDeviceBelongsToTheThread) {
  const DeviceScope scope(1);
  EXPECT_EQ(current_device(), 1);
  std::thread([] { EXPECT_EQ(current_device(), 0); }).join();
}

TEST(DeviceTest, IndexOutOfRangeGivesTorchsMessage) {
  const c10::DeviceIndex count = device_count();
  for (const auto index : {static_cast<c10::DeviceIndex>(count), c10::DeviceIndex{-2}}) {
    try {
      (void)resolve_device(index);
      FAIL() << "no error for index " << static_cast<int>(index);
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find("The device index is out of range"),
                std::string::npos);
    }
  }
  EXPECT_EQ(current_device(), 0);
}

TEST(DeviceTest, GuardRestores) {
  {
    const c10::DeviceGuard guard(device(1));
    EXPECT_EQ(current_device(), 1);
  }
  EXPECT_EQ(current_device(), 0);
}

TEST(StreamTest, DefaultStreamHasIdZero) {
  EXPECT_EQ(guard().getDefaultStream(device(0)).id(), 0);
  EXPECT_EQ(guard().getStream(device(1)), guard().getDefaultStream(device(1)));
}

TEST(StreamTest, PoolIsRoundRobin) {
  std::set<c10::StreamId> ids;
  for (int i = 0; i < kStreamsPerPool; ++i) {
    ids.insert(guard().getNewStream(device(0), 0).id());
  }
  EXPECT_EQ(ids.size(), static_cast<size_t>(kStreamsPerPool));
  EXPECT_TRUE(ids.contains(guard().getNewStream(device(0), 0).id()));
}

TEST(StreamTest, CurrentStreamBelongsToThreadAndDevice) {
  const c10::Stream stream = guard().getStreamFromGlobalPool(device(0));
  const c10::StreamGuard scope(stream);
  EXPECT_EQ(current_stream(0), stream);
  EXPECT_EQ(current_native_stream(0), native_stream(stream));
  EXPECT_EQ(current_stream(1), default_stream(1));
  std::thread([] { EXPECT_EQ(current_stream(0), default_stream(0)); }).join();
}

// Uses streams in its destructor. Thread-local objects are destroyed in reverse order of
// construction. This object is constructed first, so it is destroyed last.
struct QueriesAtThreadExit {
  ~QueriesAtThreadExit() {
    const c10::Stream stream = guard().getStreamFromGlobalPool(device(0));
    (void)exchange_stream(stream);
    *answer = current_stream(0);
    EXPECT_EQ(current_native_stream(0), native_stream(default_stream(0)));
  }
  c10::Stream* answer;
};

TEST(StreamTest, AnEndingThreadUsesTheDefaultStream) {
  c10::Stream answer = guard().getStreamFromGlobalPool(device(0));
  std::thread([&] {
    static thread_local QueriesAtThreadExit asks;
    asks.answer = &answer;
    (void)exchange_stream(guard().getStreamFromGlobalPool(device(0)));
  }).join();
  EXPECT_EQ(answer, default_stream(0));
}

TEST(EventTest, AFailedAdoptionDoesNotAffectAnotherEvent) {
  orEvent_t native = nullptr;
  ASSERT_EQ(orEventCreate(&native), orSuccess);
  c10::Event of_the_cpu(c10::DeviceType::CPU);
  EXPECT_THROW(adopt_event(of_the_cpu, native, 0), c10::Error);
  int index = 0;
  EXPECT_EQ(orEventGetDevice(native, &index), orErrorInvalidHandle);  // the event was destroyed
  c10::Event event(kOpenRegType);
  event.record(default_stream(0));
  EXPECT_NE(event.eventId(), native);
}

TEST(StreamTest, NativeHandleRoundTrip) {
  const c10::Stream stream = guard().getNewStream(device(1));
  auto* const handle = static_cast<orStream_t>(guard().getStreamNativeHandle(stream));
  EXPECT_EQ(external_stream(handle, 1), stream);
  EXPECT_THROW((void)external_stream(handle, 0), c10::Error);
}

TEST(StreamTest, QueryAndSynchronize) {
  Gate gate;
  const c10::Stream stream = guard().getNewStream(device(0));
  launch_gate(stream, &gate);
  EXPECT_FALSE(guard().queryStream(stream));
  gate.open = true;
  guard().synchronizeStream(stream);
  EXPECT_TRUE(guard().queryStream(stream));
  EXPECT_EQ(gate.count, 1);
}

TEST(EventTest, OrdersTwoStreamsOfTwoDevices) {
  Gate gate;
  const c10::Stream first = guard().getNewStream(device(0));
  const c10::Stream second = guard().getNewStream(device(1));
  launch_gate(first, &gate);
  c10::Event event(kOpenRegType);
  event.record(first);
  event.block(second);
  launch_count(second, &gate);
  EXPECT_FALSE(event.query());
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(gate.count, 0);
  gate.open = true;
  guard().synchronizeStream(second);
  EXPECT_EQ(gate.count, 2);
  EXPECT_TRUE(event.query());
}

TEST(EventTest, OrderingReturnsTheDriversError) {
  orStream_t destroyed = nullptr;
  ASSERT_EQ(orStreamCreate(&destroyed), orSuccess);
  ASSERT_EQ(orStreamDestroy(destroyed), orSuccess);
  EXPECT_EQ(order_streams(destroyed, nullptr), orErrorInvalidHandle);
  EXPECT_EQ(order_streams(nullptr, destroyed), orErrorInvalidHandle);
  EXPECT_EQ(order_streams(nullptr, nullptr), orSuccess);
}

TEST(EventTest, MeasuresTime) {
  const c10::Stream stream = guard().getNewStream(device(0));
  c10::Event start(kOpenRegType, c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(kOpenRegType, c10::EventFlag::BACKEND_DEFAULT);
  start.record(stream);
  OPENREG_CHECK(orLaunchKernel(
      native_stream(stream), [](int ms) { std::this_thread::sleep_for(milliseconds(ms)); }, 20));
  end.record(stream);
  EXPECT_THROW((void)start.elapsedTime(end), c10::Error);  // `end` is not complete yet
  end.synchronize();
  EXPECT_GE(start.elapsedTime(end), 20.0);
}

TEST(EventTest, ElapsedTimeNeedsTwoRecordedEvents) {
  EXPECT_THROW((void)guard().elapsedTime(nullptr, nullptr, 0), c10::Error);
}

}  // namespace
}  // namespace openreg
