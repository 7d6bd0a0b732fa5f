// SPDX-License-Identifier: BSD-3-Clause
//
// DeviceScope - changes the calling thread's current device for the duration of a scope.
#ifndef RUNTIME_ALLOCATOR_DEVICE_SCOPE_H_
#define RUNTIME_ALLOCATOR_DEVICE_SCOPE_H_

#include <string>

#include "runtime/allocator/error.h"
#include "runtime/device/openreg.h"

namespace openreg::allocator {

// Throws an Error with the driver's error detail if `error` is not orSuccess.
inline void check(orError_t error) {
  if (error != orSuccess) [[unlikely]] {
    throw Error(error, driver_text(error));
  }
}

class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    check(orGetDevice(&before_));
    if (before_ != device) {
      check(orSetDevice(device));
      changed_ = true;
    }
  }
  ~DeviceScope() {
    if (changed_) {
      (void)orSetDevice(before_);  // cannot fail, because it was the current device before
    }
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_DEVICE_SCOPE_H_
