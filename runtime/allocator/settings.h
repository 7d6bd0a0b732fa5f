// SPDX-License-Identifier: BSD-3-Clause
//
// Settings - what a user may choose about a caching allocator; the defaults change nothing.
#ifndef RUNTIME_ALLOCATOR_SETTINGS_H_
#define RUNTIME_ALLOCATOR_SETTINGS_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <vector>

#include "runtime/allocator/size_class.h"

namespace openreg::allocator {

// Which large ranges may be divided. One of `largest` bytes or more is kept whole: only a request
// of that size gets it, and only if no more than `slack` bytes of it are left over.
struct SplitLimit {
  size_t largest = std::numeric_limits<size_t>::max();
  size_t slack = 20 * kMiB;

  // None is divided, and any may serve a smaller request.
  static SplitLimit whole() { return {.largest = 0, .slack = std::numeric_limits<size_t>::max()}; }

  // Whether a range of `size` bytes may serve a request of `wanted`, which it has room for.
  bool fits(size_t size, size_t wanted) const {
    return wanted < largest ? size < largest : size - wanted <= slack;
  }
};

struct Settings {
  SplitLimit split{};

  // Requests are rounded up to one of so many equal steps between two powers of two; 0 and 1: to
  // none. [i] is for sizes from 2^(i + 20) bytes on; the first is for smaller ones too, the last
  // for larger ones too. Empty: no rounding.
  std::vector<size_t> divisions{};

  // Of requests between kLargestSmall and kOwnSegment.
  size_t large_segment = kLargeSegment;

  // When the segments would be more than this part of what the allocator may hold, those unused for
  // longest go back before another is taken. 0: only when there is no room.
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
