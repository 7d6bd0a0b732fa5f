// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/collector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "profiler/clock.h"
#include "profiler/labels.h"
#include "runtime/device/openreg_emulation.h"

namespace openreg {
namespace {

constexpr size_t kEnough = size_t{16} << 20;

void launch(const char* name) {
  const orLaunchAttributes attributes{name, 0, 0};
  const orKernelFunction_t nothing = [](void*) { return orSuccess; };
  ASSERT_EQ(orLaunchKernel(nullptr, nothing, nullptr, 0, &attributes), orSuccess);
}

size_t kernels(const std::vector<orActivity>& records) {
  return static_cast<size_t>(
      std::count_if(records.begin(), records.end(),
                    [](const orActivity& record) { return record.kind == orActivityKernel; }));
}

TEST(CollectorTest, TakesWhatRunsFromStartToStop) {
  ActivityCollector& collector = ActivityCollector::get();
  launch("before");
  collector.start(kEnough);
  for (int i = 0; i < 5000; ++i) {
    launch("kernel");
  }
  collector.stop();
  launch("after");
  EXPECT_EQ(kernels(collector.take()), 5000U);
  EXPECT_EQ(collector.dropped(), 0U);
  EXPECT_TRUE(collector.take().empty());
}

TEST(CollectorTest, PausesAndGoesOn) {
  ActivityCollector& collector = ActivityCollector::get();
  collector.pause();  // it is not started
  collector.resume();
  launch("before");
  collector.start(kEnough);
  launch("kernel");
  collector.pause();
  launch("left out");
  collector.resume();
  launch("kernel");
  collector.stop();
  EXPECT_EQ(kernels(collector.take()), 2U);
}

TEST(CollectorTest, CountsWhatDoesNotFit) {
  ActivityCollector& collector = ActivityCollector::get();
  collector.start(size_t{128} << 10);  // two buffers: of this thread, and of the worker
  for (int i = 0; i < 5000; ++i) {
    launch("kernel");
  }
  collector.stop();
  const std::vector<orActivity> records = collector.take();
  EXPECT_GT(records.size(), 100U);
  EXPECT_EQ(records.size() + collector.dropped(), 10'000U);
  collector.start(0);
  launch("kernel");
  collector.stop();
  EXPECT_TRUE(collector.take().empty());
  EXPECT_EQ(collector.dropped(), 2U);
}

// A thread goes on writing to the buffer that it has.
TEST(CollectorTest, ABufferInUseStays) {
  ActivityCollector& collector = ActivityCollector::get();
  collector.start(kEnough);
  launch("kernel");
  EXPECT_TRUE(collector.take().empty());
  launch("kernel");
  collector.stop();
  EXPECT_EQ(kernels(collector.take()), 2U);
}

TEST(CollectorTest, ThreadsThatEndGiveTheirRoomBack) {
  ActivityCollector& collector = ActivityCollector::get();
  collector.start(size_t{256} << 10);  // four buffers
  for (int i = 0; i < 50; ++i) {
    std::thread([] { launch("kernel"); }).join();
  }
  collector.stop();
  EXPECT_EQ(kernels(collector.take()), 50U);
  EXPECT_EQ(collector.dropped(), 0U);
}

TEST(CollectorTest, ASecondProfilerIsRefused) {
  ASSERT_EQ(orActivityEnableTracing(), orSuccess);
  EXPECT_THROW(ActivityCollector::get().start(kEnough), std::runtime_error);
  ASSERT_EQ(orActivityDisableTracing(), orSuccess);
  ActivityCollector::get().start(kEnough);
  ActivityCollector::get().stop();
}

TEST(LabelsTest, AreThoseOfCuda) {
  orActivity activity{};
  activity.kind = orActivityMemcpy;
  activity.copy = orMemcpyHostToDevice;
  activity.source = orMemoryTypeHost;
  activity.destination = orMemoryTypeDevice;
  EXPECT_EQ(activity_label(activity), "Memcpy HtoD (Pinned -> Device)");
  activity.copy = orMemcpyDeviceToHost;
  activity.source = orMemoryTypeDevice;
  activity.destination = orMemoryTypeUnmanaged;
  EXPECT_EQ(activity_label(activity), "Memcpy DtoH (Device -> Pageable)");
  activity.kind = orActivityMemset;
  activity.destination = orMemoryTypeDevice;
  EXPECT_EQ(activity_label(activity), "Memset (Device)");
  activity.kind = orActivityKernel;
  EXPECT_EQ(activity_label(activity), "(unnamed kernel)");
  activity.name = "aten::add.Tensor";
  EXPECT_EQ(activity_label(activity), "aten::add.Tensor");
}

TEST(ClockMapTest, FollowsTheClockOfTheSystem) {
  const auto ns = [](auto time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  };
  ClockMap clocks;
  clocks.begin();
  const auto monotonic = ns(std::chrono::steady_clock::now());
  const auto wall = ns(std::chrono::system_clock::now());
  clocks.end();
  EXPECT_LT(std::abs(clocks.unix_ns(static_cast<uint64_t>(monotonic)) - wall), 1'000'000);
  EXPECT_GT(clocks.unix_ns(static_cast<uint64_t>(monotonic) + 1000),
            clocks.unix_ns(static_cast<uint64_t>(monotonic)));
}

}  // namespace
}  // namespace openreg
