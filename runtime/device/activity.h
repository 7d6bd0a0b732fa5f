// SPDX-License-Identifier: BSD-3-Clause
//
// activity.h - records of API calls and of the work that they queue, for a profiler.
//
// Each API function that is recorded constructs a CallActivity. If the call queues work, it
// attaches a record without times to that work (CallActivity::ForWork). The record is stored next
// to the command in the stream's ring, or in a graph's replay. The thread that runs the work adds
// the times and writes the record.
//
// Each thread writes to its own buffer. Only a flush takes a buffer away from its thread, by an
// atomic exchange of the pointer. A writer therefore never waits: a thread whose buffer was taken
// requests a new one. While tracing is off, a call costs one relaxed load.
//
// A count of pending records, for both calls and commands, tells a flush whether all records are
// written. A call first increments the count and then checks whether tracing is still on. The end
// of tracing first stores its flag; the flush then reads the count. No call is missed, regardless
// of the order in which the two threads run.
//
// A CallActivity belongs to the thread that constructed it. Any thread may call the other
// functions.
#ifndef RUNTIME_DEVICE_ACTIVITY_H_
#define RUNTIME_DEVICE_ACTIVITY_H_

#include <atomic>
#include <cstdint>

#include "runtime/device/openreg.h"
#include "runtime/device/process.h"

namespace openreg::device {

inline bool Tracing() { return (mode.load(std::memory_order_relaxed) & kTracing) != 0; }

// Returns the current time in nanoseconds, from the clock that all records use.
uint64_t ActivityTime();

void WriteActivity(const orActivity& activity);

// Counts a record that is dropped because it cannot be written.
void DropActivity();

// Count records that will be written. BeginPendingRecords() is called before the command of the
// record is queued, and EndPendingRecords() after its last record has been written.
void BeginPendingRecords();
void EndPendingRecords();

// Returns a copy of `name` in static storage, or null if `name` is null. The copy is necessary
// because the library that contains the name may be unloaded before the profiler reads the record.
const char* InternName(const char* name);

// A scope for an API call. If tracing is on when the scope begins, the call is recorded when the
// scope ends.
class CallActivity {
 public:
  // Specifies whether a flush waits for the call. A flush waits for calls that submit work. It does
  // not wait for calls that themselves wait; these are recorded only if they end while tracing is
  // on.
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

  // Add details to the record of the call. They have no effect if the call is not active.
  void SetStream(int device, uint32_t stream) {
    record_.device = device;
    record_.stream = static_cast<int32_t>(stream);
  }
  void SetObject(const void* object) { record_.object = reinterpret_cast<uint64_t>(object); }
  void SetBytes(uint64_t bytes) { record_.bytes = bytes; }
  void SetGraph(int32_t graph) { record_.graph = graph; }

  // Returns a record for the work that this call is queueing. The caller must set its kind and
  // name.
  orActivity ForWork() const;

 private:
  [[gnu::cold, gnu::noinline]] void Begin(const char* function, Kind kind);
  [[gnu::cold, gnu::noinline]] void End();
  static bool BeginPendingCall();

  orActivity record_;
  bool pending_;  // included in the pending count; read only while the call is active
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_ACTIVITY_H_
