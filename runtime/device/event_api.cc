// SPDX-License-Identifier: BSD-3-Clause
//
// Implements the C functions for events.
#include <memory>

#include "runtime/device/activity.h"
#include "runtime/device/capture.h"
#include "runtime/device/error.h"
#include "runtime/device/event.h"
#include "runtime/device/openreg.h"
#include "runtime/device/process.h"
#include "runtime/device/shared_page.h"
#include "runtime/device/stream.h"
#include "runtime/device/submission.h"
#include "runtime/device/thread.h"

namespace openreg::device {
namespace {

// Returns the result of a query about incomplete work. The caller must have read `stopped` before
// the query. If it is true, the exit of the process has dropped the work, which will never be done.
orError_t NotReady(const char* function, bool stopped) {
  return stopped ? Fail(orErrorShutdown,
                        "%s: queued commands were dropped because the process is exiting", function)
                 : orErrorNotReady;
}

}  // namespace

extern "C" {

OPENREG_API orError_t orEventCreate(orEvent_t* event) {
  return orEventCreateWithFlags(event, orEventDisableTiming);
}

OPENREG_API orError_t orEventCreateWithFlags(orEvent_t* event, unsigned flags) {
  if (const orError_t error = EnterDevice("orEventCreate"); error != orSuccess) {
    return error;
  }
  if (event == nullptr) {
    return Fail(orErrorInvalidValue,
                "orEventCreate: event is null: pass the address of an orEvent_t");
  }
  constexpr unsigned kFlags = orEventEnableTiming | orEventInterprocess;
  if ((flags & ~kFlags) != 0 || flags == kFlags) {
    return Fail(orErrorInvalidValue,
                "orEventCreate: flags are 0x%x: expected orEventEnableTiming (0x1) or "
                "orEventInterprocess (0x2); an interprocess event records no time",
                flags);
  }
  return Events::Get().Create(thread_state.device, flags, event);
}

OPENREG_API orError_t orEventDestroy(orEvent_t event) {
  if (InForkedChild()) {
    return orSuccess;
  }
  if (const orError_t error = EnterRelease("orEventDestroy"); error != orSuccess) {
    return error;
  }
  return Events::Get().Destroy(event);
}

OPENREG_API orError_t orEventGetDevice(orEvent_t handle, int* device) {
  Event* event;
  if (const orError_t error = EnterQuery("orEventGetDevice"); error != orSuccess) {
    return error;
  }
  if (const orError_t error = FindEvent("orEventGetDevice", handle, &event); error != orSuccess) {
    return error;
  }
  if (device == nullptr) {
    return Fail(orErrorInvalidValue,
                "orEventGetDevice: device is null: pass the address of an int");
  }
  *device = event->device();
  return orSuccess;
}

OPENREG_API orError_t orEventRecord(orEvent_t handle, orStream_t stream_handle) {
  Event* event;
  Submission submission("orEventRecord");
  if (const orError_t error = submission.Enter(stream_handle); error != orSuccess) {
    return error;
  }
  if (const orError_t error = FindEvent("orEventRecord", handle, &event); error != orSuccess) {
    return error;
  }
  if (event->device() != submission.stream().device()) [[unlikely]] {
    return Fail(
        orErrorInvalidDevice,
        "orEventRecord: the event belongs to device %d, the stream to device %d; create the event "
        "while the stream's device is current",
        event->device(), submission.stream().device());
  }
  CallActivity call("orEventRecord");
  call.SetStream(submission.stream().device(), submission.stream().index);
  call.SetObject(handle);
  return submission.Record(event, reinterpret_cast<uint64_t>(handle));
}

OPENREG_API orError_t orEventQuery(orEvent_t handle) {
  Event* event;
  if (const orError_t error = EnterQuery("orEventQuery"); error != orSuccess) {
    return error;
  }
  if (const orError_t error = FindEvent("orEventQuery", handle, &event); error != orSuccess) {
    return error;
  }
  if (event->scope() == Event::Scope::kImported) [[unlikely]] {
    std::shared_ptr<MappedPage> page;
    MarkWord word;
    if (const orError_t error = event->ReadImport("orEventQuery", &page, &word);
        error != orSuccess) {
      return error;
    }
    const MappedPage::State state = page->Query(word);
    return state == MappedPage::State::kReached   ? orSuccess
           : state == MappedPage::State::kPending ? orErrorNotReady
                                                  : page->FailEnded("orEventQuery");
  }
  const Event::Capture capture = event->capture();
  if (capture.captured()) [[unlikely]] {
    return Captures::Get().RefuseEvent("orEventQuery", reinterpret_cast<uint64_t>(handle));
  }
  const bool stopped = Stopped();
  return capture.complete() || event->ReachedByOthers() ? orSuccess
                                                        : NotReady("orEventQuery", stopped);
}

OPENREG_API orError_t orEventSynchronize(orEvent_t handle) {
  Event* event;
  if (const orError_t error = EnterDevice("orEventSynchronize"); error != orSuccess) {
    return error;
  }
  if (const orError_t error = FindEvent("orEventSynchronize", handle, &event); error != orSuccess) {
    return error;
  }
  CallActivity call("orEventSynchronize", CallActivity::kWaits);
  call.SetObject(handle);
  const auto fail_at_exit = [] {
    return Fail(orErrorShutdown,
                "orEventSynchronize: queued commands were dropped because the process is exiting");
  };
  if (event->scope() == Event::Scope::kImported) [[unlikely]] {
    std::shared_ptr<MappedPage> page;
    MarkWord word;
    if (const orError_t error = event->ReadImport("orEventSynchronize", &page, &word);
        error != orSuccess) {
      return error;
    }
    const MappedPage::State state = page->Wait(word);
    return state == MappedPage::State::kReached ? orSuccess
           : state == MappedPage::State::kEnded ? page->FailEnded("orEventSynchronize")
                                                : fail_at_exit();
  }
  const Event::Capture capture = event->capture();
  if (!capture.recorded()) {
    return orSuccess;
  }
  if (capture.captured()) [[unlikely]] {
    return Captures::Get().RefuseEvent("orEventSynchronize", reinterpret_cast<uint64_t>(handle));
  }
  if (!capture.stream->WaitFor(capture.position)) {
    return fail_at_exit();
  }
  return capture.current() ? ReportKernelError(capture.stream->sink()) : orSuccess;
}

OPENREG_API orError_t orEventElapsedTime(float* milliseconds, orEvent_t start_handle,
                                         orEvent_t end_handle) {
  Event *start, *end;
  if (const orError_t error = EnterQuery("orEventElapsedTime"); error != orSuccess) {
    return error;
  }
  if (milliseconds == nullptr) {
    return Fail(orErrorInvalidValue,
                "orEventElapsedTime: milliseconds is null: pass the address of a float");
  }
  if (const orError_t error = FindEvent("orEventElapsedTime", start_handle, &start);
      error != orSuccess) {
    return error;
  }
  if (const orError_t error = FindEvent("orEventElapsedTime", end_handle, &end);
      error != orSuccess) {
    return error;
  }
  const Event::Capture started = start->capture();
  const Event::Capture ended = end->capture();
  for (const Event* event : {start, end}) {
    const char* which = event == start ? "start" : "end";
    if (!event->timed()) {
      return Fail(
          orErrorNotSupported,
          "orEventElapsedTime: the %s event records no time: create it with orEventEnableTiming",
          which);
    }
    const Event::Capture& capture = event == start ? started : ended;
    if (!capture.recorded()) {
      return Fail(orErrorInvalidValue,
                  "orEventElapsedTime: the %s event was never recorded: record it first", which);
    }
    if (capture.captured()) {
      return Captures::Get().RefuseEvent(
          "orEventElapsedTime",
          reinterpret_cast<uint64_t>(event == start ? start_handle : end_handle));
    }
  }
  if (start->device() != end->device()) {
    return Fail(orErrorInvalidValue,
                "orEventElapsedTime: the start event belongs to device %d and the end event to "
                "device %d: both must belong to the same device",
                start->device(), end->device());
  }
  const bool stopped = Stopped();
  if (!started.complete() || !ended.complete()) {
    return NotReady("orEventElapsedTime", stopped);
  }
  *milliseconds = static_cast<float>(static_cast<double>(end->time() - start->time()) / 1e6);
  return orSuccess;
}

OPENREG_API orError_t orStreamWaitEvent(orStream_t stream_handle, orEvent_t event_handle,
                                        unsigned flags) {
  Event* event;
  Submission submission("orStreamWaitEvent");
  if (const orError_t error = submission.Enter(stream_handle); error != orSuccess) {
    return error;
  }
  if (flags != 0) {
    return Fail(orErrorInvalidValue, "orStreamWaitEvent: flags are 0x%x: expected 0", flags);
  }
  if (const orError_t error = FindEvent("orStreamWaitEvent", event_handle, &event);
      error != orSuccess) {
    return error;
  }
  CallActivity call("orStreamWaitEvent");
  call.SetStream(submission.stream().device(), submission.stream().index);
  call.SetObject(event_handle);
  return submission.Wait(event, reinterpret_cast<uint64_t>(event_handle));
}

}  // extern "C"
}  // namespace openreg::device
