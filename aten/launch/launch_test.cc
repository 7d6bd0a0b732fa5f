// SPDX-License-Identifier: BSD-3-Clause
#include "aten/launch/launch.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <latch>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "aten/launch/owned.h"
#include "aten/launch/sleep.h"
#include "runtime/c10/stream.h"
#include "runtime/diagnostics/warning.h"

namespace openreg {
namespace {

at::Tensor to_device(const at::Tensor& tensor) { return tensor.to(c10::Device(kOpenRegType, 0)); }

void synchronize() { synchronize_device(0); }

// Keeps the stream busy, so that the next launches cannot run on this thread.
void occupy_stream() { launch_sleep(200'000'000); }

template <class Function>
void launch_function(int64_t cost, Function&& function) {
  launch_kernel({"test::function", cost}, 0, [&](AliasPool&) { return function; });
}

// Launches repeatedly until a kernel runs on this thread, and returns whether one did. `launch`
// returns the thread of the kernel. At first the kernel may run on the worker, because on a busy
// machine an idle worker may not get CPU time to release the stream.
template <class Launch>
bool runs_here_eventually(Launch&& launch) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (launch() != std::this_thread::get_id()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
  }
  return true;
}

TEST(LaunchTest, CheapKernelsRunOnTheCallerWhenTheStreamIsIdle) {
  synchronize();
  EXPECT_TRUE(runs_here_eventually([] {
    std::thread::id where;
    launch_function(1, [&where] { where = std::this_thread::get_id(); });
    synchronize();
    return where;
  }));
}

TEST(LaunchTest, CheapKernelsWaitWhenTheStreamIsBusy) {
  std::latch gate(1);
  std::atomic<bool> ran{false};
  launch_function(kInlineCost, [&gate] { gate.wait(); });
  launch_function(1, [&ran] { ran = true; });
  EXPECT_FALSE(ran);
  gate.count_down();
  synchronize();
  EXPECT_TRUE(ran);
}

TEST(LaunchTest, ExpensiveKernelsRunOnAnotherThread) {
  std::thread::id where;
  launch_function(kInlineCost, [&where] { where = std::this_thread::get_id(); });
  synchronize();
  EXPECT_NE(where, std::this_thread::get_id());
  EXPECT_NE(where, std::thread::id());
}

TEST(LaunchTest, OnlyTheExecutorHasATeam) {
  const int before = at::get_num_threads();
  int inline_threads = 0;
  int worker_threads = 0;
  int moldable_threads = 0;
  int executor_threads = 0;
  synchronize();
  launch_function(1, [&] { inline_threads = at::get_num_threads(); });
  launch_function(kInlineCost, [&] { worker_threads = at::get_num_threads(); });
  launch_kernel({.name = "test::moldable", .cost = kMoldableCost, .pointwise = true}, 0,
                [&](AliasPool&) { return [&] { moldable_threads = at::get_num_threads(); }; });
  launch_function(kParallelCost, [&] { executor_threads = at::get_num_threads(); });
  synchronize();
  EXPECT_EQ(inline_threads, 1);
  EXPECT_EQ(worker_threads, 1);
  EXPECT_EQ(moldable_threads, 1);  // a single moldable kernel does not get a team
  EXPECT_EQ(executor_threads, before);
  EXPECT_EQ(at::get_num_threads(), before);
}

// Returns the ids of this process's threads.
std::set<std::string> threads() {
  std::set<std::string> names;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    names.insert(thread.path().filename());
  }
  return names;
}

// Returns the number of threads that are not in `before`. (The difference of two totals would be
// wrong: the threads of a dissolved team still count until they are scheduled and end.)
std::ptrdiff_t count_started(const std::set<std::string>& before) {
  return std::ranges::count_if(threads(), [&](const auto& name) { return !before.contains(name); });
}

// Does enough work for a team. Uses torch, because this file is compiled without OpenMP.
void compute() { (void)at::ones({1 << 20}); }

// Returns the number of threads that start when torch computes in a kernel on a new stream.
std::ptrdiff_t threads_started_by(int64_t cost) {
  const c10::Stream before = exchange_stream(pooled_stream(0, 0));
  std::ptrdiff_t started = 0;
  launch_function(cost, [&] {
    const std::set<std::string> running = threads();
    compute();
    started = count_started(running);
  });
  synchronize();
  exchange_stream(before);
  return started;
}

TEST(LaunchTest, AWorkersFirstParallelLoopHasOneThread) {
  const int before = at::get_num_threads();
  at::set_num_threads(before + 3);
  EXPECT_EQ(threads_started_by(kInlineCost), 0);
  at::set_num_threads(before);
}

