// SPDX-License-Identifier: BSD-3-Clause
//
// Tests that calls and work are recorded, without loss or duplicates.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/device/device_fixture.h"

namespace openreg::device {
namespace {

// A profiler that keeps all records it receives.
class Profiler {
 public:
  static Profiler& Get() {
    static Profiler& profiler = *new Profiler;
    return profiler;
  }

  // `size`: of each buffer; 0: no buffers are provided.
  void Start(size_t size = 4096) {
    buffer_size_ = size;
    completed_ = 0;
    records_.clear();
    ASSERT_OK(orActivityGetCounts(&recorded_before_, &dropped_before_));
    ASSERT_OK(orActivityRegisterCallbacks(&Request, &Complete));
    ASSERT_OK(orActivityEnableTracing());
  }

  // The records since Start, ordered by their end.
  std::vector<orActivity> Stop() {
    EXPECT_OK(orActivityDisableTracing());
    EXPECT_OK(orActivityFlushAll());
    uint64_t recorded = 0, dropped = 0;
    EXPECT_OK(orActivityGetCounts(&recorded, &dropped));
    dropped_ = dropped - dropped_before_;
    EXPECT_OK(orActivityRegisterCallbacks(nullptr, nullptr));
    EXPECT_EQ(buffers_, 0) << "buffers that never came back";
    EXPECT_EQ(records_.size(), recorded - recorded_before_);
    std::sort(records_.begin(), records_.end(),
              [](const orActivity& a, const orActivity& b) { return a.end_ns < b.end_ns; });
    return records_;
  }

  uint64_t dropped() const { return dropped_; }
  int completed() const { return completed_; }

 private:
  static void Request(void** buffer, size_t* size) {
    Profiler& self = Get();
    if (self.buffer_size_ != 0) {
      *buffer = std::make_unique<uint64_t[]>(self.buffer_size_ / sizeof(uint64_t)).release();
      *size = self.buffer_size_;
      ++self.buffers_;
    }
  }

  static void Complete(void* buffer, size_t used) {
    Profiler& self = Get();
    const std::unique_ptr<uint64_t[]> owned(static_cast<uint64_t*>(buffer));
    const auto* records = static_cast<const orActivity*>(buffer);
    EXPECT_EQ(used % sizeof(orActivity), 0U);
    const std::lock_guard lock(self.mutex_);
    self.records_.insert(self.records_.end(), records, records + used / sizeof(orActivity));
    ++self.completed_;
    --self.buffers_;
  }

  std::mutex mutex_;
  std::vector<orActivity> records_;
  std::atomic<size_t> buffer_size_{0};
  std::atomic<int> buffers_{0};
  int completed_ = 0;
  uint64_t recorded_before_ = 0;
  uint64_t dropped_before_ = 0;
  uint64_t dropped_ = 0;
};

class ActivityTest : public DeviceTest {
 protected:
  void TearDown() override {
    EXPECT_OK(orActivityDisableTracing());
    DeviceTest::TearDown();
  }

  static std::vector<orActivity> Of(const std::vector<orActivity>& records, orActivityKind kind) {
    std::vector<orActivity> found;
    std::copy_if(records.begin(), records.end(), std::back_inserter(found),
                 [=](const orActivity& record) { return record.kind == kind; });
    return found;
  }

  static std::vector<orActivity> Calls(const std::vector<orActivity>& records, const char* name) {
    std::vector<orActivity> found;
    for (const orActivity& record : Of(records, orActivityRuntime)) {
      if (std::string(record.name) == name) {
        found.push_back(record);
      }
    }
    return found;
  }

