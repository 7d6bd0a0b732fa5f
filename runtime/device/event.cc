// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/event.h"

#include <chrono>
#include <mutex>
#include <utility>

#include "runtime/device/error.h"

namespace openreg::device {
namespace {

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

orError_t Event::RecordTimed(const StreamQueue& queue) {
  Stream* const stream = queue.stream();
  uint64_t record;
  {
    std::lock_guard lock(lock_);
    record = ++record_;  // queued commands of older records no longer stamp the event
    if (stream->Idle()) {
      time_.store(Now(), std::memory_order_release);
      Note(stream, stream->tail());
      return orSuccess;
    }
  }
  uint64_t position;
  const orError_t error = queue.Enqueue(&position, [&](Command& command) {
    command.kind = Command::kStep;
    command.place = Command::kAnywhere;
    command.name = nullptr;
    command.step = [](Stream*, Command* reached, bool) {
      static_cast<Event*>(reached->data)->Stamp(reached->position);
      return true;
    };
    command.data = this;
    command.position = record;
    command.sink = nullptr;
  });
  if (error == orSuccess) {
    Note(stream, position);
  }
  return error;
}

orError_t Event::RecordShared(const StreamQueue& queue) {
  if (scope() == Scope::kImported) {
    return Fail(orErrorNotSupported,
                "orEventRecord: the event was opened from a handle; only the process that created "
                "it can record it");
  }
  std::shared_ptr<MappedPage> own;
  MarkWord word;
  uint64_t position;
  if (const orError_t error = MappedPage::Own("orEventRecord", &own); error != orSuccess) {
    return error;
  }
  if (const orError_t error = Mark(queue, &word, &position); error != orSuccess) {
    return error;
  }
  // Store the mark first, because ReachedByOthers() reads it when it is called for the position
  // that Note() stores.
  own->page().slot(serial()).capture.store(word, std::memory_order_release);
  Note(queue.stream(), position);
  return orSuccess;
}

bool Event::ReachedByOthers() const {
  std::shared_ptr<MappedPage> own;
  if (scope() != Scope::kShared || MappedPage::Own("orEventQuery", &own) != orSuccess) {
    return false;
  }
  SharedPage& page = own->page();
  return page.Reached(page.slot(serial()).capture.load(std::memory_order_acquire));
}

orError_t Event::ReadImport(const char* function, std::shared_ptr<MappedPage>* page,
                            MarkWord* word) {
  {
    std::lock_guard lock(lock_);
    *page = page_;
  }
  if (*page == nullptr || !(*page)->Read(serial(), word)) {
    return Fail(orErrorInvalidHandle, "%s: the process that created the event has destroyed it",
                function);
  }
  return orSuccess;
}

uint64_t Event::NewRecord() {
  std::lock_guard lock(lock_);
  return ++record_;
}

void Event::NoteCaptured() {
  (void)NewRecord();  // queued commands of older records no longer stamp the event
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
    (void)table_.FailTake("an event", "events");
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
    if (const orError_t error = AllocateSlot("orEventCreate", {}, &serial); error != orSuccess) {
      return error;
    }
  }
  Event* event = Take(device);
  if (event == nullptr) {
    if (serial != 0) {
      FreeSlot(serial);
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

orError_t Events::CreateImported(int device, std::shared_ptr<MappedPage> page, uint64_t serial,
                                 orEvent_t* handle) {
  Event* event = Take(device);
  if (event == nullptr) {
    return orErrorSystem;
  }
  {
    std::lock_guard lock(event->lock_);
    event->page_ = std::move(page);
  }
  event->serial_.store(serial, std::memory_order_relaxed);
  event->scope_.store(Event::Scope::kImported, std::memory_order_relaxed);
  *handle = reinterpret_cast<orEvent_t>(table_.Publish(event));
  return orSuccess;
}

orError_t Events::Destroy(orEvent_t handle) {
  Event* event = Find(handle);
  if (event == nullptr || !table_.Retire(event, reinterpret_cast<uint64_t>(handle))) {
    return Fail(orErrorInvalidHandle,
                "orEventDestroy: %p is not a valid event; it may have been destroyed",
                static_cast<void*>(handle));
  }
  std::shared_ptr<MappedPage>
      page;  // unmapped after the lock is released if this is the last owner
  {
    std::lock_guard lock(event->lock_);
    ++event->record_;
    page = std::move(event->page_);
  }
  if (event->scope() == Event::Scope::kShared) {
    FreeSlot(event->serial());
  }
  table_.Recycle(event);
  return orSuccess;
}

void Events::DestroyAll(int device) {
  for (uint32_t index = 0; index < table_.size(); ++index) {
    const Event* event = table_.At(index);
    const uint64_t handle = event->handle.load(std::memory_order_acquire);
    if (handle != 0 && event->device() == device) {
      // This fails only if another thread has already destroyed the event.
      (void)Destroy(reinterpret_cast<orEvent_t>(handle));
    }
  }
}

orError_t FindEvent(const char* function, orEvent_t handle, Event** event) {
  *event = Events::Get().Find(handle);
  if (*event == nullptr) [[unlikely]] {
    return Fail(orErrorInvalidHandle, "%s: %p is not a valid event; it may have been destroyed",
                function, static_cast<void*>(handle));
  }
  return orSuccess;
}

}  // namespace openreg::device
