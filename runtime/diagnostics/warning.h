// SPDX-License-Identifier: BSD-3-Clause
//
// Warnings of kernels. torch passes a TORCH_WARN to the warning handler of the calling thread, and
// a worker of the device has none of the program's handlers. A worker therefore stores the warnings
// of its kernels, and the next thread that synchronizes gets them: in Python as `warnings.warn`.
//
// This is needed where kernels are host functions. torch does not require it from a device, so it
// is not part of runtime/c10. Threads: any.
#ifndef RUNTIME_DIAGNOSTICS_WARNING_H_
#define RUNTIME_DIAGNOSTICS_WARNING_H_

#include <c10/util/Exception.h>

#include "runtime/device/openreg.h"

namespace openreg {

// Returns a handler that stores warnings. A worker sets it while it runs a kernel.
OPENREG_API c10::WarningHandler* kernel_warning_handler() noexcept;

// Passes all stored warnings to the handler of the calling thread. Costs one relaxed load if there
// are none.
void deliver_warnings();

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_WARNING_H_
