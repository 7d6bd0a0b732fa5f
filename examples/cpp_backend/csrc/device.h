// SPDX-License-Identifier: BSD-3-Clause
//
// Declarations that the files of this backend share. The device uses host memory and runs
// everything synchronously. Where a comment says "driver", a real device calls its driver. Any
// thread may use these declarations.
#ifndef EXAMPLES_CPP_BACKEND_CSRC_DEVICE_H_
#define EXAMPLES_CPP_BACKEND_CSRC_DEVICE_H_

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

namespace acme {

inline constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
inline constexpr c10::DeviceIndex kDevices = 2;

// The calling thread's current device.
inline thread_local c10::DeviceIndex current_device = 0;

// Checks a device index and returns it. For -1, returns the index of the current device.
inline c10::DeviceIndex resolve(c10::DeviceIndex index) {
  TORCH_CHECK(index < kDevices, "acme: device index ", static_cast<int>(index),
              " is out of range: ", static_cast<int>(kDevices), " devices");
  return index < 0 ? current_device : index;
}

// Makes a device the calling thread's current device and returns the index of the previous one.
inline c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  const c10::DeviceIndex previous = current_device;
  current_device = resolve(index);
  return previous;
}

// Returns the allocator of device memory, which is never destroyed.
c10::Allocator* allocator();

}  // namespace acme

#endif  // EXAMPLES_CPP_BACKEND_CSRC_DEVICE_H_
