// SPDX-License-Identifier: BSD-3-Clause
//
// DeviceTimeline - marks by events of the driver, which are kept for their next use. One object
// serves the streams of all devices; a stream may be of another device than the memory that it
// uses.
//
// Leaves the calling thread's current device as it was.
#ifndef RUNTIME_ALLOCATOR_DEVICE_TIMELINE_H_
#define RUNTIME_ALLOCATOR_DEVICE_TIMELINE_H_

#include <array>
#include <vector>

#include "runtime/allocator/spin_lock.h"
#include "runtime/allocator/timeline.h"
#include "runtime/device/openreg.h"

namespace openreg::allocator {

class OPENREG_API DeviceTimeline : public Timeline {
 public:
  DeviceTimeline() = default;
  ~DeviceTimeline() override;
  DeviceTimeline(const DeviceTimeline&) = delete;
  DeviceTimeline& operator=(const DeviceTimeline&) = delete;

  bool may_wait() override { return orInKernel() == 0; }
  Mark mark(orStream_t stream) override;
  bool passed(Mark mark) override;
  void wait(Mark mark) override;
  void drop(Mark mark) override;

 private:
  orError_t take_event(int device, orEvent_t* event);
  orError_t try_mark(orStream_t stream, Mark* mark);

  SpinLock lock_;
  std::array<std::vector<orEvent_t>, OPENREG_MAX_DEVICES> events_;  // not in use, by device
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_DEVICE_TIMELINE_H_
