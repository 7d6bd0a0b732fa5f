// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/capture.h"

#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>

#include "runtime/device/graph_fixture.h"

namespace openreg::device {
namespace {

using CaptureTest = GraphTest;

// ----------------------------------------------------------------------------------- fork and join

TEST_F(CaptureTest, StreamsForkAndJoinThroughEvents) {
  const orStream_t stream = CreateStream(), side = CreateStream();
  ASSERT_OK(orSetDevice(other()));
  const orStream_t far = CreateStream();
  const orEvent_t far_done = CreateEvent();
  ASSERT_OK(orSetDevice(0));
  const orEvent_t fork = CreateEvent(), side_done = CreateEvent();
  std::atomic<int> sum{0};
  uint64_t id = 0, side_id = 0;
  const orGraph_t graph = Capture(stream, [&] {
    EXPECT_OK(LaunchAdd(stream, &sum, 1));
    EXPECT_OK(orEventRecord(fork, stream));
    EXPECT_OK(orStreamWaitEvent(side, fork, 0));
    EXPECT_OK(orStreamWaitEvent(far, fork, 0));
    EXPECT_EQ(StatusOf(stream, &id), orStreamCaptureStatusActive);
    EXPECT_EQ(StatusOf(side, &side_id), orStreamCaptureStatusActive);
    EXPECT_OK(LaunchAdd(side, &sum, 10));
    EXPECT_OK(LaunchAdd(far, &sum, 100));
    EXPECT_OK(LaunchAdd(stream, &sum, 1000));
    EXPECT_OK(orEventRecord(side_done, side));
    EXPECT_OK(orEventRecord(far_done, far));
    EXPECT_OK(orStreamWaitEvent(stream, side_done, 0));
    EXPECT_OK(orStreamWaitEvent(stream, far_done, 0));
    EXPECT_OK(LaunchAdd(stream, &sum, 10000));
  });
  EXPECT_NE(id, 0u);
  EXPECT_EQ(id, side_id);
  EXPECT_EQ(StatusOf(side), orStreamCaptureStatusNone);
  EXPECT_EQ(StatusOf(far), orStreamCaptureStatusNone);
  EXPECT_EQ(sum, 0);
  EXPECT_OK(orGraphLaunch(graph, stream));
  EXPECT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(sum, 11111);

  const std::string path = testing::TempDir() + "/openreg_graph.dot";
  ASSERT_OK(orGraphDebugDotPrint(graph, path.c_str()));
  std::ostringstream drawn;
  drawn << std::ifstream(path).rdbuf();
  for (const char* part : {"digraph", "0: add", "n0 -> n1;", "n0 -> n2;", "n0 -> n3;", "n1 -> n4;",
                           "n2 -> n4;", "n3 -> n4;"}) {
    EXPECT_NE(drawn.str().find(part), std::string::npos) << part << " in " << drawn.str();
  }
  EXPECT_EQ(drawn.str().find("n1 -> n2"), std::string::npos);
  std::remove(path.c_str());
  EXPECT_FAILS(orGraphDebugDotPrint(graph, "/nowhere/graph.dot"), orErrorSystem, "/nowhere");
}

TEST_F(CaptureTest, AForkWithoutWorkNeedsNoJoin) {
  const orStream_t stream = CreateStream(), side = CreateStream();
  const orEvent_t fork = CreateEvent();
  const orGraph_t graph = Capture(stream, [&] {
    EXPECT_OK(orEventRecord(fork, stream));
    EXPECT_OK(orStreamWaitEvent(side, fork, 0));
  });
  EXPECT_OK(orGraphLaunch(graph, stream));  // the graph has no nodes
  EXPECT_OK(orStreamSynchronize(stream));
  EXPECT_OK(orStreamSynchronize(side));
}

TEST_F(CaptureTest, AForkWithoutJoinFailsAtTheEnd) {
  const orStream_t stream = CreateStream(), side = CreateStream();
  const orEvent_t fork = CreateEvent();
  std::atomic<int> sum{0};
  ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeGlobal));
  ASSERT_OK(orEventRecord(fork, stream));
  ASSERT_OK(orStreamWaitEvent(side, fork, 0));
  ASSERT_OK(LaunchAdd(side, &sum, 1));
  ASSERT_OK(LaunchAdd(stream, &sum, 1));
  orGraph_t graph = nullptr;
  EXPECT_FAILS(orStreamEndCapture(side, &graph), orErrorInvalidValue, "has joined the capture");
  EXPECT_FAILS(orStreamEndCapture(stream, &graph), orErrorCaptureUnjoined, "was not joined");
  EXPECT_EQ(StatusOf(stream), orStreamCaptureStatusNone);
  EXPECT_EQ(StatusOf(side), orStreamCaptureStatusNone);
  EXPECT_OK(LaunchAdd(side, &sum, 1));
  EXPECT_OK(orStreamSynchronize(side));
  EXPECT_EQ(sum, 1);
}

