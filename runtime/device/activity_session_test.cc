// SPDX-License-Identifier: BSD-3-Clause
//
// Tests tracing sessions: no record may be lost or duplicated when tracing starts or ends.
#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "runtime/device/activity_fixture.h"

namespace openreg::device {
namespace {

TEST_F(ActivityTest, FullBuffersAreCompleted) {
  Profiler::Get().Start(3 * sizeof(orActivity));
  for (int i = 0; i < 50; ++i) {
    EXPECT_OK(orLaunchKernel(nullptr, Nothing, nullptr, 0, nullptr));
  }
  const std::vector<orActivity> records = Profiler::Get().Stop();
  EXPECT_EQ(Of(records, orActivityKernel).size(), 50U);
  EXPECT_EQ(Calls(records, "orLaunchKernel").size(), 50U);
  EXPECT_GE(Profiler::Get().completed(), 33);
  EXPECT_EQ(Profiler::Get().dropped(), 0U);
}

TEST_F(ActivityTest, RecordsWithoutABufferAreCountedAsDropped) {
  for (const size_t size : {size_t{0}, sizeof(orActivity) / 2}) {
    Profiler::Get().Start(size);
    EXPECT_OK(orLaunchKernel(nullptr, Nothing, nullptr, 0, nullptr));
    EXPECT_OK(orDeviceSynchronize());
    EXPECT_TRUE(Profiler::Get().Stop().empty());
    EXPECT_EQ(Profiler::Get().dropped(), 3U);
  }
}

TEST_F(ActivityTest, WorkQueuedBeforeTracingEndsIsRecorded) {
  QueueLaunches();
  Gate gate;
  const orLaunchAttributes attributes{"late", 0, 0};
  EXPECT_OK(gate.Launch(nullptr));  // not recorded: queued before tracing started
  ASSERT_TRUE(gate.AwaitEntered());
  Profiler::Get().Start();
  EXPECT_OK(orLaunchKernel(nullptr, Nothing, nullptr, 0, &attributes));
  EXPECT_OK(orActivityDisableTracing());
  EXPECT_OK(
      orLaunchKernel(nullptr, Nothing, nullptr, 0, &attributes));  // queued after tracing ended
  gate.Open();
  const auto kernels = Of(Profiler::Get().Stop(), orActivityKernel);
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_STREQ(kernels[0].name, "late");
}

// Tracing ends while a kernel runs on the launching thread. The flush must wait until the launch
// returns.
TEST_F(ActivityTest, ACallInProgressWhenTracingEndsIsRecorded) {
  Gate gate;
  Profiler::Get().Start();
  std::thread launcher([&] { EXPECT_OK(gate.Launch(nullptr, orLaunchInline)); });
  ASSERT_TRUE(gate.AwaitEntered());
  EXPECT_OK(orActivityDisableTracing());
  std::atomic<bool> flushed{false};
  std::thread flusher([&] {
    EXPECT_OK(orActivityFlushAll());
    flushed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(flushed);
  gate.Open();
  flusher.join();
  const std::vector<orActivity> records = Profiler::Get().Stop();
  launcher.join();
  EXPECT_EQ(Of(records, orActivityKernel).size(), 1U);
  EXPECT_EQ(Calls(records, "orLaunchKernel").size(), 1U);
}

TEST_F(ActivityTest, AFlushDoesNotWaitForCallsThatWait) {
  QueueLaunches();
  Gate gate;
  EXPECT_OK(gate.Launch(nullptr));  // not recorded: queued before tracing started
  ASSERT_TRUE(gate.AwaitEntered());
  Profiler::Get().Start();
  std::atomic<bool> synchronized{false};
  std::thread waiter([&] {
    EXPECT_OK(orStreamSynchronize(nullptr));
    synchronized = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(Calls(Profiler::Get().Stop(), "orStreamSynchronize").empty());
  EXPECT_FALSE(synchronized);
  gate.Open();
  waiter.join();
}

// A flush after the end of tracing waits for pending records, but only until tracing starts again.
TEST_F(ActivityTest, AFlushReturnsWhenTracingStartsAgain) {
  QueueLaunches();
  Gate gate;
  Profiler::Get().Start();
  EXPECT_OK(gate.Launch(nullptr));
  EXPECT_OK(orActivityDisableTracing());
  std::thread flusher([] { EXPECT_OK(orActivityFlushAll()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_OK(orActivityEnableTracing());
  flusher.join();
  gate.Open();
  EXPECT_EQ(Of(Profiler::Get().Stop(), orActivityKernel).size(), 1U);
}

TEST_F(ActivityTest, AnotherProfilerIsRefusedWhileOneIsRegistered) {
  Profiler::Get().Start();
  EXPECT_OK(orActivityDisableTracing());  // pauses the profiler, which remains registered
  const auto requested = [](void**, size_t*) {};
  const auto completed = [](void*, size_t) {};
  EXPECT_FAILS(orActivityRegisterCallbacks(requested, completed), orErrorNotPermitted,
               "another profiler has registered its functions");
  EXPECT_OK(orActivityEnableTracing());
  EXPECT_OK(orLaunchKernel(nullptr, Nothing, nullptr, 0, nullptr));
  EXPECT_EQ(Of(Profiler::Get().Stop(), orActivityKernel).size(), 1U);
  EXPECT_OK(orActivityRegisterCallbacks(requested, completed));
  EXPECT_OK(orActivityRegisterCallbacks(requested, completed));
  EXPECT_OK(orActivityRegisterCallbacks(nullptr, nullptr));
}

// A thread may launch while it exits: from the destructor of an object that it created before its
// first record, and that is therefore destroyed later than the thread's records.
TEST_F(ActivityTest, RecordsALaunchDuringThreadExit) {
  struct LaunchesAtEnd {
    ~LaunchesAtEnd() { EXPECT_OK(orLaunchKernel(nullptr, Nothing, nullptr, 0, nullptr)); }
    void Touch() {}
  };
  Profiler::Get().Start();
  std::thread([] {
    thread_local LaunchesAtEnd late;
    late.Touch();
    EXPECT_OK(orLaunchKernel(nullptr, Nothing, nullptr, 0, nullptr));
  }).join();
  const std::vector<orActivity> records = Profiler::Get().Stop();
  EXPECT_EQ(Calls(records, "orLaunchKernel").size(), 1U);
  EXPECT_EQ(Of(records, orActivityKernel).size() + Profiler::Get().dropped(), 3U);
}

// The stream that launches the graph runs all nodes, so the records of all nodes name that stream.
TEST_F(ActivityTest, NodesOfAnotherDeviceBelongToTheLaunchingStream) {
  if (count_ < 2) {
    GTEST_SKIP() << "there is one device";
  }
  const orStream_t stream = CreateStream();
  orStream_t away = nullptr;
  orEvent_t fork = nullptr, join = nullptr;
  ASSERT_OK(orEventCreate(&fork));
  ASSERT_OK(orSetDevice(other()));
  ASSERT_OK(orStreamCreate(&away));
  ASSERT_OK(orEventCreate(&join));
  ASSERT_OK(orSetDevice(0));
  EXPECT_OK(orStreamBeginCapture(stream, orStreamCaptureModeRelaxed));
  EXPECT_OK(orEventRecord(fork, stream));
  EXPECT_OK(orStreamWaitEvent(away, fork, 0));
  EXPECT_OK(orLaunchKernel(away, Nothing, nullptr, 0, nullptr));
  EXPECT_OK(orEventRecord(join, away));
  EXPECT_OK(orStreamWaitEvent(stream, join, 0));
  EXPECT_OK(orLaunchKernel(stream, Nothing, nullptr, 0, nullptr));
  orGraph_t graph = nullptr;
  ASSERT_OK(orStreamEndCapture(stream, &graph));
  Profiler::Get().Start();
  EXPECT_OK(orGraphLaunch(graph, stream));
  const std::vector<orActivity> records = Profiler::Get().Stop();
  const orActivity call = Calls(records, "orGraphLaunch").at(0);
  const auto kernels = Of(records, orActivityKernel);
  ASSERT_EQ(kernels.size(), 2U);
  for (const orActivity& kernel : kernels) {
    ExpectPair(call, kernel);
    EXPECT_EQ(kernel.graph, call.graph);
  }
  EXPECT_OK(orGraphDestroy(graph));
  EXPECT_OK(orEventDestroy(fork));
  EXPECT_OK(orEventDestroy(join));
  EXPECT_OK(orStreamDestroy(away));
  EXPECT_OK(orStreamDestroy(stream));
}

TEST_F(ActivityTest, RecordsOfOneStreamDoNotOverlap) {
  Profiler::Get().Start();
  for (int i = 0; i < 2000; ++i) {
    const orLaunchAttributes attributes{"kernel", i % 3 == 0 ? uint32_t{orLaunchInline} : 0U, 0};
    EXPECT_OK(orLaunchKernel(nullptr, Nothing, nullptr, 0, &attributes));
    if (i % 7 == 0) {
      EXPECT_OK(orStreamSynchronize(nullptr));
    }
  }
  const auto kernels = Of(Profiler::Get().Stop(), orActivityKernel);
  ASSERT_EQ(kernels.size(), 2000U);
  for (size_t i = 1; i < kernels.size(); ++i) {
    EXPECT_LE(kernels[i - 1].end_ns, kernels[i].start_ns);
    EXPECT_LT(kernels[i - 1].correlation, kernels[i].correlation);
  }
}

// Tracing is turned on and off, and buffers are flushed, while threads launch. Each recorded launch
// must appear exactly once, and so must its kernel.
TEST_F(ActivityTest, ThreadsLaunchWhileTracingIsToggled) {
  constexpr int kThreads = 8;
  constexpr int kSessions = 30;
  constexpr int kLaunches = 4000;  // maximum per session, because the profiler stores all records
  Profiler::Get().Start(16 * sizeof(orActivity));
  std::atomic<bool> over{false};
  std::atomic<int> launched{0};
  std::atomic<int> allowed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_OK(orSetDevice(i % count_));
      orStream_t stream = nullptr;
      EXPECT_OK(orStreamCreate(&stream));
      const orLaunchAttributes attributes{"kernel", i % 2 == 0 ? uint32_t{orLaunchInline} : 0U, 0};
      while (!over.load()) {
        if (launched.load() >= allowed.load()) {
          std::this_thread::sleep_for(std::chrono::microseconds(20));
          continue;
        }
        EXPECT_OK(orLaunchKernel(stream, Nothing, nullptr, 0, &attributes));
        if (++launched % 64 == 0) {
          EXPECT_OK(orStreamSynchronize(stream));
        }
      }
      EXPECT_OK(orStreamSynchronize(stream));
      EXPECT_OK(orStreamDestroy(stream));
    });
  }
  for (int session = 0; session < kSessions; ++session) {
    const int before = launched.load();
    EXPECT_OK(orActivityEnableTracing());
    allowed = before + kLaunches;
    EXPECT_TRUE(Eventually([&] { return launched.load() > before + 100; }));
    EXPECT_OK(orActivityFlushAll());
    EXPECT_OK(orActivityDisableTracing());
    allowed = launched.load() + 100;
    EXPECT_TRUE(Eventually([&] { return launched.load() >= allowed.load(); }));
  }
  over = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  const std::vector<orActivity> records = Profiler::Get().Stop();
  EXPECT_EQ(Profiler::Get().dropped(), 0U);
  EXPECT_LT(Of(records, orActivityKernel).size(), static_cast<size_t>(launched.load()));
  std::map<uint32_t, int> calls, kernels;
  for (const orActivity& call : Calls(records, "orLaunchKernel")) {
    ++calls[call.correlation];
  }
  for (const orActivity& kernel : Of(records, orActivityKernel)) {
    ++kernels[kernel.correlation];
  }
  EXPECT_GT(calls.size(), size_t{100} * kSessions);
  EXPECT_EQ(calls, kernels);
  for (const auto& [correlation, count] : calls) {
    EXPECT_EQ(count, 1) << correlation;
  }
}

}  // namespace
}  // namespace openreg::device
