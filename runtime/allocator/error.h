// SPDX-License-Identifier: BSD-3-Clause
//
// What the allocator throws. The text of each error is complete: what was asked, what was found,
// what to do; the layer above turns it into an exception type of its own and adds nothing.
#ifndef RUNTIME_ALLOCATOR_ERROR_H_
#define RUNTIME_ALLOCATOR_ERROR_H_

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>

#include "runtime/device/openreg.h"

namespace openreg::allocator {

class OPENREG_API Error : public std::runtime_error {
 public:
  Error(orError_t code, const std::string& message) : std::runtime_error(message), code_(code) {}
  // The driver's, or the allocator's own. The thread's last error and its detail are the driver's.
  orError_t code() const { return code_; }

 private:
  orError_t code_;
};

class OPENREG_API OutOfMemoryError : public Error {
 public:
  // All in bytes, as found when the last attempt failed.
  struct Figures {
    int device = 0;
    size_t asked = 0;
    size_t allocated = 0;     // in blocks that the program holds
    size_t reserved = 0;      // in segments of this allocator
    size_t cached = 0;        // in those, free
    size_t private_free = 0;  // of that, in private pools that are in use
    size_t largest_free = 0;  // largest free range inside of those segments, of any stream
    size_t device_free = 0;   // what the device could still give
    size_t device_total = 0;
    // What the allocator may hold, if that is what refused.
    std::optional<size_t> limit = std::nullopt;
    std::string reason;  // the driver's own words; may be empty
  };
  explicit OutOfMemoryError(const Figures& figures);
  const Figures& figures() const { return figures_; }

 private:
  Figures figures_;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_ERROR_H_
