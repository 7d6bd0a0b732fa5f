// SPDX-License-Identifier: BSD-3-Clause
//
// Kernel warnings. torch passes a TORCH_WARN to the calling thread's warning handler, and the
// device's workers have none of the program's handlers. A worker therefore stores its kernels'
// warnings, and the next thread that synchronizes gets them, in Python as `warnings.warn`.
//
// This is needed where kernels are host functions. torch does not require it from a device, so it
// is not part of runtime/c10. Any thread may call these functions.
#ifndef RUNTIME_DIAGNOSTICS_WARNING_H_
#define RUNTIME_DIAGNOSTICS_WARNING_H_

#include <c10/util/Exception.h>

#include "runtime/device/openreg.h"

namespace openreg {

// Returns a handler that stores warnings. A worker sets it while it runs a kernel.
OPENREG_API c10::WarningHandler* kernel_warning_handler() noexcept;

// Passes all stored warnings to the calling thread's handler. Costs one relaxed load if there are
// none.
void deliver_warnings();

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_WARNING_H_
