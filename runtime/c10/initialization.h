// SPDX-License-Identifier: BSD-3-Clause
//
// initialization.h - actions at the first use of the device. They do what a component must do
// before the first tensor on the device exists, but not when its library is loaded, because then
// every import would pay for it.
#ifndef RUNTIME_C10_INITIALIZATION_H_
#define RUNTIME_C10_INITIALIZATION_H_

#include "runtime/device/openreg.h"

namespace openreg {

// Registers an action. initialize() (device.h) calls it before initialize() returns for the first
// time, on the thread that uses the device first; other threads wait until it is done. If an action
// throws, initialize() throws, and the next call starts again with the first action. Only static
// initializers may call this function: they run one after another, before the device is used.
OPENREG_API void at_initialization(void (*action)());

}  // namespace openreg

#endif  // RUNTIME_C10_INITIALIZATION_H_
