// SPDX-License-Identifier: BSD-3-Clause
//
// error.h - the last error of each thread, as a number and as text.
//
// Nothing here runs while calls succeed: the text buffer of a thread is allocated by its first
// failure and freed when the thread ends. Callable from every thread, but not from a signal
// handler.
#ifndef RUNTIME_DEVICE_ERROR_H_
#define RUNTIME_DEVICE_ERROR_H_

#include <cstddef>

#include "runtime/device/openreg.h"

namespace openreg::device {

class KernelError;

// Keeps `error` as the last one of this thread, with "openreg: " and the formatted text as its
// detail. Returns `error`.
[[gnu::format(printf, 2, 3), gnu::cold, gnu::noinline]]
orError_t Fail(orError_t error, const char* format, ...);

// Keeps the error of a kernel as the last one of this thread, which takes over its payload and
// deletes it. Returns its code.
[[gnu::cold, gnu::noinline]] orError_t Fail(KernelError* error);

// `bytes` as text, e.g. "1.5 GiB". The text lives as long as the object.
class ByteText {
 public:
  explicit ByteText(size_t bytes);
  const char* c_str() const { return text_; }

 private:
  char text_[32];
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_ERROR_H_
