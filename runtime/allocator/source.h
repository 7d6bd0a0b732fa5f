// SPDX-License-Identifier: BSD-3-Clause
//
// Source - where a caching allocator gets its segments from and gives them back to: the memory of
// one device. DeviceSource is the real one; tests have their own.
#ifndef RUNTIME_ALLOCATOR_SOURCE_H_
#define RUNTIME_ALLOCATOR_SOURCE_H_

#include <cstddef>
#include <limits>
#include <string>

#include "runtime/device/openreg.h"

namespace openreg::allocator {

// The allocator calls one function of a source at a time, from any thread.
class OPENREG_API Source {
 public:
  virtual ~Source() = default;

  // `size` bytes aligned to 64 or more. Null when there is no room, with the reason in `*reason`;
  // then the allocator makes room and asks again. Throws Error when asking again cannot help.
  virtual void* allocate(size_t size, std::string* reason) = 0;

  // Takes back what allocate() gave. No queued kernel uses it any more.
  virtual void free(void* segment, size_t size) = 0;

  // Gives the pages of free memory back to the system.
  virtual void trim() = 0;

  static constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
  struct Room {
    size_t free = 0;  // bytes that allocate() could still give, were there no limit
    size_t total = 0;
    size_t limit = kNoLimit;  // bytes that the allocator may hold at a time
  };
  virtual Room room() = 0;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_SOURCE_H_
