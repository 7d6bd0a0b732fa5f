// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/collector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "profiler/activity_label.h"
#include "profiler/clock.h"
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

TEST(CollectorTest, RecordsFromStartToStop) {
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

TEST(CollectorTest, PausesAndResumes) {
  ActivityCollector& collector = ActivityCollector::get();
  collector.pause();  // no effect before start()
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

TEST(CollectorTest, CountsDroppedRecords) {
  ActivityCollector& collector = ActivityCollector::get();
  collector.start(size_t{128} << 10);  // two buffers: one for this thread and one for the worker
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

// Checks that a thread continues to use the same buffer after take().
TEST(CollectorTest, AThreadKeepsItsBuffer) {
  ActivityCollector& collector = ActivityCollector::get();
  collector.start(kEnough);
  launch("kernel");
  EXPECT_TRUE(collector.take().empty());
  launch("kernel");
  collector.stop();
  EXPECT_EQ(kernels(collector.take()), 2U);
}

TEST(CollectorTest, EndingThreadsReturnTheirBuffers) {
  ActivityCollector& collector = ActivityCollector::get();
  collector.start(size_t{256} << 10);  // four buffers
  for (int i = 0; i < 50; ++i) {
    std::thread([] { launch("kernel"); }).join();
  }
  collector.stop();
  EXPECT_EQ(kernels(collector.take()), 50U);
  EXPECT_EQ(collector.dropped(), 0U);
}

TEST(CollectorTest, RejectsASecondProfiler) {
  ASSERT_EQ(orActivityEnableTracing(), orSuccess);
  EXPECT_THROW(ActivityCollector::get().start(kEnough), std::runtime_error);
  ASSERT_EQ(orActivityDisableTracing(), orSuccess);
  ActivityCollector::get().start(kEnough);
  ActivityCollector::get().stop();
}

// Four threads launch without a pause on four streams of two devices, while sessions begin and end.
// Each session must contain exactly the records that the driver reports as recorded: each call
// once, together with its kernel. OPENREG_STRESS_SECONDS sets the duration.
TEST(CollectorTest, SessionsLoseNothing) {
  constexpr int kThreads = 4;
  int devices = 0;
  ASSERT_EQ(orGetDeviceCount(&devices), orSuccess);
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      ASSERT_EQ(orSetDevice(i % devices), orSuccess);
      orStream_t stream = nullptr;
      ASSERT_EQ(orStreamCreate(&stream), orSuccess);
      const orKernelFunction_t nothing = [](void*) { return orSuccess; };
      for (uint32_t count = 0; !over; ++count) {
        // Some kernels run within the call, others on the worker thread of the stream.
        const orLaunchAttributes attributes{
            "kernel", count % 3 == 0 ? uint32_t{orLaunchInline} : uint32_t{orLaunchShort}, 0};
        ASSERT_EQ(orLaunchKernel(stream, nothing, nullptr, 0, &attributes), orSuccess);
        if (count % 50 == 0) {
          ASSERT_EQ(orStreamSynchronize(stream), orSuccess);
        }
      }
      ASSERT_EQ(orStreamDestroy(stream), orSuccess);
    });
  }
  const auto recorded = [] {
    uint64_t recorded = 0, dropped = 0;
    EXPECT_EQ(orActivityGetCounts(&recorded, &dropped), orSuccess);
    return recorded;
  };
  const char* const seconds = std::getenv("OPENREG_STRESS_SECONDS");
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::seconds(seconds != nullptr ? std::atoi(seconds) : 1);
  ActivityCollector& collector = ActivityCollector::get();
  uint64_t all = 0;
  int sessions = 0;
  for (; std::chrono::steady_clock::now() < end && !HasFailure(); ++sessions) {
    const uint64_t before = recorded();
    collector.start(size_t{1} << 30);
    std::this_thread::sleep_for(std::chrono::milliseconds(1 + sessions % 50));
    collector.stop();
    const std::vector<orActivity> records = collector.take();
    ASSERT_EQ(collector.dropped(), 0U);
    ASSERT_EQ(records.size(), recorded() - before) << "session " << sessions;
    all += records.size();
    // Count the calls and the kernels by correlation.
    std::map<uint32_t, std::pair<int, int>> launches;
    for (const orActivity& record : records) {
      if (record.kind == orActivityKernel) {
        ++launches[record.correlation].second;
      } else if (record.name == std::string_view("orLaunchKernel")) {
        ++launches[record.correlation].first;
      }
    }
    for (const auto& [correlation, counts] : launches) {
      ASSERT_EQ(counts, std::pair(1, 1)) << "correlation " << correlation;
    }
  }
  over = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_GT(all, 0U);
  RecordProperty("sessions", sessions);
  RecordProperty("records", std::to_string(all));
}

TEST(LabelsTest, EqualThoseOfCuda) {
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

TEST(ClockMapTest, FollowsTheSystemClock) {
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
