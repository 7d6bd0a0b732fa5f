// SPDX-License-Identifier: BSD-3-Clause
//
// How an exception of a kernel reaches the program. A kernel runs on a worker and must not throw;
// it catches the exception and leaves it with its stream's error, as a payload
// (openreg_emulation.h). The call that reports that error throws the exception again, with its type
// kept and the name of the operator added: c10's throw_error() does so by the hook that this
// package registers. Threads: any.
#ifndef RUNTIME_EMULATION_KERNEL_ERROR_H_
#define RUNTIME_EMULATION_KERNEL_ERROR_H_

#include <exception>

#include "runtime/device/openreg_emulation.h"

namespace openreg {

// Inside a kernel, in a catch block: leaves the exception with the stream. Returns what the kernel
// has to return.
orError_t fail_kernel(std::exception_ptr exception) noexcept;

}  // namespace openreg

#endif  // RUNTIME_EMULATION_KERNEL_ERROR_H_