// VML parallelizes even small sizes. This test uses sizes at and just above the limit for serial
// kernels, inline and on the worker.
TEST(LaunchTest, SmallKernelsStartNoTeam) {
  const int before = at::get_num_threads();
  at::set_num_threads(before + 3);
  for (const int64_t size : {kSerialIterations, kSerialIterations + 1, int64_t{2048}}) {
    const at::Tensor x = to_device(at::ones({size}));
    occupy_stream();  // starts the stream's worker
    const std::set<std::string> running = threads();
    (void)at::exp(x);
    synchronize();
    (void)at::exp(x);
    synchronize();
    EXPECT_EQ(count_started(running), 0) << size;
  }
  at::set_num_threads(before);
}

TEST(LaunchTest, TheExecutorStartsItsTeam) {
  const int before = at::get_num_threads();
  at::set_num_threads(before + 3);
  EXPECT_GE(threads_started_by(kParallelCost), 3);
  at::set_num_threads(before);
}

// The cost must depend on the output: it has 64 times as many elements as the input.
TEST(LaunchTest, AConvolutionOfFewChannelsToManyHasATeam) {
  const int before = at::get_num_threads();
  at::set_num_threads(before + 6);
  const at::Tensor image = to_device(at::ones({1, 1, 64, 64}));
  const at::Tensor filters = to_device(at::ones({64, 1, 3, 3}));
  synchronize();
  const std::set<std::string> running = threads();
  (void)at::conv2d(image, filters);
  synchronize();
  EXPECT_GE(count_started(running), 3);
  at::set_num_threads(before);
}

TEST(LaunchTest, ParallelLaunchesEndTheCallersOwnTeam) {
  const int before = at::get_num_threads();
  at::set_num_threads(before + 3);
  compute();
  for (int i = 0; i < 8; ++i) {
    launch_function(kParallelCost, [] {});
  }
  synchronize();
  const std::set<std::string> running = threads();
  compute();
  EXPECT_EQ(count_started(running), before + 2);
  at::set_num_threads(before);
}

TEST(LaunchTest, ACallerThatWaitsAnywayRunsItsKernel) {
  const auto launch_awaited = [](int64_t cost) {
    std::thread::id where;
    launch_kernel({"test::function", cost, /*awaited=*/true}, 0,
                  [&](AliasPool&) { return [&where] { where = std::this_thread::get_id(); }; });
    synchronize();
    return where;
  };
  synchronize();
  EXPECT_TRUE(runs_here_eventually([&] { return launch_awaited(kParallelCost - 1); }));
  occupy_stream();
  EXPECT_NE(launch_awaited(kParallelCost - 1), std::this_thread::get_id());
}

TEST(LaunchTest, KernelsRunInOrder) {
  std::vector<int> order;
  for (int i = 0; i < 2000; ++i) {
    launch_function(i % 3 == 0 ? 1 : kInlineCost, [&order, i] { order.push_back(i); });
  }
  synchronize();
  ASSERT_EQ(order.size(), 2000U);
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(order[static_cast<size_t>(i)], i);
  }
}

TEST(LaunchTest, KernelsRunBelowAutograd) {
  const at::Tensor tensor = at::ones({2}).requires_grad_();
  bool requires_grad = true;
  launch_function(kInlineCost, [&] { requires_grad = tensor.neg().requires_grad(); });
  synchronize();
  EXPECT_FALSE(requires_grad);
}

TEST(LaunchTest, AnExceptionIsThrownOnceAtTheNextSynchronization) {
  for (const int64_t cost : {int64_t{1}, kInlineCost, kParallelCost}) {
    launch_function(cost, [] { TORCH_CHECK_INDEX(false, "no such element"); });
    launch_function(cost, [] { TORCH_CHECK(false, "a later one"); });
    try {
      synchronize();
      FAIL() << "no error";
    } catch (const c10::IndexError& error) {
      EXPECT_NE(std::string(error.what()).find("no such element"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("test::function"), std::string::npos);
    }
    EXPECT_NO_THROW(synchronize());
  }
}

// Counts its objects, to check that each is destroyed exactly once.
struct Counted {
  static std::atomic<int>& alive() {
    static std::atomic<int> count{0};
    return count;
  }
  Counted() { ++alive(); }
  Counted(const Counted& /*other*/) { ++alive(); }
  ~Counted() { --alive(); }
};

TEST(LaunchTest, AcceptedArgumentsArePerOperator) {
  // Names of operators. They are adjacent in memory, as string literals often are.
  static constexpr std::array<char, 256> kNames{};
  const at::Tensor accepted = to_device(at::ones(2, at::kHalf));
  launch_kernel({kNames.data(), 1}, 0,
                [&](AliasPool& aliases) { return [alias = aliases.alias(accepted)] {}; });
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kInt}) {
    const at::Tensor refused = to_device(at::ones(2, dtype));
    for (size_t i = 1; i < kNames.size(); ++i) {
      const auto launch = [&] {
        launch_kernel({&kNames[i], 1}, 0, [&](AliasPool& aliases) {
          return [alias = aliases.alias(refused)] { throw std::invalid_argument("dtype"); };
        });
      };
      ASSERT_THROW(launch(), std::invalid_argument) << dtype << ", " << i;
    }
  }
  synchronize();
}

