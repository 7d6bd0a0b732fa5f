// SPDX-License-Identifier: BSD-3-Clause
//
// Kernel warnings. torch passes a TORCH_WARN to the warning handler of the calling thread. The
// program's handlers are not installed on the device's worker threads. A worker therefore stores
// the warnings of its kernels. The next thread that synchronizes receives them, in Python through
// `warnings.warn`.
//
// This is necessary where kernels are host functions. torch does not require it from a device, so
// it is not part of runtime/c10. Any thread may call these functions.
#ifndef RUNTIME_DIAGNOSTICS_WARNING_H_
#define RUNTIME_DIAGNOSTICS_WARNING_H_

#include <c10/util/Exception.h>

#include "runtime/device/openreg.h"

namespace openreg {

// Returns a handler that stores warnings. A worker installs it while it runs a kernel.
OPENREG_API c10::WarningHandler* kernel_warning_handler() noexcept;

// Passes all stored warnings to the calling thread's handler. If there are none, costs one relaxed
// load.
void deliver_warnings();

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_WARNING_H_
