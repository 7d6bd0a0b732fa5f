// SPDX-License-Identifier: BSD-3-Clause
//
// The end of the process while other threads are still inside of a call.
//
// When the interpreter has ended, no thread may return to it: CPython ends a thread that asks for
// the GIL by unwinding it, through code that must not be unwound, and the process aborts. So a
// thread that waits for the device while another one ends it gets no error: it stays in its call
// until the process is gone. Threads: any.
#ifndef RUNTIME_C10_SHUTDOWN_H_
#define RUNTIME_C10_SHUTDOWN_H_

#include "runtime/device/openreg.h"

namespace openreg {

// Calls orShutdown. The calling thread makes no other call of the device after it.
OPENREG_API void shut_down() noexcept;

// Whether a thread other than this one has called shut_down().
bool ends_on_another_thread() noexcept;

}  // namespace openreg

#endif  // RUNTIME_C10_SHUTDOWN_H_