TEST(LaunchTest, ClosuresAreDestroyedWhenTheKernelIsDone) {
  for (int i = 0; i < 100; ++i) {
    launch_function(i % 2 == 0 ? 1 : kInlineCost, [counted = Counted()] { (void)counted; });
  }
  synchronize();
  EXPECT_EQ(Counted::alive(), 0);
}

TEST(LaunchTest, ClosuresOfFailedLaunchesAreDestroyedOnce) {
  OPENREG_CHECK(orSetLaunchBlocking(1));
  EXPECT_THROW(launch_function(kInlineCost,
                               [counted = Counted()] {
                                 (void)counted;
                                 throw std::domain_error("in the kernel");
                               }),
               std::domain_error);
  OPENREG_CHECK(orSetLaunchBlocking(0));
  EXPECT_EQ(Counted::alive(), 0);
  // The driver rejects launches from inside a kernel.
  bool refused = false;
  launch_function(kInlineCost, [&refused] {
    try {
      launch_function(1, [counted = Counted()] { (void)counted; });
    } catch (const c10::Error&) {
      refused = true;
    }
  });
  synchronize();
  EXPECT_TRUE(refused);
  EXPECT_EQ(Counted::alive(), 0);
}

TEST(LaunchTest, ClosuresThatCannotBeBuiltDoNotLeak) {
  EXPECT_THROW(launch_kernel({"test::builder", 1}, 0,
                             [](AliasPool&) -> void (*)() { throw std::domain_error("no"); }),
               std::domain_error);
}

class CollectWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { messages.push_back(warning.msg()); }
  std::vector<std::string> messages;
};

TEST(LaunchTest, WarningsOfKernelsReachTheSynchronizingThread) {
  CollectWarnings collect;
  const c10::WarningUtils::WarningHandlerGuard guard(&collect);
  launch_function(kInlineCost, [] { TORCH_WARN("from a kernel"); });
  synchronize();
  ASSERT_EQ(collect.messages.size(), 1U);
  EXPECT_EQ(collect.messages[0], "from a kernel");
}

TEST(LaunchTest, ThreadsLaunchAtTheSameTime) {
  std::atomic<int> count{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&count, t] {
      for (int i = 0; i < 1000; ++i) {
        launch_kernel({"test::count", (i + t) % 5 == 0 ? kInlineCost : 1},
                      static_cast<c10::DeviceIndex>(t % 2),
                      [&](AliasPool&) { return [&count] { ++count; }; });
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  synchronize_device(0);
  synchronize_device(1);
  EXPECT_EQ(count, 8000);
}

TEST(OperandsTest, RefusesTensorsOfSeveralDevices) {
  const at::Tensor host = at::ones({2});
  const at::Tensor device = to_device(host);
  Operands operands;
  operands.add(device);
  EXPECT_THROW(operands.add(host), c10::Error);
  EXPECT_THROW(operands.add(host.to(c10::Device(kOpenRegType, 1))), c10::Error);
  EXPECT_NO_THROW(operands.add(at::ones({})));
  EXPECT_EQ(operands.numel(), 2);
}

TEST(OperandsTest, KnowsWhatATensorIteratorWouldConvert) {
  const at::Tensor floats = to_device(at::ones({2}));
  const auto converts = [](const std::vector<at::Tensor>& tensors) {
    Operands operands;
    operands.add(at::TensorList(tensors));
    return operands.converts();
  };
  EXPECT_FALSE(converts({floats, floats}));
  EXPECT_FALSE(converts({floats, at::ones({}, at::kDouble)}));
  EXPECT_TRUE(converts({floats, floats.to(at::kDouble)}));
  EXPECT_TRUE(converts({floats, at::ones({}, at::kComplexDouble)}));
  EXPECT_TRUE(converts({floats.to(at::kInt)}));
}

TEST(OwnedTest, NumbersInCpuTensorsAreCopied) {
  at::Tensor number = at::ones({});
  AliasPool aliases;
  const at::Tensor owned = own_tensor(aliases, number);
  number.fill_(7);
  EXPECT_EQ(owned.item<float>(), 1);
}

}  // namespace
}  // namespace openreg
