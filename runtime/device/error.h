// SPDX-License-Identifier: BSD-3-Clause
//
// error.h - each thread's last error, as a code and as text.
//
// Successful calls run none of this code. A thread's first failure allocates a text buffer, which
// is freed when the thread ends. Any thread may call these functions; signal handlers must not call
// them.
#ifndef RUNTIME_DEVICE_ERROR_H_
#define RUNTIME_DEVICE_ERROR_H_

#include <cstddef>
#include <initializer_list>

#include "runtime/device/openreg.h"

namespace openreg::device {

class KernelError;

// Sets this thread's last error to `error`. The detail is "openreg: " followed by the formatted
// text. Returns `error`.
[[gnu::format(printf, 2, 3), gnu::cold, gnu::noinline]]
orError_t Fail(orError_t error, const char* format, ...);

// A parameter of a function of openreg.h.
struct PointerParameter {
  const char* name;
  const void* pointer;
};

// Checks the pointers that a caller passed to a function. If one is null, sets this thread's last
// error to orErrorInvalidValue, with the name of the first such parameter. Returns the error, or
// orSuccess.
orError_t CheckNotNull(const char* function, std::initializer_list<PointerParameter> parameters);

// Sets this thread's last error to a kernel's error and returns the error's code. The thread
// becomes the owner of the payload, and `error` is deleted.
[[gnu::cold, gnu::noinline]] orError_t Fail(KernelError* error);

// Formats a number of bytes as text, for example "1.5 GiB". The text exists as long as the object.
class ByteText {
 public:
  explicit ByteText(size_t bytes);
  const char* c_str() const { return text_; }

 private:
  char text_[32];
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_ERROR_H_
