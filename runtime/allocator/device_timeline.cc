// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/device_timeline.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "runtime/allocator/current_device.h"

namespace openreg::allocator {
namespace {

orEvent_t event_of(Mark mark) { return reinterpret_cast<orEvent_t>(mark); }

// A stream that was destroyed runs what it had queued, but nothing can be asked about it any more.
void wait_for_every_device() {
  int count = 0;
  check(orGetDeviceCount(&count));
  std::exception_ptr first;
  for (int device = 0; device < count; ++device) {
    try {
      const CurrentDevice current(device);
      check(orDeviceSynchronize());
    } catch (const Error&) {
      first = first != nullptr ? first : std::current_exception();
    }
  }
  if (first != nullptr) {
    std::rethrow_exception(first);
  }
}

}  // namespace

DeviceTimeline::~DeviceTimeline() {
  for (const auto& events : events_) {
    for (orEvent_t event : events) {
      (void)orEventDestroy(event);  // fails only for one that a device reset has destroyed
    }
  }
}

orEvent_t DeviceTimeline::take_event(int device) {
  {
    const std::lock_guard lock(lock_);
    if (auto& events = events_[device]; !events.empty()) {
      orEvent_t event = events.back();
      events.pop_back();
      return event;
    }
  }
  const CurrentDevice current(device);
  orEvent_t event = nullptr;
  check(orEventCreate(&event));
  return event;
}

Mark DeviceTimeline::mark(orStream_t stream) {
  int device = 0;
  const orError_t found = orStreamGetDevice(stream, &device);
  if (found == orErrorInvalidHandle) {
    (void)orGetLastError();
    wait_for_every_device();
    return kNoMark;
  }
  check(found);
  orEvent_t event = take_event(device);
  const Mark mark = reinterpret_cast<Mark>(event);
  if (const orError_t error = orEventRecord(event, stream); error != orSuccess) {
    drop(mark);
    check(error);
  }
  return mark;
}

bool DeviceTimeline::passed(Mark mark) {
  // Every other answer means that nothing is left to wait for: done, or dropped by a reset or the
  // exit.
  return orEventQuery(event_of(mark)) != orErrorNotReady;
}

void DeviceTimeline::wait(Mark mark) {
  // Asks again and again, because orEventSynchronize would take a kernel's error away from the
  // program. Who waits here is out of memory or empties the cache: a millisecond does not matter.
  constexpr std::chrono::microseconds kLongest{1000};
  for (std::chrono::microseconds pause{10}; !passed(mark); pause = std::min(pause * 2, kLongest)) {
    std::this_thread::sleep_for(pause);
  }
}

void DeviceTimeline::drop(Mark mark) {
  int device = 0;
  if (orEventGetDevice(event_of(mark), &device) != orSuccess) {
    return;  // a device reset has destroyed it
  }
  const std::lock_guard lock(lock_);
  events_[device].push_back(event_of(mark));
}

}  // namespace openreg::allocator
