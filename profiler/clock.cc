// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/clock.h"

#include <chrono>
#include <limits>

namespace openreg {
namespace {

template <class Clock>
int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

}  // namespace

ClockMap::Reading ClockMap::read() {
  // Take several readings and keep the best one: the one with the shortest time between its two
  // reads of the driver's clock.
  Reading best;
  int64_t shortest = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 8; ++i) {
    const int64_t before = now<std::chrono::steady_clock>();
    const int64_t wall = now<std::chrono::system_clock>();
    const int64_t after = now<std::chrono::steady_clock>();
    if (after - before < shortest) {
      shortest = after - before;
      best = {before + (after - before) / 2, wall};
    }
  }
  return best;
}

int64_t ClockMap::unix_ns(uint64_t monotonic_ns) const {
  const auto time = static_cast<int64_t>(monotonic_ns);
  const int64_t length = last_.monotonic - first_.monotonic;
  if (length <= 0) {
    return time + first_.offset();
  }
  const double part = static_cast<double>(time - first_.monotonic) / static_cast<double>(length);
  const auto drift = static_cast<double>(last_.offset() - first_.offset());
  return time + first_.offset() + static_cast<int64_t>(part * drift);
}

}  // namespace openreg