  // Checks that `call` queued `work` and that the work started after the call.
  static void ExpectPair(const orActivity& call, const orActivity& work) {
    EXPECT_EQ(call.correlation, work.correlation);
    EXPECT_EQ(call.thread, gettid());
    EXPECT_EQ(work.thread, gettid());
    EXPECT_EQ(call.device, work.device);
    EXPECT_EQ(call.stream, work.stream);
    EXPECT_LE(call.start_ns, call.end_ns);
    EXPECT_LE(call.start_ns, work.queued_ns);
    EXPECT_LE(work.queued_ns, work.start_ns);
    EXPECT_LE(work.start_ns, work.end_ns);
  }
};

orError_t Nothing(void*) { return orSuccess; }

TEST_F(ActivityTest, NothingIsRecordedWhileTracingIsOff) {
  Profiler::Get().Start();
  EXPECT_TRUE(Profiler::Get().Stop().empty());
  uint64_t before = 0, after = 0, dropped = 0;
  EXPECT_OK(orActivityGetCounts(&before, &dropped));
  const orLaunchAttributes attributes{"kernel", 0, 0};
  EXPECT_OK(orLaunchKernel(nullptr, Nothing, nullptr, 0, &attributes));
  EXPECT_OK(orDeviceSynchronize());
  EXPECT_OK(orActivityGetCounts(&after, &dropped));
  EXPECT_EQ(after, before);
}

TEST_F(ActivityTest, RecordsAKernelAndItsCall) {
  for (const uint32_t flags : {0U, uint32_t{orLaunchInline}, uint32_t{orLaunchParallel}}) {
    ASSERT_OK(orSetDevice(other()));
    const orStream_t stream = CreateStream();
    Profiler::Get().Start();
    const orLaunchAttributes attributes{"aten::add.Tensor", flags, 1000};
    EXPECT_OK(orLaunchKernel(stream, Nothing, nullptr, 0, &attributes));
    const std::vector<orActivity> records = Profiler::Get().Stop();
    const auto calls = Calls(records, "orLaunchKernel");
    const auto kernels = Of(records, orActivityKernel);
    ASSERT_EQ(calls.size(), 1U);
    ASSERT_EQ(kernels.size(), 1U);
    ExpectPair(calls[0], kernels[0]);
    EXPECT_STREQ(kernels[0].name, "aten::add.Tensor");
    EXPECT_EQ(kernels[0].device, other());
    EXPECT_GE(kernels[0].stream, count_) << "not a default stream";
    EXPECT_EQ(kernels[0].graph, 0);
    EXPECT_OK(orStreamDestroy(stream));
  }
}

TEST_F(ActivityTest, AKernelThatFailsIsRecorded) {
  Profiler::Get().Start();
  (void)orLaunchKernel(
      nullptr,
      [](void*) { return orKernelFail(orErrorLaunchFailure, "on purpose", nullptr, nullptr); },
      nullptr, 0, nullptr);
  (void)orDeviceSynchronize();
  const std::vector<orActivity> records = Profiler::Get().Stop();
  ASSERT_EQ(Of(records, orActivityKernel).size(), 1U);
  EXPECT_EQ(Of(records, orActivityKernel)[0].name, nullptr);
}

TEST_F(ActivityTest, RecordsDescribeCopiesAndFills) {
  constexpr size_t kBytes = 100'000;
  std::vector<unsigned char> pageable(kBytes);
  void* pinned = nullptr;
  ASSERT_OK(orMallocHost(&pinned, kBytes));
  auto* device = Allocate<unsigned char>(kBytes);
  auto* second = Allocate<unsigned char>(kBytes);
  Profiler::Get().Start();
  EXPECT_OK(orMemcpyAsync(device, pinned, kBytes, orMemcpyHostToDevice, nullptr));
  EXPECT_OK(orMemcpyAsync(device, pageable.data(), 16, orMemcpyHostToDevice, nullptr));
  EXPECT_OK(orMemcpyAsync(pageable.data(), device, kBytes, orMemcpyDefault, nullptr));
  EXPECT_OK(orMemcpy(second, device, 32, orMemcpyDeviceToDevice));
  EXPECT_OK(orMemsetAsync(second, 3, 64, nullptr));
  EXPECT_OK(orMemset(pinned, 3, 128));
  const std::vector<orActivity> records = Profiler::Get().Stop();
  const auto copies = Of(records, orActivityMemcpy);
  ASSERT_EQ(copies.size(), 4U);
  const auto expect = [](const orActivity& record, orMemcpyKind kind, orMemoryType source,
                         orMemoryType destination, size_t bytes) {
    EXPECT_EQ(record.copy, kind);
    EXPECT_EQ(record.source, source);
    EXPECT_EQ(record.destination, destination);
    EXPECT_EQ(record.bytes, bytes);
  };
  expect(copies[0], orMemcpyHostToDevice, orMemoryTypeHost, orMemoryTypeDevice, kBytes);
  expect(copies[1], orMemcpyHostToDevice, orMemoryTypeUnmanaged, orMemoryTypeDevice, 16);
  expect(copies[2], orMemcpyDeviceToHost, orMemoryTypeDevice, orMemoryTypeUnmanaged, kBytes);
  expect(copies[3], orMemcpyDeviceToDevice, orMemoryTypeDevice, orMemoryTypeDevice, 32);
  const auto fills = Of(records, orActivityMemset);
  ASSERT_EQ(fills.size(), 2U);
  EXPECT_EQ(fills[0].bytes, 64U);
  EXPECT_EQ(fills[0].destination, orMemoryTypeDevice);
  EXPECT_EQ(fills[1].bytes, 128U);
  EXPECT_EQ(fills[1].destination, orMemoryTypeHost);
  const auto calls = Calls(records, "orMemcpyAsync");
  ASSERT_EQ(calls.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    ExpectPair(calls[i], copies[i]);
    EXPECT_EQ(calls[i].bytes, copies[i].bytes);
  }
  ExpectPair(Calls(records, "orMemcpy").at(0), copies[3]);
  ExpectPair(Calls(records, "orMemset").at(0), fills[1]);
  EXPECT_OK(orFreeHost(pinned));
}

TEST_F(ActivityTest, RecordsAKernelThatCopiesAsACopy) {
  const orCopyDescription copy{40, orMemcpyDeviceToHost, orMemoryTypeDevice, orMemoryTypeHost};
  const orLaunchAttributes attributes{"aten::copy", orLaunchHasCopy, 0, nullptr, &copy};
  EXPECT_FALSE(orLaunchReadsCopy());
  Profiler::Get().Start();
  EXPECT_TRUE(orActivityIsEnabled());
  EXPECT_TRUE(orLaunchReadsCopy());
  EXPECT_OK(orLaunchKernel(nullptr, Nothing, nullptr, 0, &attributes));
  const auto copies = Of(Profiler::Get().Stop(), orActivityMemcpy);
  EXPECT_FALSE(orActivityIsEnabled());
  ASSERT_EQ(copies.size(), 1U);
  EXPECT_EQ(copies[0].bytes, 40U);
  EXPECT_EQ(copies[0].copy, orMemcpyDeviceToHost);
  EXPECT_EQ(copies[0].destination, orMemoryTypeHost);
}

TEST_F(ActivityTest, AKernelWithoutTheFlagIsNotACopy) {
  const orCopyDescription copy{40, orMemcpyDeviceToHost, orMemoryTypeDevice, orMemoryTypeHost};
  const orLaunchAttributes attributes{"aten::copy", 0, 0, nullptr, &copy};
  Profiler::Get().Start();
  EXPECT_OK(orLaunchKernel(nullptr, Nothing, nullptr, 0, &attributes));
  const std::vector<orActivity> records = Profiler::Get().Stop();
  EXPECT_TRUE(Of(records, orActivityMemcpy).empty());
  EXPECT_EQ(Of(records, orActivityKernel).size(), 1U);
}

TEST_F(ActivityTest, RecordsACopyThatWasCapturedBeforeTracing) {
  const orCopyDescription copy{40, orMemcpyDeviceToDevice, orMemoryTypeDevice, orMemoryTypeDevice};
  const orLaunchAttributes attributes{"aten::copy", orLaunchHasCopy, 0, nullptr, &copy};
  const orStream_t stream = CreateStream();
  EXPECT_OK(orStreamBeginCapture(stream, orStreamCaptureModeRelaxed));
  EXPECT_TRUE(orLaunchReadsCopy());
  EXPECT_OK(orLaunchKernel(stream, Nothing, nullptr, 0, &attributes));
  orGraph_t graph = nullptr;
  ASSERT_OK(orStreamEndCapture(stream, &graph));
  Profiler::Get().Start();
  EXPECT_OK(orGraphLaunch(graph, stream));
  const auto copies = Of(Profiler::Get().Stop(), orActivityMemcpy);
  ASSERT_EQ(copies.size(), 1U);
  EXPECT_EQ(copies[0].bytes, 40U);
  EXPECT_GT(copies[0].graph, 0);
  EXPECT_OK(orGraphDestroy(graph));
  EXPECT_OK(orStreamDestroy(stream));
}

// The library that contains a kernel's name may be unloaded, and another one loaded at its address.
TEST_F(ActivityTest, NamesAreReadDuringTheCall) {
  char name[] = "first";
  const orLaunchAttributes attributes{name, 0, 0};
  Profiler::Get().Start();
  EXPECT_OK(orLaunchKernel(nullptr, Nothing, nullptr, 0, &attributes));
  EXPECT_OK(orDeviceSynchronize());
  std::strcpy(name, "other");
  EXPECT_OK(orLaunchKernel(nullptr, Nothing, nullptr, 0, &attributes));
  EXPECT_OK(orDeviceSynchronize());
  std::strcpy(name, "gone!");
  const auto kernels = Of(Profiler::Get().Stop(), orActivityKernel);
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_STREQ(kernels[0].name, "first");
  EXPECT_STREQ(kernels[1].name, "other");
}

TEST_F(ActivityTest, RecordsCallsThatWaitOrAllocate) {
  orEvent_t event = nullptr;
  ASSERT_OK(orEventCreate(&event));
  const orStream_t stream = CreateStream();
  Profiler::Get().Start();
  EXPECT_OK(orEventRecord(event, nullptr));
  EXPECT_OK(orStreamWaitEvent(stream, event, 0));
  EXPECT_OK(orEventSynchronize(event));
  EXPECT_OK(orStreamSynchronize(stream));
  EXPECT_OK(orDeviceSynchronize());
  void* memory = nullptr;
  EXPECT_OK(orMalloc(&memory, 5000));
  EXPECT_OK(orFree(memory));
  EXPECT_OK(orLaunchHostFunc(stream, [](void*) {}, nullptr));
  const std::vector<orActivity> records = Profiler::Get().Stop();
  for (const char* name :
       {"orEventRecord", "orStreamWaitEvent", "orEventSynchronize", "orStreamSynchronize",
        "orDeviceSynchronize", "orMalloc", "orFree", "orLaunchHostFunc"}) {
    EXPECT_EQ(Calls(records, name).size(), 1U) << name;
  }
  EXPECT_EQ(Calls(records, "orEventRecord").at(0).object, reinterpret_cast<uint64_t>(event));
  EXPECT_EQ(Calls(records, "orStreamWaitEvent").at(0).object, reinterpret_cast<uint64_t>(event));
  EXPECT_EQ(Calls(records, "orDeviceSynchronize").at(0).device, -1);
  EXPECT_EQ(Calls(records, "orMalloc").at(0).bytes, 5000U);
  EXPECT_EQ(Calls(records, "orFree").at(0).object, reinterpret_cast<uint64_t>(memory));
  ASSERT_EQ(Of(records, orActivityHostFunction).size(), 1U);
  ExpectPair(Calls(records, "orLaunchHostFunc").at(0), Of(records, orActivityHostFunction)[0]);
  EXPECT_OK(orEventDestroy(event));
}

TEST_F(ActivityTest, RecordsEachNodeOfEachReplay) {
  // Replays run within their call or on the stream's threads.
  for (const uint32_t flags : {uint32_t{orLaunchInline}, 0U}) {
    const orStream_t stream = CreateStream();
    auto* memory = Allocate<unsigned char>(64);
    const orLaunchAttributes attributes{"kernel", flags, 0};
    ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeThreadLocal));
    Profiler::Get().Start();
    EXPECT_OK(orLaunchKernel(stream, Nothing, nullptr, 0, &attributes));
    EXPECT_OK(orMemsetAsync(memory, 1, 64, stream));
    EXPECT_OK(orLaunchKernel(stream, Nothing, nullptr, 0, &attributes));
    orGraph_t graph = nullptr;
    ASSERT_OK(orStreamEndCapture(stream, &graph));
    const std::vector<orActivity> captured = Profiler::Get().Stop();
    EXPECT_EQ(captured.size(), 3U);
    EXPECT_EQ(Of(captured, orActivityRuntime).size(), 3U) << "a capture runs nothing";

