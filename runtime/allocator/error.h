// SPDX-License-Identifier: BSD-3-Clause
//
// The allocator's exceptions. The text of each exception is complete: it states the request, the
// situation and the remedy. The layer above converts the exception to its own type and adds
// nothing.
#ifndef RUNTIME_ALLOCATOR_ERROR_H_
#define RUNTIME_ALLOCATOR_ERROR_H_

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "runtime/device/openreg.h"

namespace openreg::allocator {

// Returns the driver's text for `error`, which a driver call on this thread has just returned. If
// the driver stored no text for it, the text names the error code, and the function if `call` is
// the source text of the call, such as "orEventRecord(event, stream)".
OPENREG_API std::string driver_text(orError_t error, std::string_view call = {});

class OPENREG_API Error : public std::runtime_error {
 public:
  Error(orError_t code, const std::string& message) : std::runtime_error(message), code_(code) {}
  // Returns the error code, which comes from the driver or from the allocator itself. If it comes
  // from the driver, the driver has also set the thread's last error and its detail.
  orError_t code() const { return code_; }

 private:
  orError_t code_;
};

class OPENREG_API OutOfMemoryError : public Error {
 public:
  // The state when the last attempt failed. All sizes are in bytes.
  struct Figures {
    int device = 0;
    size_t asked = 0;
    size_t allocated = 0;     // size of the blocks that the program owns
    size_t reserved = 0;      // total size of this allocator's segments
    size_t cached = 0;        // the free part of `reserved`
    size_t private_free = 0;  // the part of `cached` that belongs to private pools in use
    size_t largest_free = 0;  // size of the largest free range in any stream's segments
    size_t device_free = 0;   // bytes that the device can still provide
    size_t device_total = 0;
    // The allocator's limit, if the limit caused the failure.
    std::optional<size_t> limit = std::nullopt;
    std::string reason;  // the driver's error text; may be empty
  };
  explicit OutOfMemoryError(const Figures& figures);
  const Figures& figures() const { return figures_; }

 private:
  Figures figures_;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_ERROR_H_
