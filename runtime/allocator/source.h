// SPDX-License-Identifier: BSD-3-Clause
//
// Source - the interface through which a caching allocator allocates its segments from the memory
// of one device. DeviceSource is the real implementation; tests use other implementations.
#ifndef RUNTIME_ALLOCATOR_SOURCE_H_
#define RUNTIME_ALLOCATOR_SOURCE_H_

#include <cstddef>
#include <limits>
#include <string>

#include "runtime/device/openreg.h"

namespace openreg::allocator {

// The allocator never calls two functions of a source at the same time, but may call from any
// thread.
class OPENREG_API Source {
 public:
  virtual ~Source() = default;

  // Allocates `size` bytes aligned to 64 bytes or more. If there is no room, stores the reason in
  // `*reason` and returns null; the allocator then frees memory and tries again. Throws Error if a
  // retry cannot help.
  virtual void* allocate(size_t size, std::string* reason) = 0;

  // Frees a segment from allocate(). No queued kernel may use it any more.
  virtual void free(void* segment, size_t size) = 0;

  // Returns the pages of free memory to the operating system.
  virtual void trim() = 0;

  static constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
  struct Room {
    size_t free = 0;  // bytes that allocate() could still provide without a limit
    size_t total = 0;
    size_t limit = kNoLimit;  // bytes that the allocator may own at the same time
  };
  virtual Room room() = 0;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_SOURCE_H_
