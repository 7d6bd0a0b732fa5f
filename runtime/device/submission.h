// SPDX-License-Identifier: BSD-3-Clause
//
// submission.h - the only way to submit work to a stream.
//
// A Submission represents one API call on a stream. Some of its functions submit work to the
// stream, and QueueUncaptured returns a queue for this purpose. All of these functions first
// consult the stream's capture. While the stream is being captured, the work becomes part of the
// graph, or the call is refused. Nothing else can create a StreamQueue, and a stream has no other
// functions that queue work. An entry point therefore cannot bypass a capture.
//
// A Submission belongs to the calling thread for the duration of the call.
#ifndef RUNTIME_DEVICE_SUBMISSION_H_
#define RUNTIME_DEVICE_SUBMISSION_H_

#include <cstdint>
#include <cstring>
#include <optional>

#include "runtime/device/capture.h"
#include "runtime/device/event.h"
#include "runtime/device/executor.h"
#include "runtime/device/openreg.h"
#include "runtime/device/process.h"
#include "runtime/device/stream.h"
#include "runtime/device/stream_registry.h"
#include "runtime/device/work.h"

namespace openreg::device {

// The reason why a captured stream refuses a call whose result would depend on work that does not
// run.
inline constexpr char kNothingRuns[] =
    "so nothing runs that could be waited for: do it before or after the capture";

class Submission {
 public:
  // Creates the submission of a call. `function` is the name of the API call, for error messages.
  explicit Submission(const char* function) : function_(function) {}

  // Begins the call: checks the state of the process and looks up the stream.
  [[gnu::always_inline]] orError_t Enter(orStream_t handle) {
    const orError_t error = EnterDevice(function_);
    return error == orSuccess ? Find(handle) : error;
  }
  // Begins a call that has already checked the state of the process. Only looks up the stream.
  [[gnu::always_inline]] orError_t Find(orStream_t handle) {
    return FindStream(function_, handle, &queue_.stream_, &queue_.expected_);
  }

  const char* function() const { return function_; }
  const Stream& stream() const { return *queue_.stream(); }

  // Submits a kernel, a copy, a fill or a host function. With launch blocking, the call waits until
  // the work is done, except for a host function. It then returns the error of a kernel. An error
  // of a copy or fill remains with the stream.
  orError_t Submit(const Work& work) const;

  // Record the event, or wait for it.
  orError_t Record(Event* event, uint64_t event_handle) const;
  orError_t Wait(Event* event, uint64_t event_handle) const;

  // Returns the queue for a call that a capture cannot record. Fails if the stream is being
  // captured. `because` completes the sentence "orX: stream S is being captured, ".
  orError_t QueueUncaptured(const char* because, StreamQueue* queue) const {
    if (Capturing()) [[unlikely]] {
      if (const orError_t refused = Captures::Get().RefuseStream(function_, &stream(), because);
          refused != orSuccess) {
        return refused;
      }
    }
    *queue = queue_;
    return orSuccess;
  }

 private:
  // Queues the work. `call` is not null if the work must be recorded.
  orError_t Enqueue(const Work& work, const CallActivity* call, ErrorSink* sink,
                    uint64_t* position) const;
  bool TryInline(const Work& work, ErrorSink* sink) const {
    return queue_.TryInline(work.kernel, work.arguments, work.size, work.name, sink);
  }
  bool TryInlineRecorded(const Work& work, const CallActivity& call, ErrorSink* sink) const;
  // Returns the activity record for a piece of work. It does not contain times yet.
  [[gnu::cold, gnu::noinline]] static orActivity RecordOf(const Work& work,
                                                          const CallActivity& call);

  // Implements Submit for captures, launch blocking, injected faults, tracing and synchronous work.
  // The arguments are passed by value, so that the fast path never uses the addresses of the
  // objects and they stay in registers.
  [[gnu::noinline]] static orError_t SubmitSlowly(Submission submission, Work work);
  // Adds the work to the stream's capture. Returns nullopt if the stream is not being captured.
  std::optional<orError_t> AddToCapture(Work work) const;
  orError_t SubmitAndWait(Work work, const CallActivity* call, bool may_inline) const;
  [[gnu::cold, gnu::noinline]] orError_t WaitForImported(Event* event) const;

  const char* const function_;
  StreamQueue queue_;
};

[[gnu::always_inline]] inline orError_t Submission::Enqueue(const Work& work,
                                                            const CallActivity* call,
                                                            ErrorSink* sink,
                                                            uint64_t* position) const {
  if (work.MayHaveTeam()) {
    if (const orError_t error = Executor::Get().Start(); error != orSuccess) {
      return error;
    }
  }
  return queue_.Enqueue(position, [&](Command& command) {
    command.kind = work.kind;
    command.place = work.place;
    command.name = work.name;
    command.sink = sink;
    if (call != nullptr) [[unlikely]] {
      queue_.stream()->Record(&command, RecordOf(work, *call));
    }
    if (work.kind == Command::kHostFunction) {
      command.function = work.function;
      command.data = work.data;
      return;
    }
    command.kernel = work.kernel;
    if (work.MayHaveTeam()) {
      command.work_before = queue_.stream()->AddWork(work.work_ns);
    }
    if (work.size != 0) {
      std::memcpy(command.arguments, work.arguments, work.size);
    }
  });
}

[[gnu::always_inline]] inline orError_t Submission::Submit(const Work& work) const {
  constexpr uint32_t kSlow = kCapturing | kBlocking | kInjecting | kTracing;
  if ((mode.load(std::memory_order_relaxed) & kSlow) != 0 || work.synchronous) [[unlikely]] {
    return SubmitSlowly(*this, work);
  }
  ErrorSink* const sink = &queue_.stream()->sink();
  if (work.may_inline && TryInline(work, sink)) {
    return orSuccess;
  }
  return Enqueue(work, nullptr, sink, nullptr);
}

inline orError_t Submission::Record(Event* event, uint64_t event_handle) const {
  if (Capturing()) [[unlikely]] {
    if (const auto captured = Captures::Get().Record(function_, event, event_handle, &stream())) {
      return *captured;
    }
  }
  return event->Record(queue_);
}

inline orError_t Submission::Wait(Event* event, uint64_t event_handle) const {
  const Event::Capture capture = event->capture();
  if (Capturing() || capture.captured()) [[unlikely]] {
    if (const auto captured =
            Captures::Get().Wait(function_, queue_.stream(), event, event_handle, capture)) {
      return *captured;
    }
  }
  if (event->scope() == Event::Scope::kImported) [[unlikely]] {
    return WaitForImported(event);
  }
  if (capture.stream == queue_.stream() || capture.complete()) {
    return orSuccess;  // the work is on the same stream or already done
  }
  return queue_.EnqueueWait(capture.stream, capture.position);
}

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_SUBMISSION_H_
