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
// A count of pending records, of calls and of commands, tells a flush when it has all of them. A
// call adds itself and then looks whether tracing is still on; the end of tracing is a store before
// the flush reads the count: whichever comes first, no call is missed.
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

// Counts a record that cannot be written.
void DropActivity();

// Counts what will be recorded: a command before it is queued, until after its last record.
void BeginPendingRecords();
void EndPendingRecords();

// The same text in static storage: the library that a kernel's name comes from may be unloaded
// before the profiler reads the record. Null for null.
const char* InternName(const char* name);

// A call of the API: recorded at the end of its scope, if tracing was on at its beginning.
class CallActivity {
 public:
  // A flush waits for the end of a call that submits work. One that waits itself is recorded if it
  // ends before tracing does.
  enum Kind : bool { kSubmits, kWaits };

  explicit CallActivity(const char* function, Kind kind = kSubmits) {
    if (Tracing()) [[unlikely]] {
      Begin(function, kind);
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
  void SetGraph(int32_t graph) { record_.graph = graph; }

  // The record of a piece of work that this call queues now, without its kind and name.
  orActivity ForWork() const;

 private:
  [[gnu::cold, gnu::noinline]] void Begin(const char* function, Kind kind);
  [[gnu::cold, gnu::noinline]] void End();
  static bool BeginPendingCall();

  orActivity record_;
  bool pending_;  // counted as such; only read while the call is active
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_ACTIVITY_H_
