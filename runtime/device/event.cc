// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/event.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/device/error.h"
#include "runtime/device/graph.h"
#include "runtime/device/process.h"

namespace openreg::device {
namespace {

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

orError_t Event::Record(Stream* stream, uint64_t expected) {
  if (scope() != Scope::kProcess) [[unlikely]] {
    return RecordShared(stream, expected);
  }
  if (!timed()) {
    Note(stream, stream->tail());
    return orSuccess;
  }
  uint64_t record;
  {
    std::lock_guard lock(lock_);
    record = ++record_;  // an older record that is still queued can stamp no more
    if (stream->Idle()) {
      time_.store(Now(), std::memory_order_release);
      Note(stream, stream->tail());
      return orSuccess;
    }
  }
  uint64_t position;
  const orError_t error = stream->Enqueue(expected, &position, [&](Command& command) {
    command.kind = Command::kTimestamp;
    command.place = Command::kAnywhere;
    command.name = nullptr;
    command.event = this;
    command.position = record;
    command.sink = nullptr;
  });
  if (error == orSuccess) {
    Note(stream, position);
  }
  return error;
}

orError_t Event::RecordShared(Stream* stream, uint64_t expected) {
  if (scope() == Scope::kImported) {
    return Fail(orErrorNotSupported,
                "orEventRecord: the event was opened from a handle; only the process that made it "
                "can record it");
  }
  std::shared_ptr<Peer> own;
  MarkWord word;
  uint64_t position;
  if (const orError_t error = Peer::Own("orEventRecord", &own); error != orSuccess) {
    return error;
  }
  if (const orError_t error = Mark(stream, expected, &word, &position); error != orSuccess) {
    return error;
  }
  // In this order, as ReachedByOthers() is asked about what was noted.
  own->board().slot(serial()).capture.store(word, std::memory_order_release);
  Note(stream, position);
  return orSuccess;
}

bool Event::ReachedByOthers() const {
  std::shared_ptr<Peer> own;
  if (scope() != Scope::kShared || Peer::Own("orEventQuery", &own) != orSuccess) {
    return false;
  }
  Board& board = own->board();
  return board.Reached(board.slot(serial()).capture.load(std::memory_order_acquire));
}

orError_t Event::ReadImport(const char* function, std::shared_ptr<Peer>* peer, MarkWord* word) {
  {
    std::lock_guard lock(lock_);
    *peer = peer_;
  }
  if (*peer == nullptr || !(*peer)->Read(serial(), word)) {
    return Fail(orErrorInvalidHandle, "%s: the process that made the event has destroyed it",
                function);
  }
  return orSuccess;
}

uint64_t Event::NewRecord() {
  std::lock_guard lock(lock_);
  return ++record_;
}

void Event::NoteCaptured() {
  (void)NewRecord();  // an older record that is still queued can stamp no more
  capture_.store(kCaptured, std::memory_order_release);
}

void Event::Stamp(uint64_t record) {
  std::lock_guard lock(lock_);
  if (record == record_) {
    time_.store(Now(), std::memory_order_release);
  }
}

Events& Events::Get() {
  static Events& events = *new Events;
  return events;
}

Event* Events::Take(int device) {
  Event* event = table_.Take();
  if (event == nullptr) {
    (void)Fail(orErrorSystem, "an event can not be created: %u exist already; destroy some",
               table_.kCapacity);
    return nullptr;
  }
  event->device_.store(device, std::memory_order_relaxed);
  event->timed_.store(false, std::memory_order_relaxed);
  event->scope_.store(Event::Scope::kProcess, std::memory_order_relaxed);
  event->capture_.store(0, std::memory_order_relaxed);
  return event;
}

orError_t Events::Create(int device, unsigned flags, orEvent_t* handle) {
  uint64_t serial = 0;
  if ((flags & orEventInterprocess) != 0) {
    if (const orError_t error = TakeSlot("orEventCreate", {}, &serial); error != orSuccess) {
      return error;
    }
  }
  Event* event = Take(device);
  if (event == nullptr) {
    if (serial != 0) {
      GiveSlot(serial);
    }
    return orErrorSystem;
  }
  event->timed_.store((flags & orEventEnableTiming) != 0, std::memory_order_relaxed);
  if (serial != 0) {
    event->serial_.store(serial, std::memory_order_relaxed);
    event->scope_.store(Event::Scope::kShared, std::memory_order_relaxed);
  }
  *handle = reinterpret_cast<orEvent_t>(table_.Publish(event));
  return orSuccess;
}

orError_t Events::CreateImported(int device, std::shared_ptr<Peer> peer, uint64_t serial,
                                 orEvent_t* handle) {
  Event* event = Take(device);
  if (event == nullptr) {
    return orErrorSystem;
  }
  {
    std::lock_guard lock(event->lock_);
    event->peer_ = std::move(peer);
  }
  event->serial_.store(serial, std::memory_order_relaxed);
  event->scope_.store(Event::Scope::kImported, std::memory_order_relaxed);
  *handle = reinterpret_cast<orEvent_t>(table_.Publish(event));
  return orSuccess;
}

orError_t Events::Destroy(orEvent_t handle) {
  Event* event = Find(handle);
  if (event == nullptr || !table_.Retire(event, reinterpret_cast<uint64_t>(handle))) {
    return Fail(orErrorInvalidHandle, "orEventDestroy: %p is not an event, or it was destroyed",
                static_cast<void*>(handle));
  }
  std::shared_ptr<Peer> peer;  // unmapped, if nobody else has it, without the lock
  {
    std::lock_guard lock(event->lock_);
    ++event->record_;
    peer = std::move(event->peer_);
  }
  if (event->scope() == Event::Scope::kShared) {
    GiveSlot(event->serial());
  }
  table_.Recycle(event);
  return orSuccess;
}

void Events::DestroyAll(int device) {
  for (uint32_t index = 0; index < table_.size(); ++index) {
    const Event* event = table_.At(index);
    const uint64_t handle = event->handle.load(std::memory_order_acquire);
    if (handle != 0 && event->device() == device) {
      (void)Destroy(
          reinterpret_cast<orEvent_t>(handle));  // fails only if another thread was faster
    }
  }
}

orError_t FindEvent(const char* function, orEvent_t handle, Event** event) {
  *event = Events::Get().Find(handle);
  if (*event == nullptr) [[unlikely]] {
    return Fail(orErrorInvalidHandle, "%s: %p is not an event, or it was destroyed", function,
                static_cast<void*>(handle));
  }
  return orSuccess;
}

namespace {

// Of a query, of work that is not complete. `stopped` was read before that was: what the exit of
// the process has dropped is never ready.
orError_t NotReady(const char* function, bool stopped) {
  return stopped ? Fail(orErrorShutdown, "%s: queued commands were dropped: the process exits",
                        function)
                 : orErrorNotReady;
}

}  // namespace
}  // namespace openreg::device

using openreg::device::Captures;
using openreg::device::Capturing;
using openreg::device::EnterDevice;
using openreg::device::EnterQuery;
using openreg::device::EnterRelease;
using openreg::device::EnterStream;
using openreg::device::Event;
using openreg::device::Events;
using openreg::device::Fail;
using openreg::device::FindEvent;
using openreg::device::kAllowedInCapture;
using openreg::device::LeftBehind;
using openreg::device::MarkWord;
using openreg::device::NotReady;
using openreg::device::Peer;
using openreg::device::ReportKernelError;
using openreg::device::Stopped;
using openreg::device::Stream;
using openreg::device::thread_state;

orError_t orEventCreate(orEvent_t* event) {
  return orEventCreateWithFlags(event, orEventDisableTiming);
}

orError_t orEventCreateWithFlags(orEvent_t* event, unsigned flags) {
  if (const orError_t error = EnterDevice("orEventCreate"); error != orSuccess) {
    return error;
  }
  if (event == nullptr) {
    return Fail(orErrorInvalidValue, "orEventCreate: event is null: where should the handle go?");
  }
  constexpr unsigned kFlags = orEventEnableTiming | orEventInterprocess;
  if ((flags & ~kFlags) != 0 || flags == kFlags) {
    return Fail(orErrorInvalidValue,
                "orEventCreate: flags are 0x%x: expected orEventEnableTiming (0x1) or "
                "orEventInterprocess (0x2); an event between processes keeps no time",
                flags);
  }
  return Events::Get().Create(thread_state.device, flags, event);
}

orError_t orEventDestroy(orEvent_t event) {
  if (LeftBehind()) {
    return orSuccess;
  }
  if (const orError_t error = EnterRelease("orEventDestroy"); error != orSuccess) {
    return error;
  }
  return Events::Get().Destroy(event);
}

orError_t orEventGetDevice(orEvent_t handle, int* device) {
  Event* event;
  if (const orError_t error = EnterQuery("orEventGetDevice"); error != orSuccess) {
    return error;
  }
  if (const orError_t error = FindEvent("orEventGetDevice", handle, &event); error != orSuccess) {
    return error;
  }
  if (device == nullptr) {
    return Fail(orErrorInvalidValue, "orEventGetDevice: device is null");
  }
  *device = event->device();
  return orSuccess;
}

orError_t orEventRecord(orEvent_t handle, orStream_t stream_handle) {
  Event* event;
  Stream* stream;
  uint64_t expected;
  if (const orError_t error =
          EnterStream("orEventRecord", stream_handle, kAllowedInCapture, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  if (const orError_t error = FindEvent("orEventRecord", handle, &event); error != orSuccess) {
    return error;
  }
  if (event->device() != stream->device()) [[unlikely]] {
    return Fail(
        orErrorInvalidDevice,
        "orEventRecord: the event belongs to device %d, the stream to device %d; create the event "
        "while the stream's device is current",
        event->device(), stream->device());
  }
  if (Capturing()) [[unlikely]] {
    if (const auto captured = Captures::Get().Record("orEventRecord", event,
                                                     reinterpret_cast<uint64_t>(handle), stream)) {
      return *captured;
    }
  }
  return event->Record(stream, expected);
}

orError_t orEventQuery(orEvent_t handle) {
  Event* event;
  if (const orError_t error = EnterQuery("orEventQuery"); error != orSuccess) {
    return error;
  }
  if (const orError_t error = FindEvent("orEventQuery", handle, &event); error != orSuccess) {
    return error;
  }
  if (event->scope() == Event::Scope::kImported) [[unlikely]] {
    std::shared_ptr<Peer> peer;
    MarkWord word;
    if (const orError_t error = event->ReadImport("orEventQuery", &peer, &word);
        error != orSuccess) {
      return error;
    }
    const Peer::State state = peer->Look(word);
    return state == Peer::State::kReached   ? orSuccess
           : state == Peer::State::kPending ? orErrorNotReady
                                            : peer->FailEnded("orEventQuery");
  }
  const Event::Capture capture = event->capture();
  if (capture.captured()) [[unlikely]] {
    return Captures::Get().RefuseEvent("orEventQuery", reinterpret_cast<uint64_t>(handle));
  }
  const bool stopped = Stopped();
  return capture.complete() || event->ReachedByOthers() ? orSuccess
                                                        : NotReady("orEventQuery", stopped);
}

orError_t orEventSynchronize(orEvent_t handle) {
  Event* event;
  if (const orError_t error = EnterDevice("orEventSynchronize"); error != orSuccess) {
    return error;
  }
  if (const orError_t error = FindEvent("orEventSynchronize", handle, &event); error != orSuccess) {
    return error;
  }
  const auto fail_at_exit = [] {
    return Fail(orErrorShutdown,
                "orEventSynchronize: queued commands were dropped: the process exits");
  };
  if (event->scope() == Event::Scope::kImported) [[unlikely]] {
    std::shared_ptr<Peer> peer;
    MarkWord word;
    if (const orError_t error = event->ReadImport("orEventSynchronize", &peer, &word);
        error != orSuccess) {
      return error;
    }
    const Peer::State state = peer->Wait(word);
    return state == Peer::State::kReached ? orSuccess
           : state == Peer::State::kEnded ? peer->FailEnded("orEventSynchronize")
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

orError_t orEventElapsedTime(float* milliseconds, orEvent_t start_handle, orEvent_t end_handle) {
  Event *start, *end;
  if (const orError_t error = EnterQuery("orEventElapsedTime"); error != orSuccess) {
    return error;
  }
  if (milliseconds == nullptr) {
    return Fail(orErrorInvalidValue, "orEventElapsedTime: milliseconds is null");
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
          "orEventElapsedTime: the %s event keeps no time; create it with orEventEnableTiming",
          which);
    }
    const Event::Capture& capture = event == start ? started : ended;
    if (!capture.recorded()) {
      return Fail(orErrorInvalidValue, "orEventElapsedTime: the %s event was never recorded",
                  which);
    }
    if (capture.captured()) {
      return Captures::Get().RefuseEvent(
          "orEventElapsedTime",
          reinterpret_cast<uint64_t>(event == start ? start_handle : end_handle));
    }
  }
  if (start->device() != end->device()) {
    return Fail(orErrorInvalidValue,
                "orEventElapsedTime: the start event is of device %d and the end event of device "
                "%d, but time is measured on one device",
                start->device(), end->device());
  }
  const bool stopped = Stopped();
  if (!started.complete() || !ended.complete()) {
    return NotReady("orEventElapsedTime", stopped);
  }
  *milliseconds = static_cast<float>(static_cast<double>(end->time() - start->time()) / 1e6);
  return orSuccess;
}

orError_t orStreamWaitEvent(orStream_t stream_handle, orEvent_t event_handle, unsigned flags) {
  Stream* stream;
  uint64_t expected;
  Event* event;
  if (const orError_t error =
          EnterStream("orStreamWaitEvent", stream_handle, kAllowedInCapture, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  if (flags != 0) {
    return Fail(orErrorInvalidValue, "orStreamWaitEvent: flags are 0x%x: there are none, pass 0",
                flags);
  }
  if (const orError_t error = FindEvent("orStreamWaitEvent", event_handle, &event);
      error != orSuccess) {
    return error;
  }
  const Event::Capture capture = event->capture();
  if (Capturing() || capture.captured()) [[unlikely]] {
    if (const auto captured =
            Captures::Get().Wait("orStreamWaitEvent", stream, event,
                                 reinterpret_cast<uint64_t>(event_handle), capture)) {
      return *captured;
    }
  }
  if (event->scope() == Event::Scope::kImported) [[unlikely]] {
    std::shared_ptr<Peer> peer;
    MarkWord word;
    if (const orError_t error = event->ReadImport("orStreamWaitEvent", &peer, &word);
        error != orSuccess) {
      return error;
    }
    return Peer::Queue(peer, word, stream, expected);
  }
  if (capture.stream == stream || capture.complete()) {
    return orSuccess;  // in order anyway, or done
  }
  return stream->EnqueueWait(expected, capture.stream, capture.position);
}