    Profiler::Get().Start();
    EXPECT_OK(orGraphLaunch(graph, stream));
    EXPECT_OK(orGraphLaunch(graph, stream));
    const std::vector<orActivity> records = Profiler::Get().Stop();
    const auto calls = Calls(records, "orGraphLaunch");
    ASSERT_EQ(calls.size(), 2U);
    for (const orActivity& call : calls) {
      std::vector<orActivity> nodes;
      for (const orActivity& record : records) {
        if (record.correlation == call.correlation && record.kind != orActivityRuntime) {
          nodes.push_back(record);
        }
      }
      ASSERT_EQ(nodes.size(), 3U);
      for (size_t i = 0; i < 3; ++i) {
        ExpectPair(call, nodes[i]);
        EXPECT_EQ(nodes[i].node, static_cast<int32_t>(i));
        EXPECT_EQ(nodes[i].graph, nodes[0].graph);
        EXPECT_GT(nodes[i].graph, 0);
        EXPECT_EQ(nodes[i].kind, i == 1 ? orActivityMemset : orActivityKernel);
      }
      EXPECT_EQ(nodes[1].bytes, 64U);
      EXPECT_STREQ(nodes[2].name, "kernel");
    }
    EXPECT_OK(orGraphDestroy(graph));
    EXPECT_OK(orStreamDestroy(stream));
  }
}