TEST_F(CaptureTest, OtherThreadsTakePartInACapture) {
  const orStream_t stream = CreateStream();
  std::atomic<int> sum{0};
  const orGraph_t graph = Capture(stream, [&] {
    std::thread([&] {
      EXPECT_OK(LaunchAdd(stream, &sum, 1, orLaunchInline));
      orGraph_t none = nullptr;
      EXPECT_FAILS(orStreamEndCapture(stream, &none), orErrorCaptureWrongThread, "another thread");
    }).join();
    EXPECT_EQ(sum, 0);
  });
  EXPECT_OK(orGraphLaunch(graph, stream));
  EXPECT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(sum, 1);

  ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeRelaxed));
  std::thread([&] {
    orGraph_t ended = nullptr;
    EXPECT_OK(orStreamEndCapture(stream, &ended));
  }).join();
}

// ----------------------------------------------------------------------------------- refused calls

TEST_F(CaptureTest, UnsupportedCallsInvalidateTheCapture) {
  char pageable[1024] = {};
  void* device = Allocate<char>(4096);
  const orEvent_t outside = CreateEvent(), inside = CreateEvent(orEventEnableTiming);
  const orStream_t beside = CreateStream();
  std::atomic<int> sum{0};
  ASSERT_OK(LaunchAdd(beside, &sum, 1));
  ASSERT_OK(orEventRecord(outside, beside));
  const orGraph_t small = Capture(beside, [&] { EXPECT_OK(LaunchAdd(beside, &sum, 0)); });
  struct Case {
    const char* name;
    std::function<orError_t(orStream_t)> call;
    orError_t error = orErrorCaptureUnsupported;
  };
  float milliseconds = 0;
  const Case cases[] = {
      {"orStreamSynchronize", [](orStream_t stream) { return orStreamSynchronize(stream); }},
      {"orStreamQuery", [](orStream_t stream) { return orStreamQuery(stream); }},
      {"orDeviceSynchronize", [](orStream_t) { return orDeviceSynchronize(); }},
      {"orDeviceReset", [](orStream_t) { return orDeviceReset(); }},
      {"orStreamDestroy", [](orStream_t stream) { return orStreamDestroy(stream); }},
      {"orMalloc",
       [](orStream_t) {
         void* pointer = nullptr;
         return orMalloc(&pointer, 1);
       }},
      {"orMemcpy",
       [&](orStream_t) { return orMemcpy(device, pageable, 16, orMemcpyHostToDevice); }},
      {"orMemset", [&](orStream_t) { return orMemset(device, 0, 16); }},
      {"orMemcpyAsync",  // small enough to be copied into the command
       [&](orStream_t stream) {
         return orMemcpyAsync(device, pageable, 16, orMemcpyHostToDevice, stream);
       }},
      {"orMemcpyAsync",
       [&](orStream_t stream) {
         return orMemcpyAsync(pageable, device, 1024, orMemcpyDeviceToHost, stream);
       }},
      {"orStreamWaitEvent",
       [&](orStream_t stream) { return orStreamWaitEvent(stream, outside, 0); },
       orErrorCaptureIsolation},
      {"orEventQuery",
       [&](orStream_t stream) {
         EXPECT_OK(orEventRecord(inside, stream));
         return orEventQuery(inside);
       }},
      {"orEventSynchronize",
       [&](orStream_t stream) {
         EXPECT_OK(orEventRecord(inside, stream));
         return orEventSynchronize(inside);
       }},
      {"orEventElapsedTime",
       [&](orStream_t stream) {
         EXPECT_OK(orEventRecord(inside, stream));
         return orEventElapsedTime(&milliseconds, inside, inside);
       }},
      {"orGraphLaunch", [&](orStream_t stream) { return orGraphLaunch(small, stream); }},
  };
  for (const Case& refused : cases) {
    SCOPED_TRACE(refused.name);
    const orStream_t stream = CreateStream();
    ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeGlobal));
    EXPECT_FAILS(refused.call(stream), refused.error, refused.name);
    ExpectInvalid(stream, refused.name);
  }
}

