// SPDX-License-Identifier: BSD-3-Clause
//
// shutdown.h - shuts the device down while other threads are still inside a call.
//
// After the interpreter has exited, no thread may return to it. If a thread requests the GIL,
// CPython ends it by unwinding its stack. The stack contains code that must not be unwound, so the
// process aborts. For this reason, a thread that waits for the device while another thread shuts it
// down receives no error: it stays in its call until the process exits. Any thread may call these
// functions.
#ifndef RUNTIME_C10_SHUTDOWN_H_
#define RUNTIME_C10_SHUTDOWN_H_

#include "runtime/device/openreg.h"

namespace openreg {

// Calls orShutdown. The calling thread must not call the device afterwards.
OPENREG_API void shut_down() noexcept;

// Returns whether a thread other than the calling one has called shut_down().
bool ends_on_another_thread() noexcept;

}  // namespace openreg

#endif  // RUNTIME_C10_SHUTDOWN_H_
