// SPDX-License-Identifier: BSD-3-Clause
//
// kernel_error.h - passes kernel exceptions to the program. A kernel runs on a worker thread and
// must not throw. It catches the exception and stores it as the payload of its stream's error
// (openreg_emulation.h). The call that reports the error rethrows the exception with its original
// type and adds the operator's name. c10's throw_error() does so through a hook that this package
// registers. Any thread may call this function.
#ifndef RUNTIME_EMULATION_KERNEL_ERROR_H_
#define RUNTIME_EMULATION_KERNEL_ERROR_H_

#include <exception>

#include "runtime/device/openreg_emulation.h"

namespace openreg {

// Stores the exception with the stream's error. Must be called inside a kernel, in a catch block.
// Returns the value that the kernel must return.
orError_t fail_kernel(std::exception_ptr exception) noexcept;

}  // namespace openreg

#endif  // RUNTIME_EMULATION_KERNEL_ERROR_H_
