// SPDX-License-Identifier: BSD-3-Clause
//
// Warnings of kernels. torch hands a TORCH_WARN to the handler of the thread that it happens on; on
// a worker that would be nobody's. So a worker keeps the warnings of its kernels, and the next
// synchronization gives them to the thread that synchronizes, in Python a `warnings.warn` there.
// Threads: any.
#ifndef RUNTIME_C10_WARNING_H_
#define RUNTIME_C10_WARNING_H_

#include <c10/util/Exception.h>

#include "runtime/device/openreg.h"

namespace openreg {

// The handler that keeps; for c10::WarningUtils::WarningHandlerGuard on a worker.
OPENREG_API c10::WarningHandler* keep_warnings() noexcept;

// Gives all that was kept to the calling thread's own handler. One atomic load when there is
// nothing.
OPENREG_API void deliver_warnings();

}  // namespace openreg

#endif  // RUNTIME_C10_WARNING_H_
