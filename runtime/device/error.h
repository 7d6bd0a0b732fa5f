// SPDX-License-Identifier: BSD-3-Clause
//
// error.h - the last error of each thread, as a code and as text.
//
// Successful calls run none of this code. The first failure of a thread allocates its text buffer,
// which is freed when the thread ends. Callable from every thread, but not from a signal handler.
#ifndef RUNTIME_DEVICE_ERROR_H_
#define RUNTIME_DEVICE_ERROR_H_

#include <cstddef>

#include "runtime/device/openreg.h"

namespace openreg::device {

class KernelError;

// Sets the last error of this thread to `error`, with "openreg: " and the formatted text as its
// detail. Returns `error`.
[[gnu::format(printf, 2, 3), gnu::cold, gnu::noinline]]
orError_t Fail(orError_t error, const char* format, ...);

// Sets the last error of this thread to the error of a kernel, and returns its code. The thread
// takes ownership of the payload; `error` is deleted.
[[gnu::cold, gnu::noinline]] orError_t Fail(KernelError* error);

// Formats a number of bytes as text, e.g. "1.5 GiB". The text is valid as long as the object.
class ByteText {
 public:
  explicit ByteText(size_t bytes);
  const char* c_str() const { return text_; }

 private:
  char text_[32];
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_ERROR_H_
