// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/device_timeline.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "runtime/allocator/device_scope.h"

namespace openreg::allocator {
namespace {

orEvent_t event_of(Mark mark) { return reinterpret_cast<orEvent_t>(mark); }

// A scope in which this thread may wait for a device even during a capture that forbids such waits.
// The wait is safe, because captured work does not run.
class RelaxedCaptureScope {
 public:
  RelaxedCaptureScope() { check(orThreadExchangeStreamCaptureMode(&mode_)); }
  // The exchange cannot fail, because the mode was valid before.
  ~RelaxedCaptureScope() { (void)orThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCaptureScope(const RelaxedCaptureScope&) = delete;
  RelaxedCaptureScope& operator=(const RelaxedCaptureScope&) = delete;

 private:
  orStreamCaptureMode mode_ = orStreamCaptureModeRelaxed;
};

// Waits for all devices. This covers a destroyed stream: its queued commands still run, but it can
// no longer be queried.
void wait_for_every_device() {
  const RelaxedCaptureScope relaxed;
  int count = 0;
  check(orGetDeviceCount(&count));
  std::exception_ptr first;
  for (int device = 0; device < count; ++device) {
    try {
      const DeviceScope scope(device);
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

bool DeviceTimeline::is_captured(orStream_t stream) {
  orStreamCaptureStatus status = orStreamCaptureStatusNone;
  return orStreamGetCaptureInfo(stream, &status, nullptr) == orSuccess &&
         status != orStreamCaptureStatusNone;
}

DeviceTimeline::~DeviceTimeline() {
  for (const auto& events : events_) {
    for (orEvent_t event : events) {
      (void)orEventDestroy(event);  // fails only if a device reset has destroyed it
    }
  }
}

orError_t DeviceTimeline::take_event(int device, orEvent_t* event) {
  {
    const std::lock_guard lock(lock_);
    if (auto& events = events_[static_cast<size_t>(device)]; !events.empty()) {
      *event = events.back();
      events.pop_back();
      return orSuccess;
    }
  }
  const DeviceScope scope(device);
  return orEventCreate(event);
}

orError_t DeviceTimeline::try_mark(orStream_t stream, Mark* mark) {
  int device = 0;
  if (const orError_t error = orStreamGetDevice(stream, &device); error != orSuccess) {
    return error;
  }
  orEvent_t event = nullptr;
  if (const orError_t error = take_event(device, &event); error != orSuccess) {
    return error;
  }
  *mark = reinterpret_cast<Mark>(event);
  if (is_captured(stream)) {
    const std::lock_guard lock(lock_);
    deferred_.emplace(*mark, stream);
    deferred_count_.store(deferred_.size(), std::memory_order_relaxed);
    return orSuccess;
  }
  const orError_t error = orEventRecord(event, stream);
  if (error != orSuccess) {
    drop(*mark);
  }
  return error;
}

Mark DeviceTimeline::mark(orStream_t stream) {
  Mark mark = kNoMark;
  const orError_t error = try_mark(stream, &mark);
  if (error == orSuccess) {
    return mark;
  }
  (void)orGetLastError();          // this function handles the error
  if (error != orErrorShutdown) {  // after a shutdown, no work runs
    wait_for_every_device();
  }
  return kNoMark;
}

bool DeviceTimeline::is_deferred(Mark mark) {
  if (deferred_count_.load(std::memory_order_relaxed) == 0) {
    return false;
  }
  const std::lock_guard lock(lock_);
  const auto found = deferred_.find(mark);
  if (found == deferred_.end()) {
    return false;
  }
  if (is_captured(found->second)) {
    return true;
  }
  if (orEventRecord(event_of(mark), found->second) != orSuccess) {
    (void)orGetLastError();  // the stream was destroyed, so the captured work never ran
  }
  deferred_.erase(found);
  deferred_count_.store(deferred_.size(), std::memory_order_relaxed);
  return false;
}

bool DeviceTimeline::passed(Mark mark) {
  if (is_deferred(mark)) [[unlikely]] {
    return false;
  }
  // For any result except orErrorNotReady, there is nothing to wait for. The work is done, or was
  // dropped by a device reset or at the exit of the process.
  const orError_t state = orEventQuery(event_of(mark));
  if (state != orSuccess && state != orErrorNotReady) {
    (void)orGetLastError();
  }
  return state != orErrorNotReady;
}

void DeviceTimeline::wait(Mark mark) {
  // Poll: orEventSynchronize would consume a kernel's error, which belongs to the program. The
  // caller is out of memory or is emptying the cache, so a delay of up to a millisecond does not
  // matter.
  constexpr std::chrono::microseconds kLongest{1000};
  for (std::chrono::microseconds pause{10}; !passed(mark); pause = std::min(pause * 2, kLongest)) {
    if (is_deferred(mark)) {
      throw Error(orErrorCaptureUnsupported,
                  "openreg: cannot wait for memory that a captured stream uses until the "
                  "capture has ended: empty the cache or free memory before the capture");
    }
    std::this_thread::sleep_for(pause);
  }
}

void DeviceTimeline::drop(Mark mark) {
  if (deferred_count_.load(std::memory_order_relaxed) != 0) {
    const std::lock_guard lock(lock_);
    deferred_.erase(mark);
    deferred_count_.store(deferred_.size(), std::memory_order_relaxed);
  }
  int device = 0;
  if (orEventGetDevice(event_of(mark), &device) != orSuccess) {
    return;  // a device reset has destroyed the event
  }
  const std::lock_guard lock(lock_);
  events_[static_cast<size_t>(device)].push_back(event_of(mark));
}

}  // namespace openreg::allocator
