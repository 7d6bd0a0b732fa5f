// SPDX-License-Identifier: BSD-3-Clause
//
// What a component has to do before the first tensor of the device exists, and no import should pay
// for: at the first use of the device, and not when the component is loaded.
#ifndef RUNTIME_C10_INITIALIZATION_H_
#define RUNTIME_C10_INITIALIZATION_H_

#include "runtime/device/openreg.h"

namespace openreg {

// Has initialize() (device.h) call `action` before it returns for the first time, in the thread
// that uses the device first while others wait. For static initializers: libraries are loaded one
// after another, and before the device is used.
OPENREG_API void at_initialization(void (*action)());

}  // namespace openreg

#endif  // RUNTIME_C10_INITIALIZATION_H_
