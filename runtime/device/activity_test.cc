// SPDX-License-Identifier: BSD-3-Clause
//
// Tests the content of activity records for calls and work.
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/device/activity_fixture.h"

namespace openreg::device {
namespace {

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

// The device copies names during the call. Otherwise, a name could change later: its library may be
// unloaded, and another one may be loaded at the same address.
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
  // A replay runs either within its call or on the stream's threads. Test both cases.
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
  std::thread([] {  // the stack of another thread is empty
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
               "no pushed id");
  EXPECT_FAILS(orActivityPushExternalCorrelationId(static_cast<orActivityIdKind>(2), 1),
               orErrorInvalidValue, "kind 2 is not");
  EXPECT_FAILS(orActivityRegisterCallbacks([](void**, size_t*) {}, nullptr), orErrorInvalidValue,
               "pass two functions or two null pointers");
  EXPECT_FAILS(orActivityGetCounts(nullptr, nullptr), orErrorInvalidValue, "must not be null");
  EXPECT_OK(orActivityEnableTracing());
  EXPECT_OK(orActivityEnableTracing());
  EXPECT_FAILS(orActivityRegisterCallbacks(nullptr, nullptr), orErrorNotPermitted,
               "orActivityDisableTracing first");
  EXPECT_OK(orActivityDisableTracing());
  EXPECT_OK(orActivityDisableTracing());
}

}  // namespace
}  // namespace openreg::device
