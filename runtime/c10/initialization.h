// SPDX-License-Identifier: BSD-3-Clause
//
// initialization.h - actions that run when the device is first used. A component registers an
// action for work that must be done before the first tensor on the device exists, but that would
// make every import slower if it ran when the library is loaded.
#ifndef RUNTIME_C10_INITIALIZATION_H_
#define RUNTIME_C10_INITIALIZATION_H_

#include "runtime/device/openreg.h"

namespace openreg {

// Registers an action. The first call to initialize() (device.h) runs the actions before it
// returns, on the calling thread; other threads wait until the actions are done. If an action
// throws, initialize() throws, and its next call starts again with the first action. Only static
// initializers may call this function: they run one after another, before the device is used.
OPENREG_API void at_initialization(void (*action)());

}  // namespace openreg

#endif  // RUNTIME_C10_INITIALIZATION_H_
