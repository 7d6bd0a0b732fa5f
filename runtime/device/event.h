// SPDX-License-Identifier: BSD-3-Clause
//
// event.h - events. Each event marks a point in a stream's queue.
//
// Recording an event without timing queues nothing. It stores the stream and the number of commands
// queued so far in one word. The event is complete when that many commands are done. A waiter reads
// the word only once, so recording the event again does not change a wait that is in progress. The
// word remains valid after the stream is destroyed, because positions are never reset and a
// destroyed stream still runs its remaining commands.
//
// An event with timing also stores the time: immediately if the stream is idle, otherwise through a
// command that is part of the captured work.
//
// An interprocess event also stores a mark on its process's shared page (shared_page.h), where
// other processes read it. An imported event refers only to a slot on the other process's page.
//
// Events are allocated in a table and never freed. Any thread may call any function.
#ifndef RUNTIME_DEVICE_EVENT_H_
#define RUNTIME_DEVICE_EVENT_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "runtime/device/handle.h"
#include "runtime/device/openreg.h"
#include "runtime/device/shared_page.h"
#include "runtime/device/stream.h"
#include "runtime/device/stream_registry.h"
#include "runtime/sync/spin_lock.h"

namespace openreg::device {

class alignas(64) Event : public HandleSlot {
 public:
  int device() const { return device_.load(std::memory_order_relaxed); }
  bool timed() const { return timed_.load(std::memory_order_relaxed); }

  enum class Scope : uint8_t { kProcess, kShared, kImported };
  Scope scope() const { return scope_.load(std::memory_order_relaxed); }
  // Returns the serial number of the event's slot on the page of the process that created it.
  uint64_t serial() const { return serial_.load(std::memory_order_relaxed); }

  // The work that the event has captured, as a position in a stream. If nothing was captured, this
  // is position 0, which every stream has passed. Another thread may change the event at any time,
  // so a caller must read the capture once and use the copy.
  struct Capture {
    Stream* stream;
    uint64_t position;
    bool recorded() const { return position != 0; }
    // Returns whether the event was last recorded in a graph capture (capture.h). Only that capture
    // can interpret the record, which is never complete.
    bool captured() const { return position == kCaptured >> Stream::kIndexBits; }
    bool complete() const { return stream->done() >= position; }
    // Returns whether the stream still exists: it has not been destroyed since the event was
    // recorded.
    bool current() const { return position >= stream->first_position(); }
  };
  Capture capture() const {
    const uint64_t packed = capture_.load(std::memory_order_acquire);
    return {Streams::Get().At(packed & (kStreams - 1)), packed >> Stream::kIndexBits};
  }
  void NoteCaptured();

  orError_t Record(const StreamQueue& queue) {
    if (scope() == Scope::kProcess && !timed()) [[likely]] {
      Note(queue.stream(), queue.stream()->tail());
      return orSuccess;
    }
    return scope() == Scope::kProcess ? RecordTimed(queue) : RecordShared(queue);
  }

  // Reads the work that an imported event currently captures. Fails with `function` in the message
  // if the owner has destroyed the event.
  orError_t ReadImport(const char* function, std::shared_ptr<MappedPage>* page, MarkWord* word);

  // Returns whether the captured work is done from the viewpoint of other processes. This is the
  // case slightly before capture().complete() is true: the mark is a command, and its effect is
  // visible before the command counts as done. Returns false for an event that is not shared.
  bool ReachedByOthers() const;

  // Stores the current time if the record with this number is the latest one. Called when a stream
  // reaches the record's command.
  void Stamp(uint64_t record);

  // Record the event in a replay, in two steps. NewRecord() allocates the record's number, and
  // Note() stores the work that the record captures.
  uint64_t NewRecord();
  void Note(const Stream* stream, uint64_t position) {
    capture_.store((position << Stream::kIndexBits) | stream->index, std::memory_order_release);
  }

  // Returns the time of the record in nanoseconds of the monotonic clock. The time is valid when
  // the captured work is complete.
  int64_t time() const { return time_.load(std::memory_order_acquire); }

 private:
  friend class Events;
  static constexpr uint64_t kStreams = uint64_t{1} << Stream::kIndexBits;
  static constexpr uint64_t kCaptured = ~(kStreams - 1);  // a position that is never reached

  orError_t RecordTimed(const StreamQueue& queue);
  [[gnu::cold, gnu::noinline]] orError_t RecordShared(const StreamQueue& queue);

  std::atomic<uint64_t> capture_{0};
  std::atomic<int> device_{0};
  std::atomic<bool> timed_{false};
  std::atomic<Scope> scope_{Scope::kProcess};
  std::atomic<uint64_t> serial_{0};
  // Guards `page_`. Also guards `record_`, which a stream compares when it stamps a record.
  SpinLock lock_;
  std::shared_ptr<MappedPage> page_;
  uint64_t record_ = 0;  // number of records and destructions so far
  std::atomic<int64_t> time_{0};
};

class Events {
 public:
  static Events& Get();
  Event* Find(orEvent_t handle) const { return table_.Find(reinterpret_cast<uint64_t>(handle)); }
  orError_t Create(int device, unsigned flags, orEvent_t* handle);
  orError_t CreateImported(int device, std::shared_ptr<MappedPage> page, uint64_t serial,
                           orEvent_t* handle);
  orError_t Destroy(orEvent_t handle);
  void DestroyAll(int device);

 private:
  Event* Take(int device);

  HandleTable<Event, 20, 2> table_;
};

// Looks up the event of a handle. Fails with `function` in the message if there is none.
orError_t FindEvent(const char* function, orEvent_t handle, Event** event);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_EVENT_H_
