// SPDX-License-Identifier: BSD-3-Clause
//
// DeviceTimeline - the timeline of the real device. Its marks are driver events, which it reuses.
// One object serves the streams of all devices, because a stream of one device may use memory of
// another device.
//
// A captured stream runs nothing, and an event record on it would become part of the graph. The
// mark of such a stream is therefore deferred: the event is recorded after the capture has ended,
// and until that point the mark has not passed.
//
// A DeviceTimeline does not change the calling thread's current device.
#ifndef RUNTIME_ALLOCATOR_DEVICE_TIMELINE_H_
#define RUNTIME_ALLOCATOR_DEVICE_TIMELINE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <unordered_map>
#include <vector>

#include "runtime/allocator/timeline.h"
#include "runtime/device/openreg.h"
#include "runtime/sync/spin_lock.h"

namespace openreg::allocator {

class OPENREG_API DeviceTimeline : public Timeline {
 public:
  DeviceTimeline() = default;
  ~DeviceTimeline() override;
  DeviceTimeline(const DeviceTimeline&) = delete;
  DeviceTimeline& operator=(const DeviceTimeline&) = delete;

  static bool is_captured(orStream_t stream);

  bool may_wait() override { return orInKernel() == 0; }
  Mark mark(orStream_t stream) override;
  bool passed(Mark mark) override;
  void wait(Mark mark) override;
  void drop(Mark mark) override;

 private:
  orError_t take_event(int device, orEvent_t* event);
  orError_t try_mark(orStream_t stream, Mark* mark);
  // Records the event of a deferred mark if this is possible now. Returns whether the mark is still
  // deferred.
  bool is_deferred(Mark mark);

  SpinLock lock_;
  std::array<std::vector<orEvent_t>, OPENREG_MAX_DEVICES> events_;  // unused events by device
  std::unordered_map<Mark, orStream_t> deferred_;
  std::atomic<size_t> deferred_count_{0};
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_DEVICE_TIMELINE_H_
