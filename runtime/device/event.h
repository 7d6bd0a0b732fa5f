// SPDX-License-Identifier: BSD-3-Clause
//
// event.h - a point in a stream's queue.
//
// Recording an event without timing queues nothing: it notes the stream and how many commands were
// queued so far, in one word, and is complete when that many are done. Who waits reads the word
// once, so recording the event again does not change a wait that is under way. The note stays
// meaningful after its stream was destroyed, because positions are never reset and a destroyed
// stream drains.
//
// An event with timing notes the clock too: at once if the stream is idle, else by a command which
// is part of what it captures.
//
// An event between processes notes a mark as well, on the board of its process (board.h), where
// others look. An imported one has nothing but the other board and its slot there.
//
// Events are created in a table and never freed. All functions may be called from every thread.
#ifndef RUNTIME_DEVICE_EVENT_H_
#define RUNTIME_DEVICE_EVENT_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "runtime/device/board.h"
#include "runtime/device/futex.h"
#include "runtime/device/handle.h"
#include "runtime/device/openreg.h"
#include "runtime/device/stream.h"

namespace openreg::device {

class alignas(64) Event : public HandleSlot {
 public:
  int device() const { return device_.load(std::memory_order_relaxed); }
  bool timed() const { return timed_.load(std::memory_order_relaxed); }

  enum class Scope : uint8_t { kProcess, kShared, kImported };
  Scope scope() const { return scope_.load(std::memory_order_relaxed); }
  // Of its slot, on the own board or on the peer's.
  uint64_t serial() const { return serial_.load(std::memory_order_relaxed); }

  // What was captured: nothing is position 0, which every stream has passed. It may change at any
  // time, so it is read once, and all that is asked is asked of what was read.
  struct Capture {
    Stream* stream;
    uint64_t position;
    bool recorded() const { return position != 0; }
    // Recorded by the capture of a graph (graph.h), and not otherwise since: what it stands for is
    // known there, and is never complete.
    bool captured() const { return position == kCaptured >> Streams::kIndexBits; }
    bool complete() const { return stream->done() >= position; }
    // The stream has not been destroyed since.
    bool current() const { return position >= stream->first_position(); }
  };
  Capture capture() const {
    const uint64_t packed = capture_.load(std::memory_order_acquire);
    return {Streams::Get().At(packed & (kStreams - 1)), packed >> Streams::kIndexBits};
  }
  void NoteCaptured();

  orError_t Record(Stream* stream, uint64_t expected);

  // What an imported event captures now; fails in the name of `function` if its owner has
  // destroyed it.
  orError_t ReadImport(const char* function, std::shared_ptr<Peer>* peer, MarkWord* word);

  // Whether other processes see the captured work done. They do a moment before capture() is
  // complete: a mark is a command, and what it tells is told before the command itself counts as
  // done. False for an event that is not shared.
  bool ReachedByOthers() const;

  // Called by a stream that reaches the record with this number.
  void Stamp(uint64_t record);

  // The two halves of a record by a replay: the number of the record, and what it captures.
  uint64_t NewRecord();
  void Note(const Stream* stream, uint64_t position) {
    capture_.store((position << Streams::kIndexBits) | stream->index, std::memory_order_release);
  }

  // Nanoseconds of the monotonic clock; meaningful when the capture is complete.
  int64_t time() const { return time_.load(std::memory_order_acquire); }

 private:
  friend class Events;
  static constexpr uint64_t kStreams = uint64_t{1} << Streams::kIndexBits;
  static constexpr uint64_t kCaptured = ~(kStreams - 1);  // a position that is never reached

  [[gnu::cold, gnu::noinline]] orError_t RecordShared(Stream* stream, uint64_t expected);

  std::atomic<uint64_t> capture_{0};
  std::atomic<int> device_{0};
  std::atomic<bool> timed_{false};
  std::atomic<Scope> scope_{Scope::kProcess};
  std::atomic<uint64_t> serial_{0};
  // Guards `record_`, against a stream that stamps an older record, and `peer_`.
  SpinLock lock_;
  std::shared_ptr<Peer> peer_;
  uint64_t record_ = 0;  // counts records and destructions
  std::atomic<int64_t> time_{0};
};

class Events {
 public:
  static Events& Get();
  Event* Find(orEvent_t handle) const { return table_.Find(reinterpret_cast<uint64_t>(handle)); }
  // An event that is not of this process alone has a slot; an imported one has a peer.
  orError_t Create(int device, unsigned flags, orEvent_t* handle);
  orError_t CreateImported(int device, std::shared_ptr<Peer> peer, uint64_t serial,
                           orEvent_t* handle);
  orError_t Destroy(orEvent_t handle);
  void DestroyAll(int device);

 private:
  Event* Take(int device);

  HandleTable<Event, 20, 2> table_;
};

// The event a handle names; fails otherwise.
orError_t FindEvent(const char* function, orEvent_t handle, Event** event);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_EVENT_H_
