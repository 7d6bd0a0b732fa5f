// SPDX-License-Identifier: BSD-3-Clause
//
// graph_fixture.h - the common code of the capture and graph tests: captures, and kernels to
// capture.
#ifndef RUNTIME_DEVICE_GRAPH_FIXTURE_H_
#define RUNTIME_DEVICE_GRAPH_FIXTURE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "runtime/device/device_fixture.h"

namespace openreg::device {

// A kernel that adds to a host variable. Like the kernels in aten, it does not consume its
// arguments.
struct Add {
  std::atomic<int>* sum;
  int value;
  static orError_t Run(void* arguments) {
    auto* add = static_cast<Add*>(arguments);
    add->sum->fetch_add(add->value);
    add->value = 1000;  // changes only this run's copy
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

  // Checks that the capture on `stream` is invalid and that ending it reports `reason`. Then checks
  // that the stream works and can be captured again.
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

inline constexpr uint32_t kAllFlags[] = {0, orLaunchInline, orLaunchShort, orLaunchParallel,
                                         orLaunchMoldable};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_GRAPH_FIXTURE_H_