TEST_F(CaptureTest, UnsafeCallsDependOnTheModeAndTheThread) {
  auto allocate = [] {
    void* pointer = nullptr;
    return orMalloc(&pointer, 1);
  };
  auto on_another_thread = [&](orStreamCaptureMode own) {
    orError_t error = orSuccess;
    std::thread([&] {
      orStreamCaptureMode mode = own;
      EXPECT_OK(orThreadExchangeStreamCaptureMode(&mode));
      EXPECT_EQ(mode, orStreamCaptureModeGlobal);
      error = allocate();
    }).join();
    return error;
  };
  const orStream_t stream = CreateStream();
  orGraph_t graph = nullptr;

  ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeRelaxed));
  EXPECT_OK(allocate());
  EXPECT_OK(on_another_thread(orStreamCaptureModeGlobal));
  EXPECT_OK(orStreamEndCapture(stream, &graph));

  ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeThreadLocal));
  EXPECT_OK(on_another_thread(orStreamCaptureModeGlobal));
  EXPECT_FAILS(allocate(), orErrorCaptureUnsupported, "in this thread");
  ExpectInvalid(stream, "orMalloc");

  ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeGlobal));
  EXPECT_OK(on_another_thread(orStreamCaptureModeRelaxed));
  EXPECT_OK(on_another_thread(orStreamCaptureModeThreadLocal));
  orStreamCaptureMode mode = orStreamCaptureModeRelaxed;
  EXPECT_OK(orThreadExchangeStreamCaptureMode(&mode));
  EXPECT_OK(allocate());
  EXPECT_OK(orThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, orStreamCaptureModeRelaxed);
  EXPECT_EQ(StatusOf(stream), orStreamCaptureStatusActive);
  EXPECT_EQ(on_another_thread(orStreamCaptureModeGlobal), orErrorCaptureUnsupported);
  ExpectInvalid(stream, "in any thread");
}

TEST_F(CaptureTest, ACapturedEventIsInvalidOutsideOfItsCapture) {
  const orStream_t stream = CreateStream(), side = CreateStream();
  const orEvent_t event = CreateEvent();
  (void)Capture(stream, [&] { EXPECT_OK(orEventRecord(event, stream)); });
  EXPECT_FAILS(orStreamWaitEvent(side, event, 0), orErrorCaptureIsolation, "has ended");
  EXPECT_FAILS(orEventSynchronize(event), orErrorCaptureUnsupported, "no replay has recorded it");
  ASSERT_OK(orStreamBeginCapture(side, orStreamCaptureModeGlobal));
  EXPECT_FAILS(orStreamWaitEvent(side, event, 0), orErrorCaptureIsolation, "has ended");
  ExpectInvalid(side, "has ended");
  EXPECT_OK(orEventRecord(event, stream));  // makes it an ordinary event again
  EXPECT_OK(orStreamWaitEvent(side, event, 0));
  EXPECT_OK(orEventSynchronize(event));
}

TEST_F(CaptureTest, TwoCapturesCannotBeMerged) {
  const orStream_t first = CreateStream(), second = CreateStream();
  const orEvent_t event = CreateEvent();
  uint64_t first_id = 0, second_id = 0;
  ASSERT_OK(orStreamBeginCapture(first, orStreamCaptureModeGlobal));
  ASSERT_OK(orStreamBeginCapture(second, orStreamCaptureModeGlobal));
  EXPECT_FAILS(orStreamBeginCapture(second, orStreamCaptureModeGlobal), orErrorInvalidValue,
               "already");
  EXPECT_EQ(StatusOf(first, &first_id), orStreamCaptureStatusActive);
  EXPECT_EQ(StatusOf(second, &second_id), orStreamCaptureStatusActive);
  EXPECT_NE(first_id, second_id);
  ASSERT_OK(orEventRecord(event, first));
  EXPECT_FAILS(orStreamWaitEvent(second, event, 0), orErrorCaptureIsolation, "merged");
  orGraph_t graph = nullptr;
  EXPECT_FAILS(orStreamEndCapture(first, &graph), orErrorCaptureInvalidated, "merged");
  ExpectInvalid(second, "merged");
}

TEST_F(CaptureTest, BadArgumentsAreRefused) {
  const orStream_t stream = CreateStream();
  orGraph_t graph = nullptr;
  EXPECT_FAILS(orStreamEndCapture(stream, &graph), orErrorInvalidValue, "is not being captured");
  EXPECT_FAILS(orStreamBeginCapture(stream, static_cast<orStreamCaptureMode>(7)),
               orErrorInvalidValue, "mode 7");
  EXPECT_FAILS(orStreamEndCapture(stream, nullptr), orErrorInvalidValue, "graph is null");
  EXPECT_FAILS(orGraphLaunch(nullptr, stream), orErrorInvalidHandle, "not a valid graph");
  EXPECT_FAILS(orGraphLaunch(reinterpret_cast<orGraph_t>(stream), stream), orErrorInvalidHandle,
               "not a valid graph");
  EXPECT_FAILS(orGraphDestroy(nullptr), orErrorInvalidHandle, "not a valid graph");
  EXPECT_FAILS(orStreamGetCaptureInfo(stream, nullptr, nullptr), orErrorInvalidValue, "status");
  graph = Capture(stream, [] {});
  EXPECT_FAILS(orGraphGetNodeCount(graph, nullptr), orErrorInvalidValue, "count is null");
  if (count_ > 1) {
    ASSERT_OK(orSetDevice(1));
    EXPECT_FAILS(orGraphLaunch(graph, CreateStream()), orErrorInvalidDevice, "device 0");
    ASSERT_OK(orSetDevice(0));
  }
  EXPECT_OK(orGraphDestroy(graph));
  EXPECT_FAILS(orGraphDestroy(graph), orErrorInvalidHandle, "destroyed");
}

