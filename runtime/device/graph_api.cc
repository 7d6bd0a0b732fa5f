// SPDX-License-Identifier: BSD-3-Clause
//
// Implements the C functions for captures and graphs.
#include "runtime/device/capture.h"
#include "runtime/device/error.h"
#include "runtime/device/graph.h"
#include "runtime/device/openreg.h"
#include "runtime/device/process.h"
#include "runtime/device/stream_registry.h"
#include "runtime/device/submission.h"
#include "runtime/device/thread.h"

namespace openreg::device {
namespace {

// The graph of a handle. Shares ownership of the graph, so another thread may destroy the handle.
class FoundGraph {
 public:
  explicit FoundGraph(orGraph_t handle) : graph_(Graphs::Get().Find(handle)) {}
  ~FoundGraph() {
    if (graph_ != nullptr) {
      graph_->Release();
    }
  }
  FoundGraph(const FoundGraph&) = delete;
  FoundGraph& operator=(const FoundGraph&) = delete;

  orError_t Check(const char* function, orGraph_t handle) const {
    return graph_ != nullptr ? orSuccess
                             : Fail(orErrorInvalidHandle,
                                    "%s: %p is not a valid graph; it may have been destroyed",
                                    function, static_cast<void*>(handle));
  }
  Graph* operator->() const { return graph_; }

 private:
  Graph* const graph_;
};

orError_t EnterStream(const char* function, orStream_t handle, Stream** stream,
                      uint64_t* expected) {
  const orError_t error = EnterDevice(function);
  return error == orSuccess ? FindStream(function, handle, stream, expected) : error;
}

bool IsMode(orStreamCaptureMode mode) {
  return mode >= orStreamCaptureModeGlobal && mode <= orStreamCaptureModeRelaxed;
}

}  // namespace

extern "C" {

OPENREG_API orError_t orThreadExchangeStreamCaptureMode(orStreamCaptureMode* mode) {
  if (mode == nullptr || !IsMode(*mode)) {
    return Fail(orErrorInvalidValue,
                "orThreadExchangeStreamCaptureMode: mode must point to a valid "
                "orStreamCaptureMode");
  }
  const auto before = static_cast<orStreamCaptureMode>(thread_state.capture_mode);
  thread_state.capture_mode = static_cast<uint8_t>(*mode);
  *mode = before;
  return orSuccess;
}

OPENREG_API orError_t orStreamBeginCapture(orStream_t handle, orStreamCaptureMode mode) {
  Stream* stream = nullptr;
  uint64_t expected = 0;
  if (const orError_t error = EnterStream("orStreamBeginCapture", handle, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  if (!IsMode(mode)) {
    return Fail(orErrorInvalidValue, "orStreamBeginCapture: mode %d is not an orStreamCaptureMode",
                static_cast<int>(mode));
  }
  return Captures::Get().Begin(stream, expected, mode);
}

OPENREG_API orError_t orStreamEndCapture(orStream_t handle, orGraph_t* graph) {
  Stream* stream = nullptr;
  uint64_t expected = 0;
  if (const orError_t error = EnterStream("orStreamEndCapture", handle, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  if (graph == nullptr) {
    return Fail(orErrorInvalidValue,
                "orStreamEndCapture: graph is null: pass the address of an orGraph_t");
  }
  return Captures::Get().End(stream, graph);
}

OPENREG_API orError_t orStreamGetCaptureInfo(orStream_t handle, orStreamCaptureStatus* status,
                                             uint64_t* id) {
  Stream* stream = nullptr;
  uint64_t expected = 0;
  if (const orError_t error = EnterQuery("orStreamGetCaptureInfo"); error != orSuccess) {
    return error;
  }
  if (const orError_t error = FindStream("orStreamGetCaptureInfo", handle, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  if (status == nullptr) {
    return Fail(
        orErrorInvalidValue,
        "orStreamGetCaptureInfo: status is null: pass the address of an orStreamCaptureStatus");
  }
  if (Capturing() && stream->capture() != nullptr) {
    Captures::Get().Describe(stream, status, id);
    return orSuccess;
  }
  *status = orStreamCaptureStatusNone;
  if (id != nullptr) {
    *id = 0;
  }
  return orSuccess;
}

OPENREG_API orError_t orGraphLaunch(orGraph_t handle, orStream_t stream_handle) {
  Submission submission("orGraphLaunch");
  StreamQueue queue;
  if (const orError_t error = submission.Enter(stream_handle); error != orSuccess) {
    return error;
  }
  if (const orError_t error =
          submission.QueueUncaptured("and graphs do not nest: replay it after the capture", &queue);
      error != orSuccess) {
    return error;
  }
  const FoundGraph graph(handle);
  if (const orError_t error = graph.Check("orGraphLaunch", handle); error != orSuccess) {
    return error;
  }
  if (graph->device() != submission.stream().device()) {
    return Fail(
        orErrorInvalidDevice,
        "orGraphLaunch: the graph was captured on device %d, but the stream belongs to device %d: "
        "launch it on a stream of device %d",
        graph->device(), submission.stream().device(), graph->device());
  }
  return graph->Launch(queue);
}

OPENREG_API orError_t orGraphDestroy(orGraph_t graph) {
  if (InForkedChild()) {
    return orSuccess;
  }
  if (const orError_t error = EnterRelease("orGraphDestroy"); error != orSuccess) {
    return error;
  }
  return Graphs::Get().Destroy(graph);
}

OPENREG_API orError_t orGraphGetNodeCount(orGraph_t handle, size_t* count) {
  if (const orError_t error = EnterQuery("orGraphGetNodeCount"); error != orSuccess) {
    return error;
  }
  const FoundGraph graph(handle);
  if (const orError_t error = graph.Check("orGraphGetNodeCount", handle); error != orSuccess) {
    return error;
  }
  if (count == nullptr) {
    return Fail(orErrorInvalidValue,
                "orGraphGetNodeCount: count is null: pass the address of a size_t");
  }
  *count = graph->size();
  return orSuccess;
}

OPENREG_API orError_t orGraphDebugDotPrint(orGraph_t handle, const char* path) {
  if (const orError_t error = EnterQuery("orGraphDebugDotPrint"); error != orSuccess) {
    return error;
  }
  const FoundGraph graph(handle);
  if (const orError_t error = graph.Check("orGraphDebugDotPrint", handle); error != orSuccess) {
    return error;
  }
  if (path == nullptr) {
    return Fail(orErrorInvalidValue, "orGraphDebugDotPrint: path is null: pass a file name");
  }
  return graph->Draw(path);
}

}  // extern "C"
}  // namespace openreg::device
