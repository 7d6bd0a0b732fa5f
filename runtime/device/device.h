// SPDX-License-Identifier: BSD-3-Clause
//
// device.h - the devices as a whole: how many, which one is current, what they are.
#ifndef RUNTIME_DEVICE_DEVICE_H_
#define RUNTIME_DEVICE_DEVICE_H_

#include "runtime/device/openreg.h"

namespace openreg::device {

// orSuccess if there is a device with this index; else fails in the name of `function`.
orError_t CheckDevice(const char* function, int device);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_DEVICE_H_
