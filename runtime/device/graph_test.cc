// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/graph.h"

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <sstream>

#include "runtime/device/device_fixture.h"

namespace openreg::device {
namespace {

// A kernel that adds to a number of the host, as aten's do to memory: its arguments stay.
struct Add {
  std::atomic<int>* sum;
  int value;
  static orError_t Run(void* arguments) {
    auto* add = static_cast<Add*>(arguments);
    add->sum->fetch_add(add->value);
    add->value = 1000;  // of this run's copy
    return orSuccess;
  }
};

class GraphTest : public DeviceTest {
 protected:
  orEvent_t CreateEvent(unsigned flags = orEventDisableTiming) {
    orEvent_t event = nullptr;
    EXPECT_OK(orEventCreateWithFlags(&event, flags));
    return event;
  }

  orError_t LaunchAdd(orStream_t stream, std::atomic<int>* sum, int value, uint32_t flags = 0) {
    const Add add{sum, value};
    const orLaunchAttributes attributes{"add", flags, 1000};
    return orLaunchKernel(stream, Add::Run, &add, sizeof(add), &attributes);
  }

  orGraph_t Capture(orStream_t stream, const std::function<void()>& work) {
    EXPECT_OK(orStreamBeginCapture(stream, orStreamCaptureModeGlobal));
    work();
    orGraph_t graph = nullptr;
    EXPECT_OK(orStreamEndCapture(stream, &graph));
    return graph;
  }

  orStreamCaptureStatus StatusOf(orStream_t stream, uint64_t* id = nullptr) {
    orStreamCaptureStatus status = orStreamCaptureStatusInvalidated;
    EXPECT_OK(orStreamGetCaptureInfo(stream, &status, id));
    return status;
  }

