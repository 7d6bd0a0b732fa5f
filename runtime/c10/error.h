// SPDX-License-Identifier: BSD-3-Clause
//
// error.h - converts device errors to PyTorch exceptions.
//
// The driver (runtime/device) returns an orError_t and a message. torch needs a C++ exception,
// whose type determines the Python exception. Only this file converts driver errors to exceptions.
// If kernels can throw exceptions, the driver's package registers a hook that rethrows them.
//
// Any thread may call these functions.
#ifndef RUNTIME_C10_ERROR_H_
#define RUNTIME_C10_ERROR_H_

#include <c10/macros/Macros.h>

#include "runtime/device/openreg.h"

namespace openreg {

// Throws the exception for `error`, with the calling thread's last error detail:
//   orErrorLaunchFailure  the kernel's own exception if it has one, otherwise as for "others"
//   orErrorNotSupported   c10::NotImplementedError (NotImplementedError, a RuntimeError)
//   orErrorOutOfMemory    c10::OutOfMemoryError (torch.OutOfMemoryError)
//   orErrorInvalidDevice, orErrorForked  c10::Error (RuntimeError) with torch's own message
//   others                c10::AcceleratorError (torch.AcceleratorError, a RuntimeError) with
//                         `error` as its error_code
// If the driver stored no text for the error, the text names the function in `call`, the source
// text of the call.
[[noreturn]] OPENREG_API void throw_error(orError_t error, const char* call = "");

// A hook that throw_error() calls for a kernel error. It throws the kernel's exception, or returns
// if there is none. A process has at most one hook; a static initializer registers it.
using RethrowKernelException = void (*)();
OPENREG_API void set_kernel_exception_hook(RethrowKernelException rethrow);

// Returns whether the driver call that returned `error` is supported: false for
// orErrorNotSupported, which it clears, so that the caller can do without the call. Throws for
// other errors.
OPENREG_API bool driver_supports(orError_t error);

}  // namespace openreg

// Evaluates a driver call and throws if it did not succeed.
#define OPENREG_CHECK(EXPR)                         \
  do {                                              \
    const orError_t openreg_error = (EXPR);         \
    if (C10_UNLIKELY(openreg_error != orSuccess)) { \
      ::openreg::throw_error(openreg_error, #EXPR); \
    }                                               \
  } while (0)

#endif  // RUNTIME_C10_ERROR_H_
