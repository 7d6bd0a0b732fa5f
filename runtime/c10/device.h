// SPDX-License-Identifier: BSD-3-Clause
//
// device.h - devices in torch's terms: functions that use c10::DeviceIndex and the driver's current
// device.
//
// The driver stores each thread's current device; nothing is cached here. Any thread may call these
// functions. All functions that are not noexcept throw c10::Error.
#ifndef RUNTIME_C10_DEVICE_H_
#define RUNTIME_C10_DEVICE_H_

#include <c10/core/Device.h>

#include "runtime/device/openreg.h"

namespace openreg {

constexpr c10::DeviceType kOpenRegType = c10::DeviceType::PrivateUse1;

// Returns the number of devices. Returns 0 if the driver cannot be used, for example in a forked
// child. Does not initialize the driver.
OPENREG_API c10::DeviceIndex device_count() noexcept;

OPENREG_API c10::DeviceIndex current_device();
OPENREG_API void set_device(c10::DeviceIndex device);
OPENREG_API c10::DeviceIndex exchange_device(c10::DeviceIndex device);

// Returns `device`, or the current device if `device` is -1. Throws if the device does not exist.
OPENREG_API c10::DeviceIndex resolve_device(int64_t device);

// Waits for all streams of `device`. If kernels on them failed, throws the first error.
OPENREG_API void synchronize_device(c10::DeviceIndex device);

// Initializes the device and runs the registered actions (initialization.h). Throws in a forked
// child. Calls after the first one are cheap.
OPENREG_API void initialize();

// Returns whether initialize(), or a function that calls it, has run in this process.
OPENREG_API bool is_initialized() noexcept;

// Returns whether this process was forked after its parent first used the device. Such a process
// cannot use the device. torch's Python API calls this _is_in_bad_fork.
OPENREG_API bool in_forked_child() noexcept;

// Makes `device` current for the lifetime of the scope. Use this class where torch is available;
// allocator::DeviceScope is the equivalent for code that does not depend on torch. This class is
// cheaper than c10::DeviceGuard, because it makes no virtual calls.
class DeviceScope {
 public:
  explicit DeviceScope(c10::DeviceIndex device)
      : previous_(exchange_device(device)), device_(device) {}
  ~DeviceScope() {
    if (previous_ != device_) {
      (void)orSetDevice(previous_);
    }
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const c10::DeviceIndex previous_;
  const c10::DeviceIndex device_;
};

}  // namespace openreg

#endif  // RUNTIME_C10_DEVICE_H_