TEST_F(ActivityTest, WorkHasTheIdsOfItsCall) {
  Gate gate;
  QueueLaunches();
  Profiler::Get().Start();
  EXPECT_OK(orActivityPushExternalCorrelationId(orActivityIdExternal, 11));
  EXPECT_OK(orActivityPushExternalCorrelationId(orActivityIdUser, 22));
  EXPECT_OK(gate.Launch(nullptr));
  EXPECT_OK(orActivityPushExternalCorrelationId(orActivityIdExternal, 33));
  EXPECT_OK(orLaunchKernel(nullptr, Nothing, nullptr, 0, nullptr));
  uint64_t id = 0;
  EXPECT_OK(orActivityPopExternalCorrelationId(orActivityIdExternal, &id));
  EXPECT_EQ(id, 33U);
  std::thread([] {  // another thread's stack is empty
    EXPECT_OK(orLaunchKernel(nullptr, Nothing, nullptr, 0, nullptr));
  })
      .join();
  EXPECT_OK(orActivityPopExternalCorrelationId(orActivityIdExternal, nullptr));
  EXPECT_OK(orActivityPopExternalCorrelationId(orActivityIdUser, nullptr));
  gate.Open();
  const auto kernels = Of(Profiler::Get().Stop(), orActivityKernel);
  ASSERT_EQ(kernels.size(), 3U);
  EXPECT_EQ(kernels[0].external_id, 11U);
  EXPECT_EQ(kernels[0].user_id, 22U);
  EXPECT_EQ(kernels[1].external_id, 33U);
  EXPECT_EQ(kernels[1].user_id, 22U);
  EXPECT_EQ(kernels[2].external_id, 0U);
  EXPECT_EQ(kernels[2].user_id, 0U);
}

