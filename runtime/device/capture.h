// SPDX-License-Identifier: BSD-3-Clause
//
// capture.h - captures: streams whose work becomes a graph instead of being run.
//
// A capture keeps what is queued on its streams as the nodes of a graph (graph.h). It belongs to
// Captures, from Begin to End; one lock, of Captures, guards them all: a capture is not a hot path.
// A bit of the process's mode (kCapturing) says whether there is any capture, and a word of the
// stream whether that is part of one, so that other calls cost one load. Submission (submission.h)
// asks the functions about streams; calls that concern no stream, or events, ask here.
//
// One object, never destroyed. Threads: any.
#ifndef RUNTIME_DEVICE_CAPTURE_H_
#define RUNTIME_DEVICE_CAPTURE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/device/event.h"
#include "runtime/device/graph.h"
#include "runtime/device/openreg.h"
#include "runtime/device/process.h"
#include "runtime/device/stream.h"
#include "runtime/device/work.h"

namespace openreg::device {

class Capture;

// Whether there is any capture: one load.
inline bool Capturing() { return (mode.load(std::memory_order_relaxed) & kCapturing) != 0; }

class Captures {
 public:
  static Captures& Get();

  orError_t Begin(Stream* stream, uint64_t expected, orStreamCaptureMode mode);
  orError_t End(Stream* stream, orGraph_t* handle);
  void Describe(const Stream* stream, orStreamCaptureStatus* status, uint64_t* id);

  // Each returns nothing if no capture is concerned: then the caller proceeds as usual. `function`
  // names the call.
  std::optional<orError_t> Add(const char* function, const Stream* stream, const Work& work);
  std::optional<orError_t> Record(const char* function, Event* event, uint64_t handle,
                                  const Stream* stream);
  // `recorded_by`: what the event captured when the caller read it.
  std::optional<orError_t> Wait(const char* function, Stream* stream, const Event* event,
                                uint64_t handle, const Event::Capture& recorded_by);

  // For calls that a capture does not allow: fail and make the capture invalid. `because` ends the
  // sentence "orX: stream S is captured, ".
  orError_t RefuseStream(const char* function, const Stream* stream, const char* because);
  orError_t RefuseDevice(const char* function, int device);
  orError_t RefuseUnsafe(const char* function);
  // Of an event that a capture has recorded.
  orError_t RefuseEvent(const char* function, uint64_t handle);

 private:
  void Drop(Capture* capture);  // frees its streams and ends it
  Capture* OfEvent(uint64_t handle) const;

  std::mutex mutex_;
  uint64_t last_id_ = 0;
  std::vector<std::unique_ptr<Capture>> captures_;
};

// For a call that waits for a whole device, or that is unsafe beside captures (see
// orStreamCaptureMode): orSuccess unless a capture refuses it.
inline orError_t CheckDeviceUncaptured(const char* function, int device) {
  return Capturing() ? Captures::Get().RefuseDevice(function, device) : orSuccess;
}
inline orError_t CheckSafeInCapture(const char* function) {
  return Capturing() ? Captures::Get().RefuseUnsafe(function) : orSuccess;
}

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_CAPTURE_H_
