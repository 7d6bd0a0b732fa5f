// SPDX-License-Identifier: BSD-3-Clause
//
// Implements events. Each event refers to a position in a stream. Recording an event with timing
// also queues a command that reads the clock.
#include <time.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "runtime/minimal/driver.h"
#include "runtime/minimal/handle_table.h"
#include "runtime/minimal/stream.h"

namespace openreg::minimal {
namespace {

constexpr size_t kMaxEvents = 1048576;

// The work that an event has captured. Recording the event again creates a new Record; a wait in
// progress keeps the Record that it has read.
struct Record {
  std::shared_ptr<Stream> stream;  // null if the event was never recorded
  uint64_t position = 0;
  std::shared_ptr<std::atomic<int64_t>> nanoseconds;  // null for an event without timing

  Stream::State state() const {
    return stream == nullptr ? Stream::State::kDone : stream->StateOf(position);
  }
};

class Event {
 public:
  Event(int device, bool timed) : device(device), timed(timed) {}

  Record record() {
    const std::lock_guard lock(mutex_);
    return record_;
  }
  void set_record(Record record) {
    const std::lock_guard lock(mutex_);
    record_ = std::move(record);
  }

  const int device;
  const bool timed;

 private:
  std::mutex mutex_;
  Record record_;
};

HandleTable<Event, orEvent_t, 0xe7e>& Events() {
  static auto& events = *new HandleTable<Event, orEvent_t, 0xe7e>;  // never destroyed, like Streams
  return events;
}

orError_t Find(const char* function, orEvent_t handle, std::shared_ptr<Event>* event) {
  *event = Events().Find(handle);
  return *event != nullptr
             ? orSuccess
             : Fail(orErrorInvalidHandle, "%s: %p is not a valid event; it may have been destroyed",
                    function, static_cast<void*>(handle));
}

// Returns the result of a query if the queried work is in this state.
orError_t Answer(const char* function, Stream::State state) {
  return state == Stream::State::kDone ? orSuccess
         : state == Stream::State::kPending
             ? orErrorNotReady
             : Fail(orErrorShutdown,
                    "%s: queued commands were dropped because the process is exiting", function);
}

int64_t Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

}  // namespace

void DestroyEvents(int device) {
  for (const auto& [handle, event] : Events().All()) {
    if (event->device == device) {
      Events().Remove(handle);
    }
  }
}

extern "C" {

OPENREG_API orError_t orEventCreate(orEvent_t* event) {
  return orEventCreateWithFlags(event, orEventDisableTiming);
}

OPENREG_API orError_t orEventCreateWithFlags(orEvent_t* event, unsigned flags) {
  RETURN_IF_ERROR(EnterWork("orEventCreate"));
  RETURN_IF_NULL(event);
  if (flags == orEventInterprocess) {
    return Fail(orErrorNotSupported,
                "orEventCreate: this driver does not support interprocess events");
  }
  if (flags > orEventEnableTiming) {
    return Fail(orErrorInvalidValue,
                "orEventCreate: flags are 0x%x: expected 0 or orEventEnableTiming (0x1)", flags);
  }
  *event = Events().Add(std::make_shared<Event>(thread_state.device, flags == orEventEnableTiming),
                        kMaxEvents);
  return *event != nullptr
             ? orSuccess
             : Fail(orErrorSystem,
                    "cannot create an event: the limit of %zu events has been reached; destroy "
                    "events that are no longer needed",
                    kMaxEvents);
}

OPENREG_API orError_t orEventDestroy(orEvent_t event) {
  BEGIN_RELEASE();
  return Events().Remove(event) != nullptr
             ? orSuccess
             : Fail(orErrorInvalidHandle,
                    "orEventDestroy: %p is not a valid event; it may have been destroyed",
                    static_cast<void*>(event));
}

OPENREG_API orError_t orEventGetDevice(orEvent_t handle, int* device) {
  std::shared_ptr<Event> event;
  RETURN_IF_ERROR(EnterQuery(__func__));
  RETURN_IF_ERROR(Find(__func__, handle, &event));
  RETURN_IF_NULL(device);
  *device = event->device;
  return orSuccess;
}

OPENREG_API orError_t orEventRecord(orEvent_t handle, orStream_t stream_handle) {
  std::shared_ptr<Event> event;
  Record record;
  RETURN_IF_ERROR(EnterWork(__func__));
  RETURN_IF_ERROR(Find(__func__, handle, &event));
  RETURN_IF_ERROR(Streams::Get().Find(__func__, stream_handle, &record.stream));
  if (event->device != record.stream->device()) {
    return Fail(
        orErrorInvalidDevice,
        "orEventRecord: the event belongs to device %d, the stream to device %d; create the "
        "event while the stream's device is current",
        event->device, record.stream->device());
  }
  if (event->timed) {
    record.nanoseconds = std::make_shared<std::atomic<int64_t>>(0);
    const auto read_clock = [time = record.nanoseconds](std::string*) {
      *time = Now();
      return orSuccess;
    };
    RETURN_IF_ERROR(record.stream->Queue(__func__, {.run = read_clock}, &record.position));
  } else {
    record.position = record.stream->last_position();
  }
  event->set_record(std::move(record));
  return orSuccess;
}

OPENREG_API orError_t orEventQuery(orEvent_t handle) {
  std::shared_ptr<Event> event;
  RETURN_IF_ERROR(EnterQuery(__func__));
  RETURN_IF_ERROR(Find(__func__, handle, &event));
  return Answer(__func__, event->record().state());
}

OPENREG_API orError_t orEventSynchronize(orEvent_t handle) {
  std::shared_ptr<Event> event;
  RETURN_IF_ERROR(EnterWork(__func__));
  RETURN_IF_ERROR(Find(__func__, handle, &event));
  const Record record = event->record();
  if (record.stream == nullptr) {
    return orSuccess;
  }
  RETURN_IF_ERROR(record.stream->Wait(__func__, record.position));
  return Report(record.stream->TakeFailure());
}

OPENREG_API orError_t orEventElapsedTime(float* milliseconds, orEvent_t start_handle,
                                         orEvent_t end_handle) {
  std::shared_ptr<Event> start, end;
  RETURN_IF_ERROR(EnterQuery(__func__));
  RETURN_IF_NULL(milliseconds);
  RETURN_IF_ERROR(Find(__func__, start_handle, &start));
  RETURN_IF_ERROR(Find(__func__, end_handle, &end));
  if (!start->timed || !end->timed) {
    return Fail(orErrorNotSupported,
                "%s: the %s event records no time: create it with orEventEnableTiming", __func__,
                start->timed ? "end" : "start");
  }
  const Record started = start->record();
  const Record ended = end->record();
  if (started.stream == nullptr || ended.stream == nullptr) {
    return Fail(orErrorInvalidValue, "%s: the %s event was never recorded: record it first",
                __func__, started.stream == nullptr ? "start" : "end");
  }
  if (start->device != end->device) {
    return Fail(orErrorInvalidValue,
                "%s: the start event belongs to device %d and the end event to device %d: both "
                "must belong to the same device",
                __func__, start->device, end->device);
  }
  for (const Record* record : {&started, &ended}) {
    if (const Stream::State state = record->state(); state != Stream::State::kDone) {
      return Answer(__func__, state);
    }
  }
  *milliseconds =
      static_cast<float>(static_cast<double>(*ended.nanoseconds - *started.nanoseconds) / 1e6);
  return orSuccess;
}

OPENREG_API orError_t orStreamWaitEvent(orStream_t stream_handle, orEvent_t event_handle,
                                        unsigned flags) {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<Event> event;
  RETURN_IF_ERROR(EnterWork(__func__));
  RETURN_IF_ERROR(Streams::Get().Find(__func__, stream_handle, &stream));
  RETURN_IF_ERROR(Find(__func__, event_handle, &event));
  if (flags != 0) {
    return Fail(orErrorInvalidValue, "%s: flags are 0x%x: expected 0", __func__, flags);
  }
  const Record record = event->record();
  if (record.state() == Stream::State::kDone || record.stream == stream) {
    return orSuccess;
  }
  return stream->Queue(__func__, {.source = record.stream, .source_position = record.position});
}

}  // extern "C"
}  // namespace openreg::minimal
