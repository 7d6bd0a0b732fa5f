// SPDX-License-Identifier: BSD-3-Clause
//
// Tests the events that c10 reports to diagnostics. A table of hooks that records each call
// replaces the real diagnostics.
#include "runtime/c10/diagnostic_hooks.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/c10/device_allocator.h"
#include "runtime/c10/stream.h"
#include "runtime/device/openreg_emulation.h"

namespace openreg {
namespace {

constexpr uint32_t kWatcher = 0x1;

std::vector<std::string> calls;
bool refuse_allocations = false;
bool refuse_after_wait = false;
orError_t waited_with = orSuccess;

std::string name_of(const Awaited& awaited) {
  constexpr const char* kNames[] = {"device", "stream", "event"};
  return kNames[awaited.index()];
}

void* on_allocate(const allocator::Block* block) {
  calls.push_back("allocate " + std::to_string(block->requested));
  TORCH_CHECK_VALUE(!refuse_allocations, "refused");
  return static_cast<char*>(block->pointer) + 1;
}

bool find_block(c10::DeviceIndex device, const void* pointer,
                allocator::CachingAllocator::Description* block) {
  *block = {pointer, static_cast<size_t>(device) + 1, true};
  return pointer == &calls;
}

constexpr DiagnosticHooks kHooks{
    .context = [](allocator::ContextLevel level) -> allocator::Context {
      calls.push_back("context " + std::to_string(static_cast<int>(level)));
      return nullptr;
    },
    .on_allocate = &on_allocate,
    .on_record_stream = [](const allocator::Block* /*block*/,
                           orStream_t /*stream*/) { calls.emplace_back("record_stream"); },
    .on_free = [](const allocator::Block* /*block*/) { calls.emplace_back("free"); },
    .on_allocator =
        [](c10::DeviceIndex device, allocator::CachingAllocator* /*allocator*/) {
          calls.push_back("allocator " + std::to_string(device));
        },
    .find_block = &find_block,
    .on_event_record = [](orEvent_t /*event*/,
                          orStream_t /*stream*/) { calls.emplace_back("record"); },
    .on_stream_wait = [](orStream_t /*stream*/,
                         orEvent_t /*event*/) { calls.emplace_back("stream waits"); },
    .on_event_destroy = [](orEvent_t /*event*/) { calls.emplace_back("destroy"); },
    .before_wait = [](const Awaited& awaited) { calls.push_back("before " + name_of(awaited)); },
    .after_wait =
        [](const Awaited& awaited, orError_t error) {
          calls.push_back("after " + name_of(awaited));
          waited_with = error;
          TORCH_CHECK_INDEX(!refuse_after_wait, "refused");
        },
    .on_done = [](const Awaited& awaited) { calls.push_back("done " + name_of(awaited)); },
};

using Calls = std::vector<std::string>;

class DiagnosticHooksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_diagnostic_hooks(&kHooks);
    (void)allocate_on(0, 1);  // creates the allocator of device 0
    calls.clear();
  }
  void TearDown() override {
    memory_watchers.set(kWatcher, false);
    stream_watchers.set(kWatcher, false);
    refuse_allocations = false;
    refuse_after_wait = false;
    waited_with = orSuccess;
  }
  static Calls take() { return std::exchange(calls, {}); }
  const c10::impl::VirtualGuardImpl guard_{kOpenRegType};
};

TEST_F(DiagnosticHooksTest, NothingIsReportedWithoutWatchers) {
  {
    const c10::DataPtr data = allocate_on(0, 4096);
    device_allocator()->recordStream(data, pooled_stream(0, 0));
    c10::Event event(kOpenRegType);
    event.record(default_stream(0));
    event.block(pooled_stream(0, 0));
    event.synchronize();
    EXPECT_TRUE(event.query());
    synchronize_stream(current_native_stream(0));
    synchronize_device(0);
  }
  device_allocator()->emptyCache();
  EXPECT_EQ(take(), Calls());
}

