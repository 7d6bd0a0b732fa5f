// SPDX-License-Identifier: BSD-3-Clause
//
// Errors of the device as exceptions of PyTorch.
//
// The device (runtime/device) reports an orError_t and a sentence; torch wants a C++ exception
// whose type decides the Python exception. This is the one place where the first becomes the
// second. An exception that a kernel threw on a worker travels as the payload of its stream's error
// and is thrown again here, with its type kept and the operator's name added.
//
// Threads: any.
#ifndef RUNTIME_C10_ERROR_H_
#define RUNTIME_C10_ERROR_H_

#include <c10/macros/Macros.h>

#include <exception>

#include "runtime/device/openreg.h"

namespace openreg {

// Throws what stands for `error`, with the calling thread's last error detail:
//   orErrorLaunchFailure  the kernel's own exception, else c10::Error
//   orErrorOutOfMemory    c10::OutOfMemoryError (torch.OutOfMemoryError)
//   others                c10::Error (RuntimeError)
[[noreturn]] OPENREG_API void throw_error(orError_t error);

// Inside a kernel, in a catch block: keeps the exception with the stream. Returns what the kernel
// has to return.
OPENREG_API orError_t fail_kernel(std::exception_ptr exception) noexcept;

}  // namespace openreg

// Evaluates a call of the driver interface and throws if it did not succeed.
#define OPENREG_CHECK(EXPR)                         \
  do {                                              \
    const orError_t openreg_error = (EXPR);         \
    if (C10_UNLIKELY(openreg_error != orSuccess)) { \
      ::openreg::throw_error(openreg_error);        \
    }                                               \
  } while (0)

#endif  // RUNTIME_C10_ERROR_H_