TEST_F(CaptureTest, AGraphCannotBeLaunchedByAKernel) {
  const orStream_t stream = CreateStream();
  const orGraph_t graph = Capture(stream, [] {});
  std::atomic<orError_t> launched{orSuccess}, begun{orSuccess};
  ASSERT_OK(orLaunchKernel(stream, [&] {
    launched = orGraphLaunch(graph, stream);
    begun = orStreamBeginCapture(stream, orStreamCaptureModeGlobal);
  }));
  EXPECT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(launched, orErrorNotPermitted);
  EXPECT_EQ(begun, orErrorNotPermitted);
}

TEST_F(CaptureTest, AClosureThatCanRunOnlyOnceIsRefused) {
  const orStream_t stream = CreateStream();
  ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeGlobal));
  auto only = std::make_unique<int>(1);
  EXPECT_FAILS(orLaunchKernel(
                   stream, [](std::unique_ptr<int>&& taken) { taken.reset(); }, std::move(only)),
               orErrorCaptureUnsupported, "it can run only once");
  ExpectInvalid(stream, "it can run only once");
}

TEST_F(CaptureTest, AnInvalidCaptureReleasesItsLaunches) {
  const orStream_t stream = CreateStream();
  auto shared = std::make_shared<int>(0);
  ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeGlobal));
  ASSERT_OK(orLaunchKernel(stream, [](const std::shared_ptr<int>&) {}, shared));
  EXPECT_FAILS(orStreamQuery(stream), orErrorCaptureUnsupported, "nothing runs");
  EXPECT_FAILS(orLaunchKernel(
                   stream, [](const std::shared_ptr<int>&) {}, shared),
               orErrorCaptureInvalidated, "orStreamQuery");
  EXPECT_EQ(shared.use_count(), 2);
  ExpectInvalid(stream, "orStreamQuery");
  EXPECT_EQ(shared.use_count(), 1);
}

TEST_F(CaptureTest, WaitingForAnEventThatOtherThreadsCaptureNeverHangs) {
  for (const bool on_host : {true, false}) {
    const orStream_t stream = CreateStream(), waiting = CreateStream();
    const orEvent_t event = CreateEvent();
    ASSERT_OK(orEventRecord(event, stream));
    std::atomic<bool> stop{false};
    std::thread waiter([&] {
      while (!stop) {
        const orError_t error =
            on_host ? orEventSynchronize(event) : orStreamWaitEvent(waiting, event, 0);
        EXPECT_TRUE(error == orSuccess || error == orErrorCaptureUnsupported ||
                    error == orErrorCaptureIsolation || error == orErrorCaptureInvalidated)
            << orGetLastErrorDetail();
      }
    });
    for (int round = 0; round < 20000; ++round) {
      for (int pause = 0; pause < 100;
           ++pause) {  // no lock blocks the waiter, which polls during this pause
        SpinPause();
      }
      orGraph_t graph = nullptr;
      ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeRelaxed));
      (void)orEventRecord(event, stream);  // refused if the waiter has invalidated the capture
      if (orStreamEndCapture(stream, &graph) == orSuccess) {
        ASSERT_OK(orGraphDestroy(graph));
      }
      ASSERT_OK(orEventRecord(event, stream));
    }
    stop = true;
    waiter.join();
    ASSERT_OK(orStreamSynchronize(waiting));
  }
}

TEST_F(CaptureTest, AThreadInRelaxedModeMayWaitForADeviceDuringACapture) {
  QueueLaunches();
  const orStream_t stream = CreateStream(), beside = CreateStream();
  std::atomic<int> sum{0};
  Gate gate;
  ASSERT_OK(gate.Launch(beside));
  ASSERT_OK(LaunchAdd(beside, &sum, 1));
  const orGraph_t graph = Capture(stream, [&] {
    EXPECT_OK(LaunchAdd(stream, &sum, 10));
    orStreamCaptureMode mode = orStreamCaptureModeRelaxed;
    EXPECT_OK(orThreadExchangeStreamCaptureMode(&mode));
    gate.Open();
    EXPECT_OK(orDeviceSynchronize());
    EXPECT_EQ(sum, 1);
    EXPECT_OK(orThreadExchangeStreamCaptureMode(&mode));
  });
  EXPECT_OK(orGraphLaunch(graph, stream));
  EXPECT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(sum, 11);
}

}  // namespace
}  // namespace openreg::device
