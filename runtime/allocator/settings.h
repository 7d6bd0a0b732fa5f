// SPDX-License-Identifier: BSD-3-Clause
//
// Settings - the user's settings for a caching allocator. The default settings do not change the
// allocator's normal behavior.
#ifndef RUNTIME_ALLOCATOR_SETTINGS_H_
#define RUNTIME_ALLOCATOR_SETTINGS_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <vector>

#include "runtime/allocator/size_class.h"

namespace openreg::allocator {

// The rule for splitting large ranges. A range of `largest` bytes or more is never split. It serves
// only requests of at least `largest` bytes that leave at most `slack` bytes of the range unused.
struct SplitLimit {
  size_t largest = std::numeric_limits<size_t>::max();
  size_t slack = 20 * kMiB;

  // Returns the rule under which no range is split and any range may serve a smaller request.
  static SplitLimit whole() { return {.largest = 0, .slack = std::numeric_limits<size_t>::max()}; }

  // Returns whether a range of `size` bytes may serve a request of `wanted` bytes. Requires `wanted
  // <= size`.
  bool fits(size_t size, size_t wanted) const {
    return wanted < largest ? size < largest : size - wanted <= slack;
  }
};

struct Settings {
  SplitLimit split{};

  // Number of equal steps between two powers of two. Requests are rounded up to the next step. 0
  // and 1 mean no rounding. Element [i] applies to sizes from 2^(i + 20) bytes. The first element
  // also applies to smaller sizes, and the last one to larger sizes. If the vector is empty,
  // nothing is rounded.
  std::vector<size_t> divisions{};

  // The segment size for requests between kLargestSmall and kOwnSegment.
  size_t large_segment = kLargeSegment;

  // A fraction of the memory that the allocator may reserve. If a new segment would exceed it, the
  // segments that have been unused longest are returned first. 0 means that segments are returned
  // only when there is no room.
  double collect_above = 0;

  bool rounds() const {
    return std::ranges::any_of(divisions, [](size_t count) { return count > 1; });
  }

  size_t rounded(size_t bytes) const {
    constexpr int kFirstLog = 20;
    if (divisions.empty() || bytes < 2) {
      return bytes;
    }
    const int log = std::bit_width(bytes) - 1;
    const size_t index =
        std::min(static_cast<size_t>(std::max(log - kFirstLog, 0)), divisions.size() - 1);
    const size_t floor = size_t{1} << log;
    if (divisions[index] <= 1 || floor / divisions[index] == 0) {
      return bytes;
    }
    return round_up(bytes, floor / divisions[index]);
  }
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_SETTINGS_H_
