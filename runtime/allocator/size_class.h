// SPDX-License-Identifier: BSD-3-Clause
//
// The allocator's block sizes. Requests of up to kLargestClass bytes are rounded up to one of
// kSizeClasses sizes: multiples of 64 up to 512, then four per doubling, so that at most a fifth of
// a block above 512 bytes is wasted. Larger requests are rounded up to kRangeGranule. Requests of
// up to kLargestSmall come from small segments ("small pool" in the statistics), and others from
// large ones.
#ifndef RUNTIME_ALLOCATOR_SIZE_CLASS_H_
#define RUNTIME_ALLOCATOR_SIZE_CLASS_H_

#include <algorithm>
#include <bit>
#include <cstddef>

namespace openreg::allocator {

inline constexpr size_t kKiB = 1024;
inline constexpr size_t kMiB = 1024 * kKiB;

inline constexpr size_t kAlignment = 64;  // of every block: a cache line, an AVX-512 register
inline constexpr size_t kLargestClass = 256 * kKiB;
inline constexpr int kSizeClasses = 44;
inline constexpr size_t kRangeGranule = 2 * kKiB;
inline constexpr size_t kLargestSmall = kMiB;

inline constexpr size_t kSmallSegment = 2 * kMiB;
inline constexpr size_t kLargeSegment = 20 * kMiB;
// A request of at least this size gets its own segment, rounded up to kSegmentGranule.
inline constexpr size_t kOwnSegment = 10 * kMiB;
inline constexpr size_t kSegmentGranule = 2 * kMiB;
// The granule to which a segment is rounded up if the device has no room for one of the usual size.
inline constexpr size_t kTightSegmentGranule = 64 * kKiB;

inline constexpr size_t round_up(size_t bytes, size_t granule) {
  return (bytes + granule - 1) / granule * granule;
}

// Returns the class for a request of `bytes` bytes, from 1 to kLargestClass.
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

// Returns the size of a slab, the run of blocks of one class: 64 KiB or eight blocks (four above 32
// KiB), whichever is larger. With this size, slabs are created rarely, and a class that is used
// once does not hold much memory.
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
