// SPDX-License-Identifier: BSD-3-Clause
//
// Tests that each diagnostic receives the calls that it needs through the hooks. The tests in
// //tests check the diagnostics themselves, with operators.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/c10/device_allocator.h"
#include "runtime/c10/diagnostic_hooks.h"
#include "runtime/c10/graph.h"
#include "runtime/c10/stream.h"
#include "runtime/device/openreg_emulation.h"
#include "runtime/diagnostics/implicit_wait.h"
#include "runtime/diagnostics/memory_history.h"
#include "runtime/diagnostics/stream_sanitizer.h"
#include "runtime/diagnostics/warning.h"

namespace openreg {
namespace {

class Warnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  std::vector<std::string> texts;
};

TEST(DiagnosticsTest, AreOffByDefault) {
  (void)allocate_on(0, 64);
  synchronize_device(0);
  EXPECT_FALSE(memory_watchers.any());
  EXPECT_FALSE(stream_watchers.any());
  EXPECT_EQ(launch_watcher_bits(), 0U);
}

TEST(WarningTest, AKernelWarningIsDeliveredByTheNextWait) {
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  const orStream_t stream = native_stream(pooled_stream(0, 0));
  OPENREG_CHECK(orLaunchKernel(stream, [] {
    const c10::WarningUtils::WarningHandlerGuard worker(kernel_warning_handler());
    TORCH_WARN("of a kernel");
  }));
  synchronize_stream(stream);
  ASSERT_EQ(warnings.texts.size(), 1U);
  EXPECT_EQ(warnings.texts[0], "of a kernel");
  EXPECT_FALSE(stream_watchers.any());
  synchronize_stream(stream);
  EXPECT_EQ(warnings.texts.size(), 1U);
}

TEST(MemoryHistoryTest, RecordsAllocationsOfEachDevice) {
  start_memory_history({.history = {.capacity = 100}});
  (void)allocate_on(0, 1000);
  (void)allocate_on(1, 2000);  // creates the allocator of device 1 while the history is on
  std::vector<size_t> sizes;
  for (const MemorySnapshot& snapshot : memory_snapshot()) {
    for (const allocator::History::Entry& entry : snapshot.history.entries) {
      if (entry.event.action == allocator::Action::kAlloc) {
        sizes.push_back(entry.event.size);
      }
    }
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{1000, 2000}));
  stop_memory_history();
  EXPECT_FALSE(memory_watchers.any());
}

// The kernel of an operator whose schema declares the tensor as written.
void write(const at::Tensor& /*tensor*/) {
  if (sanitizes_streams()) {
    sanitize_launch(current_native_stream(0), "write");
  }
}

TORCH_LIBRARY(diagnostics_test, library) {
  library.def("write(Tensor(a!) tensor) -> ()");
  library.impl("write", c10::DispatchKey::PrivateUse1, TORCH_FN(write));
}

void write_on(const c10::Stream& stream, const at::Tensor& tensor) {
  const c10::Stream before = exchange_stream(stream);
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("diagnostics_test::write", "")
                             .typed<void(const at::Tensor&)>();
  try {
    op.call(tensor);
  } catch (...) {
    (void)exchange_stream(before);
    throw;
  }
  (void)exchange_stream(before);
}

class StreamSanitizerTest : public ::testing::Test {
 protected:
  void SetUp() override { start_stream_sanitizer(RaceAction::kError); }
  void TearDown() override {
    stop_stream_sanitizer();
    EXPECT_FALSE(memory_watchers.any());
    EXPECT_FALSE(stream_watchers.any());
    EXPECT_EQ(launch_watcher_bits(), 0U);
  }
  static at::Tensor make_tensor() {
    return at::detail::empty_generic({1 << 20}, device_allocator(),
                                     c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), at::kFloat,
                                     std::nullopt);
  }
  const c10::Stream own_ = default_stream(0);
  const c10::Stream other_ = pooled_stream(0, 0);
};

TEST_F(StreamSanitizerTest, SeesAllocationsAndLaunches) {
  EXPECT_THROW(write_on(other_, make_tensor()), c10::Error);
  EXPECT_EQ(found_races().size(), 1U);
}

TEST_F(StreamSanitizerTest, SeesRecordsAndWaitsOfEvents) {
  const at::Tensor tensor = make_tensor();
  c10::Event event(kOpenRegType);
  event.record(own_);
  event.block(other_);
  write_on(other_, tensor);
  EXPECT_THROW(write_on(own_, tensor), c10::Error);
}

TEST_F(StreamSanitizerTest, SeesWaitsAndQueriesOfTheHost) {
  const c10::impl::VirtualGuardImpl guard(kOpenRegType);
  c10::Event event(kOpenRegType);
  const std::vector<std::function<void()>> waits{
      [&] { guard.synchronizeDevice(0); },           [&] { guard.synchronizeStream(own_); },
      [&] { EXPECT_TRUE(guard.queryStream(own_)); }, [&] { event.synchronize(); },
      [&] { EXPECT_TRUE(event.query()); },
  };
  for (const auto& wait : waits) {
    const at::Tensor tensor = make_tensor();
    event.record(own_);
    EXPECT_THROW(write_on(other_, tensor), c10::Error);
    wait();
    EXPECT_NO_THROW(write_on(other_, tensor));
    guard.synchronizeDevice(0);
  }
}

TEST_F(StreamSanitizerTest, SeesFreesAndRecordedStreams) {
  for (const bool recorded : {false, true}) {
    at::Tensor tensor = make_tensor();
    synchronize_device(0);
    write_on(other_, tensor);
    if (recorded) {
      device_allocator()->recordStream(tensor.storage().data_ptr(), other_);
    }
    tensor.reset();
    if (recorded) {
      EXPECT_NO_THROW((void)make_tensor());
    } else {
      EXPECT_THROW((void)make_tensor(), c10::Error);
    }
    synchronize_device(0);
  }
}

TEST(ImplicitWaitTest, FailsWhileAGraphIsCaptured) {
  const c10::Stream before = exchange_stream(pooled_stream(0, 0));
  announce_wait("test::wait", "it is a test", 0);
  Graph graph;
  graph.capture_begin({0, 0}, at::GraphCaptureMode::Global);
  EXPECT_THROW(announce_wait("test::wait", "it is a test", 0), c10::Error);
  EXPECT_THROW(graph.capture_end(), c10::Error);  // the wait has invalidated the capture
  announce_wait("test::wait", "it is a test", 0);
  (void)exchange_stream(before);
}

}  // namespace
}  // namespace openreg
