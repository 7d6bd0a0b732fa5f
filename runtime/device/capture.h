// SPDX-License-Identifier: BSD-3-Clause
//
// capture.h - stream captures: the work of captured streams is recorded in a graph instead of being
// run.
//
// A capture stores the work that is queued on its streams as the nodes of a graph (graph.h).
// Captures owns the capture from Begin to End. One lock guards all captures, because captures are
// not a hot path. The kCapturing bit in the process's mode is set while any capture is active. A
// word in each stream stores the capture that the stream belongs to. All other calls therefore cost
// only one load.
//
// Submission (submission.h) calls the functions with a Stream parameter. API functions for events,
// or without a stream, use this class directly. A function that no capture can record, such as a
// synchronous copy, refuses the call itself, with CheckSafeInCapture() or
// Submission::QueueUncaptured().
//
// There is one Captures object, which is never destroyed. Any thread may call it.
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

// Returns whether any capture is active, at the cost of one load.
inline bool Capturing() { return (mode.load(std::memory_order_relaxed) & kCapturing) != 0; }

class Captures {
 public:
  static Captures& Get();

  orError_t Begin(Stream* stream, uint64_t expected, orStreamCaptureMode mode);
  orError_t End(Stream* stream, orGraph_t* handle);
  void Describe(const Stream* stream, orStreamCaptureStatus* status, uint64_t* id);

  // Add a command, an event record or an event wait to the capture. Return nullopt if no capture is
  // involved; the caller then proceeds as usual. `function` is the name of the API call.
  std::optional<orError_t> Add(const char* function, const Stream* stream, const Work& work);
  std::optional<orError_t> Record(const char* function, Event* event, uint64_t handle,
                                  const Stream* stream);
  // `recorded_by` is the work that the event had captured when the caller read it.
  std::optional<orError_t> Wait(const char* function, Stream* stream, const Event* event,
                                uint64_t handle, const Event::Capture& recorded_by);

  // Invalidate the capture and fail, because a capture does not allow the call. `because` completes
  // the sentence "orX: stream S is being captured, ".
  orError_t RefuseStream(const char* function, const Stream* stream, const char* because);
  orError_t RefuseDevice(const char* function, int device);
  orError_t RefuseUnsafe(const char* function);
  // Fails a call for an event that a capture has recorded. Invalidates that capture if it is still
  // active.
  orError_t RefuseEvent(const char* function, uint64_t handle);

 private:
  void Drop(Capture* capture);  // releases the streams of the capture and ends it
  Capture* OfEvent(uint64_t handle) const;

  std::mutex mutex_;
  uint64_t last_id_ = 0;
  std::vector<std::unique_ptr<Capture>> captures_;
};

// Called by functions that wait for a whole device (CheckDeviceUncaptured), or that are unsafe
// during captures (CheckSafeInCapture; see orStreamCaptureMode). Return orSuccess unless a capture
// refuses the call.
inline orError_t CheckDeviceUncaptured(const char* function, int device) {
  return Capturing() ? Captures::Get().RefuseDevice(function, device) : orSuccess;
}
inline orError_t CheckSafeInCapture(const char* function) {
  return Capturing() ? Captures::Get().RefuseUnsafe(function) : orSuccess;
}

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_CAPTURE_H_
