// SPDX-License-Identifier: BSD-3-Clause
//
// Warnings of kernels. torch hands a TORCH_WARN to the warning handler of its thread, and a worker
// of the device has none of the program's. So a worker keeps the warnings of its kernels, and the
// thread that synchronizes next gets them: in Python a `warnings.warn` there.
//
// Needed where kernels are functions of the host. torch does not require it of a device, which is
// why it is not part of runtime/c10. Threads: any.
#ifndef RUNTIME_DIAGNOSTICS_WARNING_H_
#define RUNTIME_DIAGNOSTICS_WARNING_H_

#include <c10/util/Exception.h>

#include "runtime/device/openreg.h"

namespace openreg {

// A handler that keeps warnings, to be set on a worker while it runs a kernel.
OPENREG_API c10::WarningHandler* kernel_warning_handler() noexcept;

// Hands all warnings that were kept to the handler of the calling thread. One relaxed load if there
// are none.
void deliver_warnings();

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_WARNING_H_
