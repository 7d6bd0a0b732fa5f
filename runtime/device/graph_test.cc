// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/graph.h"

#include <cstdint>
#include <memory>
#include <numeric>

#include "runtime/device/graph_fixture.h"

namespace openreg::device {
namespace {

TEST_F(GraphTest, NothingRunsDuringACaptureAndEachReplayRunsEverything) {
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
      EXPECT_EQ(sum, 11 * replay);  // each replay used the arguments of the launch
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
  static constexpr int kSteps = 400;  // more than a queue can contain, and more than one batch
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

TEST_F(GraphTest, ReplayedCopiesReadTheCurrentMemory) {
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

TEST_F(GraphTest, LaunchBlockingHasNoEffectInACapture) {
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
  EXPECT_EQ(sum, 5);  // the launch of the graph waits for its kernels
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

TEST_F(GraphTest, EarlierWorkAndOtherStreamsRunDuringACapture) {
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
  ASSERT_OK(orGraphDestroy(graph));  // the queued replays still own it
  EXPECT_EQ(shared.use_count(), 2);
  EXPECT_FAILS(orGraphLaunch(graph, stream), orErrorInvalidHandle, "not a valid graph");
  gate.Open();
  EXPECT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(*shared, 10);
  EXPECT_EQ(shared.use_count(), 1);
}

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
  EXPECT_OK(orGraphLaunch(graph, stream));  // the replay must ignore the destroyed event
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
  EXPECT_EQ(sum, 4);  // kernels after the failed one run
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
    const orStream_t stream = CreateStream();  // a new stream has no worker that may still be busy
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

// An argument of a captured launch. Its destructor waits for a stream and frees memory.
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

TEST_F(GraphTest, TheReleaseOfAGraphMayFreeButNotWait) {
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
      EXPECT_EQ(waited, orErrorNotPermitted);  // otherwise, the stream would wait for itself
    } else {
      ASSERT_OK(orGraphDestroy(graph));
      EXPECT_EQ(waited, orSuccess);
      EXPECT_EQ(freed, orSuccess);
    }
  }
}

}  // namespace
}  // namespace openreg::device