TEST_F(ActivityTest, InvalidCallsAreRefused) {
  EXPECT_FAILS(orActivityPopExternalCorrelationId(orActivityIdUser, nullptr), orErrorInvalidValue,
               "pushed no id");
  EXPECT_FAILS(orActivityPushExternalCorrelationId(static_cast<orActivityIdKind>(2), 1),
               orErrorInvalidValue, "kind 2 is not");
  EXPECT_FAILS(orActivityRegisterCallbacks([](void**, size_t*) {}, nullptr), orErrorInvalidValue,
               "pass both, or none");
  EXPECT_FAILS(orActivityGetCounts(nullptr, nullptr), orErrorInvalidValue, "must not be null");
  EXPECT_OK(orActivityEnableTracing());
  EXPECT_OK(orActivityEnableTracing());
  EXPECT_FAILS(orActivityRegisterCallbacks(nullptr, nullptr), orErrorNotPermitted,
               "orActivityDisableTracing first");
  EXPECT_OK(orActivityDisableTracing());
  EXPECT_OK(orActivityDisableTracing());
}

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

// A kernel runs on the launching thread when tracing ends. The flush waits for the end of that
// call.
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
  EXPECT_OK(gate.Launch(nullptr));  // not recorded
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

// A flush after the end of tracing waits, but no longer than until a profiler starts tracing again.
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
  EXPECT_OK(orActivityDisableTracing());  // a pause
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

// A thread may launch at its very end: in the destructor of an object that it created before its
// first record.
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

// The thread of the launching stream runs all nodes, so they belong to that stream.
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

// Tracing is turned on and off and buffers are flushed while threads launch. Each recorded launch
// appears exactly once, and so does its kernel.
TEST_F(ActivityTest, ThreadsLaunchWhileTracingIsToggled) {
  constexpr int kThreads = 8;
  constexpr int kSessions = 30;
  constexpr int kLaunches = 4000;  // at most per session: the profiler keeps all records
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
