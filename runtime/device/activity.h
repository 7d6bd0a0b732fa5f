// SPDX-License-Identifier: BSD-3-Clause
//
// activity.h - records of calls and of work, for a profiler.
//
// A CallActivity stands in each function of the API that is recorded. Where the call queues work,
// the work takes along a record that lacks its times (CallActivity::ForWork): beside its command in
// the stream's ring, or in a graph's replay. The thread that runs it adds the times and writes it.
//
// Each thread writes to a buffer of its own. Only a flush takes a buffer away from its thread, by
// an exchange of the pointer to it, so that a writer never waits: a thread that finds its buffer
// gone asks for another one. With tracing off, a call costs one relaxed load.
//
// A CallActivity belongs to its thread. The functions may be called from every thread.
#ifndef RUNTIME_DEVICE_ACTIVITY_H_
#define RUNTIME_DEVICE_ACTIVITY_H_

#include <atomic>
#include <cstdint>

#include "runtime/device/openreg.h"
#include "runtime/device/process.h"

namespace openreg::device {

inline bool Tracing() { return (mode.load(std::memory_order_relaxed) & kTracing) != 0; }

// Nanoseconds of the clock of all records.
uint64_t ActivityTime();

void WriteActivity(const orActivity& activity);

// Counts commands that are queued and will be recorded: before the command is queued, and after its
// last record.
void BeginRecordedCommand();
void EndRecordedCommand();

// A call of the API: recorded at the end of its scope, if tracing was on at its beginning.
class CallActivity {
 public:
  explicit CallActivity(const char* function) {
    if (Tracing()) [[unlikely]] {
      Begin(function);
    } else {
      record_.correlation = 0;
    }
  }
  ~CallActivity() {
    if (active()) [[unlikely]] {
      End();
    }
  }
  CallActivity(const CallActivity&) = delete;
  CallActivity& operator=(const CallActivity&) = delete;

  bool active() const { return record_.correlation != 0; }

  // More about the call; without effect unless it is active.
  void SetStream(int device, uint32_t stream) {
    record_.device = device;
    record_.stream = static_cast<int32_t>(stream);
  }
  void SetObject(const void* object) { record_.object = reinterpret_cast<uint64_t>(object); }
  void SetBytes(uint64_t bytes) { record_.bytes = bytes; }

  // The record of a piece of work that this call queues now, without its kind and name.
  orActivity ForWork() const;

 private:
  [[gnu::cold, gnu::noinline]] void Begin(const char* function);
  [[gnu::cold, gnu::noinline]] void End();

  orActivity record_;
};

// What the record of a copy or a fill says about it.
struct CopyDetails {
  orActivityKind kind = orActivityMemcpy;
  uint64_t bytes = 0;  // 0: it is neither
  orMemcpyKind copy = orMemcpyDefault;
  orMemoryType source = orMemoryTypeUnmanaged;
  orMemoryType destination = orMemoryTypeUnmanaged;

  void AddTo(orActivity* record) const {
    record->kind = kind;
    record->bytes = bytes;
    record->copy = copy;
    record->source = source;
    record->destination = destination;
  }
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_ACTIVITY_H_
