// SPDX-License-Identifier: BSD-3-Clause
//
// Tests a driver that lacks a part of tier 3. Each function of that part must return
// orErrorNotSupported, except the functions with which callers find out whether the part exists.
#include "runtime/device/cts/fixture.h"

namespace openreg::cts {
namespace {

using NoGraphsTest = DriverTest;
using NoSharingTest = DriverTest;
using NoActivityTest = DriverTest;

TEST_F(NoGraphsTest, NothingIsCaptured) {
  orStreamCaptureStatus status = orStreamCaptureStatusActive;
  uint64_t id = 1;
  EXPECT_OK(orStreamGetCaptureInfo(nullptr, &status, &id));
  EXPECT_EQ(status, orStreamCaptureStatusNone);
  EXPECT_EQ(id, 0u);
  EXPECT_OK(orStreamGetCaptureInfo(nullptr, &status, nullptr));
  orStreamCaptureMode mode = orStreamCaptureModeRelaxed;
  EXPECT_OK(orThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, orStreamCaptureModeGlobal);
  EXPECT_OK(orThreadExchangeStreamCaptureMode(&mode));
}

TEST_F(NoGraphsTest, FunctionsAreNotSupported) {
  orGraph_t graph = nullptr;
  size_t count = 0;
  EXPECT_FAILS(orStreamBeginCapture(nullptr, orStreamCaptureModeGlobal), orErrorNotSupported);
  EXPECT_FAILS(orStreamEndCapture(nullptr, &graph), orErrorNotSupported);
  EXPECT_FAILS(orGraphLaunch(graph, nullptr), orErrorNotSupported);
  EXPECT_FAILS(orGraphDestroy(graph), orErrorNotSupported);
  EXPECT_FAILS(orGraphGetNodeCount(graph, &count), orErrorNotSupported);
  EXPECT_FAILS(orGraphDebugDotPrint(graph, "graph.dot"), orErrorNotSupported);
}

TEST_F(NoSharingTest, FunctionsAreNotSupported) {
  auto* memory = Allocate<char>(1);
  void* pointer = nullptr;
  int exported = 0;
  orEvent_t event = nullptr;
  orIpcMemoryHandle memory_handle{};
  orIpcEventHandle event_handle{};
  EXPECT_FAILS(orIpcExport(&memory_handle, memory, 1, nullptr), orErrorNotSupported);
  EXPECT_FAILS(orIpcImport(&pointer, &memory_handle, nullptr), orErrorNotSupported);
  EXPECT_FAILS(orIpcRelease(memory, nullptr), orErrorNotSupported);
  EXPECT_FAILS(orIpcIsExported(&exported, memory, 1), orErrorNotSupported);
  EXPECT_FAILS(orEventCreateWithFlags(&event, orEventInterprocess), orErrorNotSupported);
  EXPECT_FAILS(orIpcGetEventHandle(&event_handle, event), orErrorNotSupported);
  EXPECT_FAILS(orIpcOpenEventHandle(&event, &event_handle), orErrorNotSupported);
}

TEST_F(NoActivityTest, FunctionsAreNotSupported) {
  uint64_t number = 0;
  EXPECT_EQ(orActivityIsEnabled(), 0);
  EXPECT_FAILS(orActivityRegisterCallbacks(nullptr, nullptr), orErrorNotSupported);
  EXPECT_FAILS(orActivityEnableTracing(), orErrorNotSupported);
  EXPECT_FAILS(orActivityDisableTracing(), orErrorNotSupported);
  EXPECT_FAILS(orActivityFlushAll(), orErrorNotSupported);
  EXPECT_FAILS(orActivityGetCounts(&number, &number), orErrorNotSupported);
  EXPECT_FAILS(orActivityPushExternalCorrelationId(orActivityIdUser, 1), orErrorNotSupported);
  EXPECT_FAILS(orActivityPopExternalCorrelationId(orActivityIdUser, &number), orErrorNotSupported);
}

}  // namespace
}  // namespace openreg::cts