TEST_F(DiagnosticHooksTest, MemoryIsReportedWithTheAddressFromTheHook) {
  memory_watchers.set(kWatcher, true);
  {
    const c10::DataPtr data = allocate_on(0, 4096);
    EXPECT_EQ(data.get(), static_cast<char*>(block_of(data)->pointer) + 1);
    EXPECT_EQ(take(), (Calls{"context 1", "allocate 4096"}));
    device_allocator()->recordStream(data, pooled_stream(0, 0));
    EXPECT_EQ(take(), (Calls{"record_stream"}));
  }
  EXPECT_EQ(take(), (Calls{"context 3", "free"}));
  synchronize_device(0);
  EXPECT_EQ(take(), Calls());
}

TEST_F(DiagnosticHooksTest, ARejectedAllocationIsFreed) {
  const auto allocated = [] {
    return device_allocator()->getDeviceStats(0).allocated_bytes[0].current;
  };
  const int64_t before = allocated();
  memory_watchers.set(kWatcher, true);
  refuse_allocations = true;
  EXPECT_THROW((void)allocate_on(0, 4096), c10::ValueError);
  EXPECT_EQ(allocated(), before);
  EXPECT_EQ(take(), (Calls{"context 1", "allocate 4096"}));
}

TEST_F(DiagnosticHooksTest, EventsAndWaitsAreReported) {
  stream_watchers.set(kWatcher, true);
  {
    c10::Event event(kOpenRegType);
    event.record(default_stream(0));
    event.block(pooled_stream(0, 0));
    EXPECT_EQ(take(), (Calls{"record", "stream waits"}));
    event.synchronize();
    EXPECT_TRUE(event.query());
    EXPECT_EQ(take(), (Calls{"before event", "after event", "done event"}));
  }
  EXPECT_EQ(take(), (Calls{"destroy"}));
  guard_.synchronizeStream(default_stream(0));
  EXPECT_TRUE(guard_.queryStream(default_stream(0)));
  EXPECT_EQ(take(), (Calls{"before stream", "after stream", "done stream"}));
  guard_.synchronizeDevice(0);
  EXPECT_EQ(take(), (Calls{"before device", "after device"}));
  (void)allocate_on(0, 4096);
  EXPECT_EQ(take(), Calls());
}

TEST_F(DiagnosticHooksTest, AHookGetsTheErrorOfAWaitAndMayThrowInstead) {
  stream_watchers.set(kWatcher, true);
  const orStream_t stream = native_stream(pooled_stream(0, 0));
  const auto fail = [stream] {
    OPENREG_CHECK(orLaunchKernel(stream, [] { return orErrorInvalidValue; }));
  };
  fail();
  EXPECT_THROW(synchronize_stream(stream), c10::Error);
  EXPECT_NE(waited_with, orSuccess);
  refuse_after_wait = true;
  fail();
  EXPECT_THROW(synchronize_stream(stream), c10::IndexError);
}

TEST_F(DiagnosticHooksTest, AWatcherEnabledByAKernelIsCalledAfterTheWait) {
  const orStream_t stream = native_stream(pooled_stream(0, 0));
  OPENREG_CHECK(orLaunchKernel(stream, [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    stream_watchers.set(kWatcher, true);
  }));
  synchronize_stream(stream);
  EXPECT_EQ(take(), (Calls{"after stream"}));
}

TEST_F(DiagnosticHooksTest, HooksAreAskedForSourcesAndBlocks) {
  (void)allocate_on(1, 4096);
  EXPECT_EQ(take(), (Calls{"allocator 1"}));
  BlockRange found{};
  EXPECT_TRUE(find_block(&calls, &found));
  EXPECT_EQ(found.base, &calls);
  EXPECT_FALSE(find_block(&found, &found));
}

}  // namespace
}  // namespace openreg
