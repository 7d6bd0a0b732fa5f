// SPDX-License-Identifier: BSD-3-Clause
//
// The allocator's block sizes. Requests of up to kLargestClass bytes are rounded up to one of
// kSizeClasses sizes. These are multiples of 64 up to 512, then four sizes per doubling, so at most
// a fifth of a block above 512 bytes is wasted. Larger requests are rounded up to kRangeGranule.
// Requests of up to kLargestSmall bytes use small segments ("small pool" in the statistics). All
// others use large segments.
#ifndef RUNTIME_ALLOCATOR_SIZE_CLASS_H_
#define RUNTIME_ALLOCATOR_SIZE_CLASS_H_

#include <algorithm>
#include <bit>
#include <cstddef>

namespace openreg::allocator {

inline constexpr size_t kKiB = 1024;
inline constexpr size_t kMiB = 1024 * kKiB;

// The alignment of every block: the size of a cache line and of an AVX-512 register.
inline constexpr size_t kAlignment = 64;
inline constexpr size_t kLargestClass = 256 * kKiB;
inline constexpr int kSizeClasses = 44;
inline constexpr size_t kRangeGranule = 2 * kKiB;
inline constexpr size_t kLargestSmall = kMiB;

inline constexpr size_t kSmallSegment = 2 * kMiB;
inline constexpr size_t kLargeSegment = 20 * kMiB;
// A request of at least this size gets its own segment, rounded up to kSegmentGranule.
inline constexpr size_t kOwnSegment = 10 * kMiB;
inline constexpr size_t kSegmentGranule = 2 * kMiB;
// If the device has no room for a segment of the usual size, the size is rounded up to this granule
// instead.
inline constexpr size_t kTightSegmentGranule = 64 * kKiB;

inline constexpr size_t round_up(size_t bytes, size_t granule) {
  return (bytes + granule - 1) / granule * granule;
}

// Returns the size class for a request of `bytes` bytes (1 to kLargestClass).
inline constexpr int size_class(size_t bytes) {
  const size_t last = bytes - 1;
  if (last < 512) {
    return static_cast<int>(last / 64);
  }
  const int log = std::bit_width(last) - 1;  // from 9 to 17
  return 8 + (log - 9) * 4 + static_cast<int>((last >> (log - 2)) & 3);
}

inline constexpr size_t class_bytes(int size_class) {
  if (size_class < 8) {
    return (static_cast<size_t>(size_class) + 1) * 64;
  }
  const int log = (size_class - 8) / 4 + 9;
  return static_cast<size_t>((size_class - 8) % 4 + 5) << (log - 2);
}

// Returns the size of a slab of this class: 64 KiB or eight blocks (four blocks above 32 KiB),
// whichever is larger. Slabs of this size are created rarely. On the other hand, a class that is
// used only once does not reserve much memory.
inline constexpr size_t slab_bytes(int size_class) {
  const size_t bytes = class_bytes(size_class);
  const size_t blocks = bytes > 32 * kKiB ? 4 : 8;
  return std::max(bytes * blocks, 64 * kKiB);
}

static_assert(size_class(kLargestClass) == kSizeClasses - 1);
static_assert(class_bytes(kSizeClasses - 1) == kLargestClass);
static_assert(slab_bytes(kSizeClasses - 1) <= kSmallSegment);

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_SIZE_CLASS_H_
