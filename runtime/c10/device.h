// SPDX-License-Identifier: BSD-3-Clause
//
// Devices as torch counts them: c10::DeviceIndex over the driver's current device.
//
// The current device is a property of the calling thread and lives in the driver; nothing is cached
// here. Threads: any. Functions without noexcept throw c10::Error.
#ifndef RUNTIME_C10_DEVICE_H_
#define RUNTIME_C10_DEVICE_H_

#include <c10/core/Device.h>

#include "runtime/device/openreg.h"

namespace openreg {

constexpr c10::DeviceType kOpenRegType = c10::DeviceType::PrivateUse1;

// Number of devices; 0 if the driver cannot be used, for instance in a forked child. Starts
// nothing.
OPENREG_API c10::DeviceIndex device_count() noexcept;

OPENREG_API c10::DeviceIndex current_device();
OPENREG_API void set_device(c10::DeviceIndex device);
OPENREG_API c10::DeviceIndex exchange_device(c10::DeviceIndex device);

// `device` itself, or the current one for -1; throws if there is no such device.
OPENREG_API c10::DeviceIndex resolve_device(int64_t device);

// Waits for all streams of `device` and throws the first error of a kernel among them.
OPENREG_API void synchronize_device(c10::DeviceIndex device);

// Makes the device ready and runs the registered actions (initialization.h). Throws in a forked
// child. Cheap after the first call.
OPENREG_API void initialize();

// Whether initialize() (or anything that needs it) has run in this process.
OPENREG_API bool is_initialized() noexcept;

// Whether this is the child of a fork after the first use of the device, which it cannot use.
// Python knows it by torch's name, _is_in_bad_fork.
OPENREG_API bool in_forked_child() noexcept;

// Makes `device` current for its lifetime, in torch's terms (allocator::DeviceScope does it below
// torch). Lighter than c10::DeviceGuard: no virtual call.
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