  // The capture of `stream` is invalid, its end says `reason`, and both work afterwards.
  void ExpectInvalid(orStream_t stream, const std::string& reason) {
    EXPECT_EQ(StatusOf(stream), orStreamCaptureStatusInvalidated);
    std::atomic<int> sum{0};
    EXPECT_FAILS(LaunchAdd(stream, &sum, 1), orErrorCaptureInvalidated, reason);
    orGraph_t graph = reinterpret_cast<orGraph_t>(&sum);
    EXPECT_FAILS(orStreamEndCapture(stream, &graph), orErrorCaptureInvalidated, reason);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(StatusOf(stream), orStreamCaptureStatusNone);
    EXPECT_OK(LaunchAdd(stream, &sum, 1));
    EXPECT_OK(orStreamSynchronize(stream));
    EXPECT_EQ(sum, 1);
    EXPECT_OK(
        orGraphLaunch(Capture(stream, [&] { EXPECT_OK(LaunchAdd(stream, &sum, 2)); }), stream));
    EXPECT_OK(orStreamSynchronize(stream));
    EXPECT_EQ(sum, 3);
  }
};

constexpr uint32_t kAllFlags[] = {0, orLaunchInline, orLaunchShort, orLaunchParallel,
                                  orLaunchMoldable};

TEST_F(GraphTest, NothingRunsDuringACaptureAndEachReplayRunsItAll) {
  for (const uint32_t flags : kAllFlags) {
    const orStream_t stream = CreateStream();
    std::atomic<int> sum{0};
    const orGraph_t graph = Capture(stream, [&] {
      EXPECT_EQ(StatusOf(stream), orStreamCaptureStatusActive);
      EXPECT_OK(LaunchAdd(stream, &sum, 1, flags));
      EXPECT_OK(LaunchAdd(stream, &sum, 10, flags));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    EXPECT_EQ(StatusOf(stream), orStreamCaptureStatusNone);
    EXPECT_OK(orStreamSynchronize(stream));
    EXPECT_EQ(sum, 0);
    size_t nodes = 0;
    EXPECT_OK(orGraphGetNodeCount(graph, &nodes));
    EXPECT_EQ(nodes, 2u);
    for (int replay = 1; replay <= 3; ++replay) {
      EXPECT_OK(orGraphLaunch(graph, stream));
      EXPECT_OK(orStreamSynchronize(stream));
      EXPECT_EQ(sum, 11 * replay);  // so each run had its arguments as they were launched
    }
    EXPECT_OK(orGraphDestroy(graph));
  }
}

TEST_F(GraphTest, CommandsOfAllKindsRunInTheOrderOfTheirCapture) {
  const orStream_t stream = CreateStream();
  std::vector<int> order, expected;
  struct Step {
    std::vector<int>* order;
    int number;
    static orError_t Run(void* arguments) {
      const auto* step = static_cast<const Step*>(arguments);
      step->order->push_back(step->number);
      return orSuccess;
    }
  };
  static constexpr int kSteps = 400;  // more than a queue holds, and than run together
  const orGraph_t graph = Capture(stream, [&] {
    for (int number = 0; number < kSteps; ++number) {
      const Step step{&order, number};
      const uint32_t kind = (number / 7) % 6;
      if (kind == 5) {
        EXPECT_OK(orLaunchHostFunc(
            stream,
            [](void* data) {
              auto* order = static_cast<std::vector<int>*>(data);
              order->push_back(static_cast<int>(order->size()) % kSteps);
            },
            &order));
      } else {
        const orLaunchAttributes attributes{"step", kAllFlags[kind], 400'000};
        EXPECT_OK(orLaunchKernel(stream, Step::Run, &step, sizeof(step), &attributes));
      }
    }
  });
  expected.resize(kSteps);
  std::iota(expected.begin(), expected.end(), 0);
  for (int replay = 0; replay < 3; ++replay) {
    order.clear();
    ASSERT_OK(orGraphLaunch(graph, stream));
    ASSERT_OK(orStreamSynchronize(stream));
    ASSERT_EQ(order, expected);
  }
}

TEST_F(GraphTest, CopiesAndFillsAreReplayedWithTheMemoryAsItIsThen) {
  const orStream_t stream = CreateStream();
  constexpr size_t kCount = 16 * 1024;
  int *host = nullptr, *back = nullptr, *view = nullptr;
  ASSERT_OK(orMallocHost(reinterpret_cast<void**>(&host), kCount * sizeof(int)));
  ASSERT_OK(orMallocHost(reinterpret_cast<void**>(&back), kCount * sizeof(int)));
  int* device = Allocate<int>(kCount, &view);
  int* other_one = Allocate<int>(kCount);
  const orGraph_t graph = Capture(stream, [&] {
    EXPECT_OK(orMemsetAsync(device, 0xff, kCount * sizeof(int), stream));
    EXPECT_OK(orMemcpyAsync(device, host, kCount * sizeof(int) / 2, orMemcpyHostToDevice, stream));
    EXPECT_OK(
        orMemcpyAsync(other_one, device, kCount * sizeof(int), orMemcpyDeviceToDevice, stream));
    EXPECT_OK(orMemcpyAsync(back, other_one, kCount * sizeof(int), orMemcpyDeviceToHost, stream));
  });
  for (const int value : {3, 4}) {
    std::fill_n(host, kCount, value);
    std::fill_n(back, kCount, 0);
    ASSERT_OK(orGraphLaunch(graph, stream));
    ASSERT_OK(orStreamSynchronize(stream));
    EXPECT_EQ(back[0], value);
    EXPECT_EQ(back[kCount / 2 - 1], value);
    EXPECT_EQ(back[kCount / 2], -1);
  }
  EXPECT_OK(orFreeHost(host));
  EXPECT_OK(orFreeHost(back));
}

TEST_F(GraphTest, LaunchBlockingNeitherRunsNorWaitsInACapture) {
  ASSERT_OK(orSetLaunchBlocking(1));
  const orStream_t stream = CreateStream();
  std::atomic<int> sum{0};
  const orGraph_t graph = Capture(stream, [&] {
    for (const uint32_t flags : kAllFlags) {
      EXPECT_OK(LaunchAdd(stream, &sum, 1, flags));
    }
    EXPECT_EQ(sum, 0);
  });
  EXPECT_OK(orGraphLaunch(graph, stream));
  EXPECT_EQ(sum, 5);  // the launch of the graph waits
}

TEST_F(GraphTest, TheDefaultStreamCanBeCaptured) {
  std::atomic<int> sum{0};
  const orGraph_t graph =
      Capture(nullptr, [&] { EXPECT_OK(LaunchAdd(nullptr, &sum, 1, orLaunchInline)); });
  EXPECT_EQ(sum, 0);
  EXPECT_OK(orGraphLaunch(graph, nullptr));
  EXPECT_OK(orDeviceSynchronize());
  EXPECT_EQ(sum, 1);
}

TEST_F(GraphTest, WorkThatWasQueuedBeforeTheCaptureAndOnOtherStreamsGoesOn) {
  QueueLaunches();
  const orStream_t stream = CreateStream(), beside = CreateStream();
  Gate gate;
  std::atomic<int> sum{0};
  ASSERT_OK(gate.Launch(stream));
  ASSERT_OK(LaunchAdd(stream, &sum, 1));
  const orGraph_t graph = Capture(stream, [&] {
    EXPECT_OK(LaunchAdd(stream, &sum, 10));
    for (const uint32_t flags : kAllFlags) {
      EXPECT_OK(LaunchAdd(beside, &sum, 100, flags));
    }
    EXPECT_OK(orStreamSynchronize(beside));
    EXPECT_EQ(sum, 500);
    gate.Open();
    EXPECT_TRUE(Eventually([&] { return sum == 501; }));
  });
  EXPECT_OK(orGraphLaunch(graph, stream));
  EXPECT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(sum, 511);
}

TEST_F(GraphTest, AClosureIsReplayedWithItsArgumentsAndReleasedWithTheGraph) {
  QueueLaunches();
  const orStream_t stream = CreateStream();
  auto shared = std::make_shared<std::atomic<int>>(0);
  const orGraph_t graph = Capture(stream, [&] {
    EXPECT_OK(orLaunchKernel(
        stream, [](const std::shared_ptr<std::atomic<int>>& sum, int value) { *sum += value; },
        shared, 5));
  });
  EXPECT_EQ(shared.use_count(), 2);
  Gate gate;
  ASSERT_OK(gate.Launch(stream));
  ASSERT_OK(orGraphLaunch(graph, stream));
  ASSERT_OK(orGraphLaunch(graph, stream));
  ASSERT_OK(orGraphDestroy(graph));  // the replays that are queued keep it
  EXPECT_EQ(shared.use_count(), 2);
  EXPECT_FAILS(orGraphLaunch(graph, stream), orErrorInvalidHandle, "not a graph");
  gate.Open();
  EXPECT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(*shared, 10);
  EXPECT_EQ(shared.use_count(), 1);
}

TEST_F(GraphTest, AClosureThatCanRunOnceIsRefused) {
  const orStream_t stream = CreateStream();
  ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeGlobal));
  auto only = std::make_unique<int>(1);
  EXPECT_FAILS(orLaunchKernel(
                   stream, [](std::unique_ptr<int>&& taken) { taken.reset(); }, std::move(only)),
               orErrorCaptureUnsupported, "it can run once");
  ExpectInvalid(stream, "it can run once");
}

TEST_F(GraphTest, ACaptureThatEndsInvalidReleasesItsLaunches) {
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

// ----------------------------------------------------------------------------------- fork and join

TEST_F(GraphTest, StreamsForkAndJoinByEvents) {
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

TEST_F(GraphTest, AForkWithoutWorkNeedsNoJoin) {
  const orStream_t stream = CreateStream(), side = CreateStream();
  const orEvent_t fork = CreateEvent();
  const orGraph_t graph = Capture(stream, [&] {
    EXPECT_OK(orEventRecord(fork, stream));
    EXPECT_OK(orStreamWaitEvent(side, fork, 0));
  });
  EXPECT_OK(orGraphLaunch(graph, stream));  // without nodes
  EXPECT_OK(orStreamSynchronize(stream));
  EXPECT_OK(orStreamSynchronize(side));
}

TEST_F(GraphTest, AForkThatIsNotJoinedIsAnErrorAtTheEnd) {
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

TEST_F(GraphTest, OtherThreadsTakePartInACapture) {
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

// ---------------------------------------------------------------------------------- what is
// refused

TEST_F(GraphTest, CallsThatACaptureDoesNotAllowMakeItInvalid) {
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
      {"orMemcpyAsync",  // small enough to travel with the command
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

TEST_F(GraphTest, WhatIsUnsafeDependsOnTheModeAndTheThread) {
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

TEST_F(GraphTest, ACapturedEventStandsForNothingOutside) {
  const orStream_t stream = CreateStream(), side = CreateStream();
  const orEvent_t event = CreateEvent();
  (void)Capture(stream, [&] { EXPECT_OK(orEventRecord(event, stream)); });
  EXPECT_FAILS(orStreamWaitEvent(side, event, 0), orErrorCaptureIsolation, "has ended");
  EXPECT_FAILS(orEventSynchronize(event), orErrorCaptureUnsupported, "no replay has recorded it");
  ASSERT_OK(orStreamBeginCapture(side, orStreamCaptureModeGlobal));
  EXPECT_FAILS(orStreamWaitEvent(side, event, 0), orErrorCaptureIsolation, "has ended");
  ExpectInvalid(side, "has ended");
  EXPECT_OK(orEventRecord(event, stream));  // it is as any other again
  EXPECT_OK(orStreamWaitEvent(side, event, 0));
  EXPECT_OK(orEventSynchronize(event));
}

TEST_F(GraphTest, TwoCapturesAreApartAndCanNotBeMerged) {
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

TEST_F(GraphTest, BadArgumentsAreRefused) {
  const orStream_t stream = CreateStream();
  orGraph_t graph = nullptr;
  EXPECT_FAILS(orStreamEndCapture(stream, &graph), orErrorInvalidValue, "is not captured");
  EXPECT_FAILS(orStreamBeginCapture(stream, static_cast<orStreamCaptureMode>(7)),
               orErrorInvalidValue, "mode 7");
  EXPECT_FAILS(orStreamEndCapture(stream, nullptr), orErrorInvalidValue, "graph is null");
  EXPECT_FAILS(orGraphLaunch(nullptr, stream), orErrorInvalidHandle, "not a graph");
  EXPECT_FAILS(orGraphLaunch(reinterpret_cast<orGraph_t>(stream), stream), orErrorInvalidHandle,
               "not a graph");
  EXPECT_FAILS(orGraphDestroy(nullptr), orErrorInvalidHandle, "not a graph");
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

TEST_F(GraphTest, AGraphCanNotBeLaunchedByAKernel) {
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

// ------------------------------------------------------------------------------------------
// replays

TEST_F(GraphTest, EachReplayRecordsTimedEvents) {
  const orStream_t stream = CreateStream(), side = CreateStream();
  const orEvent_t start = CreateEvent(orEventEnableTiming), end = CreateEvent(orEventEnableTiming);
  static constexpr int kMilliseconds = 3;
  const orGraph_t graph = Capture(stream, [&] {
    EXPECT_OK(orEventRecord(start, stream));
    EXPECT_OK(orLaunchKernel(
        stream, [] { std::this_thread::sleep_for(std::chrono::milliseconds(kMilliseconds)); }));
    EXPECT_OK(orEventRecord(end, stream));
  });
  for (int replay = 0; replay < 2; ++replay) {
    EXPECT_OK(orGraphLaunch(graph, stream));
    EXPECT_OK(orStreamWaitEvent(side, end, 0));
    EXPECT_OK(orEventSynchronize(end));
    float milliseconds = 0;
    EXPECT_OK(orEventElapsedTime(&milliseconds, start, end));
    EXPECT_GE(milliseconds, kMilliseconds);
  }
  EXPECT_OK(orEventDestroy(end));
  EXPECT_OK(orGraphLaunch(graph, stream));  // without the event
  EXPECT_OK(orStreamSynchronize(stream));
}

TEST_F(GraphTest, TheErrorOfAKernelStaysWithTheReplayingStream) {
  const orStream_t stream = CreateStream(), replaying = CreateStream();
  std::atomic<int> sum{0};
  for (const uint32_t flags : {uint32_t{0}, uint32_t{orLaunchInline}}) {
    const orGraph_t graph = Capture(stream, [&] {
      const orLaunchAttributes attributes{"failing", flags, 0};
      EXPECT_OK(orLaunchKernel(
          stream,
          [](void*) { return orKernelFail(orErrorLaunchFailure, "on purpose", nullptr, nullptr); },
          nullptr, 0, &attributes));
      EXPECT_OK(LaunchAdd(stream, &sum, 1, flags));
    });
    ASSERT_OK(orSetLaunchBlocking(0));
    EXPECT_OK(orGraphLaunch(graph, replaying));
    EXPECT_FAILS(orStreamSynchronize(replaying), orErrorLaunchFailure, "on purpose");
    EXPECT_OK(orStreamSynchronize(replaying));
    EXPECT_OK(orStreamSynchronize(stream));
    ASSERT_OK(orSetLaunchBlocking(1));
    EXPECT_FAILS(orGraphLaunch(graph, replaying), orErrorLaunchFailure, "failing");
    EXPECT_OK(orStreamSynchronize(replaying));
  }
  EXPECT_EQ(sum, 4);  // later kernels run
}

TEST_F(GraphTest, FaultsAreInjectedIntoReplays) {
  const orStream_t stream = CreateStream();
  std::atomic<int> sum{0};
  ASSERT_OK(orSetLaunchBlocking(0));
  const orGraph_t graph = Capture(stream, [&] {
    for (int i = 0; i < 4; ++i) {
      EXPECT_OK(LaunchAdd(stream, &sum, 1, orLaunchInline));
    }
  });
  ASSERT_OK(orInjectKernelFailure(3));
  EXPECT_OK(orGraphLaunch(graph, stream));
  EXPECT_FAILS(orStreamSynchronize(stream), orErrorLaunchFailure, "injected");
  EXPECT_EQ(sum, 3);
  ASSERT_OK(orInjectKernelFailure(0));
}

TEST_F(GraphTest, ReplaysOfOneGraphNeverOverlap) {
  QueueLaunches();
  const orStream_t first = CreateStream(), second = CreateStream();
  Gate gate;
  std::atomic<int> inside{0}, most{0}, ran{0};
  const orGraph_t graph = Capture(first, [&] {
    for (int i = 0; i < 3; ++i) {
      EXPECT_OK(orLaunchKernel(first, [&] {
        const int now = ++inside;
        most = std::max(most.load(), now);
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        --inside;
        ++ran;
      }));
    }
  });
  ASSERT_OK(gate.Launch(first));
  ASSERT_OK(orGraphLaunch(graph, first));
  ASSERT_OK(orGraphLaunch(graph, second));
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(ran, 0);
  gate.Open();
  std::vector<std::thread> threads;
  for (const orStream_t stream : {first, second}) {
    threads.emplace_back([&, stream] {
      for (int i = 0; i < 20; ++i) {
        EXPECT_OK(orGraphLaunch(graph, stream));
      }
      EXPECT_OK(orStreamSynchronize(stream));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(most, 1);
  EXPECT_EQ(ran, 3 * 42);
}

TEST_F(GraphTest, ADeviceResetDestroysItsGraphs) {
  auto shared = std::make_shared<int>(0);
  const orStream_t stream = CreateStream();
  const orGraph_t graph = Capture(stream, [&] {
    EXPECT_OK(orLaunchKernel(stream, [](const std::shared_ptr<int>&) {}, shared));
  });
  EXPECT_OK(orDeviceReset());
  EXPECT_EQ(shared.use_count(), 1);
  EXPECT_FAILS(orGraphDestroy(graph), orErrorInvalidHandle, "destroyed");
}

TEST_F(GraphTest, KernelsKnowTheThreadTheyRunOn) {
  QueueLaunches();
  std::atomic<int> on_host{-1};
  for (const uint32_t flags : {uint32_t{0}, uint32_t{orLaunchInline}}) {
    const orStream_t stream = CreateStream();  // without a worker that might not be idle yet
    const orGraph_t graph = Capture(stream, [&] {
      std::atomic<int>* found = &on_host;
      const orLaunchAttributes attributes{"where", flags, 0};
      EXPECT_OK(orLaunchKernel(
          stream,
          [](void* arguments) {
            **static_cast<std::atomic<int>**>(arguments) = orKernelOnHost();
            return orSuccess;
          },
          &found, sizeof(found), &attributes));
    });
    EXPECT_OK(orGraphLaunch(graph, stream));
    EXPECT_OK(orStreamSynchronize(stream));
    EXPECT_EQ(on_host, flags == orLaunchInline ? 1 : 0);
  }
  EXPECT_EQ(orKernelOnHost(), 0);
}

TEST_F(GraphTest, KernelsOfAnInlineReplaySeeTheDeviceOfTheirStream) {
  QueueLaunches();
  const orStream_t stream = CreateStream();
  ASSERT_OK(orSetDevice(other()));
  const orStream_t far = CreateStream();
  const orEvent_t far_done = CreateEvent();
  ASSERT_OK(orSetDevice(0));
  const orEvent_t fork = CreateEvent();
  std::vector<int> devices;
  auto look = [&](orStream_t on) {
    std::vector<int>* found = &devices;
    const orLaunchAttributes attributes{"look", orLaunchInline, 0};
    EXPECT_OK(orLaunchKernel(
        on,
        [](void* arguments) {
          int device = -1;
          EXPECT_OK(orGetDevice(&device));
          (*static_cast<std::vector<int>**>(arguments))->push_back(device);
          return orSuccess;
        },
        &found, sizeof(found), &attributes));
  };
  const orGraph_t graph = Capture(stream, [&] {
    look(stream);
    EXPECT_OK(orEventRecord(fork, stream));
    EXPECT_OK(orStreamWaitEvent(far, fork, 0));
    look(far);
    EXPECT_OK(orEventRecord(far_done, far));
    EXPECT_OK(orStreamWaitEvent(stream, far_done, 0));
    look(stream);
  });
  ASSERT_OK(orSetDevice(other()));
  EXPECT_OK(orGraphLaunch(graph, stream));
  EXPECT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(devices, (std::vector<int>{0, other(), 0}));
  int device = -1;
  ASSERT_OK(orGetDevice(&device));
  EXPECT_EQ(device, other());
}

// Of a captured launch, whose end waits.
struct WaitsAtItsEnd {
  orStream_t stream;
  std::atomic<orError_t>* waited;
  std::atomic<orError_t>* freed;
  void* memory;
  ~WaitsAtItsEnd() {
    *freed = orFree(memory);
    *waited = orStreamSynchronize(stream);
  }
};

TEST_F(GraphTest, WhatTheLastReplayReleasesMayFreeButNotWait) {
  QueueLaunches();
  const orStream_t stream = CreateStream();
  std::atomic<orError_t> waited{orErrorUnknown}, freed{orErrorUnknown};
  for (const bool last_is_replay : {true, false}) {
    auto owned = std::make_shared<WaitsAtItsEnd>(stream, &waited, &freed, Allocate<char>(100));
    const orGraph_t graph = Capture(stream, [&] {
      EXPECT_OK(orLaunchKernel(stream, [](const std::shared_ptr<WaitsAtItsEnd>&) {}, owned));
    });
    owned.reset();
    if (last_is_replay) {
      Gate gate;
      ASSERT_OK(gate.Launch(stream));
      ASSERT_OK(orGraphLaunch(graph, stream));
      ASSERT_OK(orGraphDestroy(graph));
      gate.Open();
      ASSERT_OK(orStreamSynchronize(stream));
      EXPECT_EQ(waited, orErrorNotPermitted);  // it would wait for itself
    } else {
      ASSERT_OK(orGraphDestroy(graph));
      EXPECT_EQ(waited, orSuccess);
      EXPECT_EQ(freed, orSuccess);
    }
  }
}

TEST_F(GraphTest, WhoWaitsForAnEventWhileOthersCaptureItNeverHangs) {
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
      for (int pause = 0; pause < 100; ++pause) {  // meanwhile it asks, and is behind no lock
        SpinPause();
      }
      orGraph_t graph = nullptr;
      ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeRelaxed));
      (void)orEventRecord(event, stream);  // refused if the waiter has made the capture invalid
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

TEST_F(GraphTest, AThreadInRelaxedModeMayWaitForADeviceBesideACapture) {
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
