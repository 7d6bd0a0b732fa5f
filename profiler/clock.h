// SPDX-License-Identifier: BSD-3-Clause
//
// ClockMap - converts times on the driver's clock (CLOCK_MONOTONIC) to times on the clock of traces
// (Unix time in nanoseconds).
//
// While the system clock is being adjusted, the two clocks may drift apart. Therefore the map
// interpolates between a reading at the beginning of a session and one at its end. A ClockMap is a
// plain value, which any thread may read.
#ifndef PROFILER_CLOCK_H_
#define PROFILER_CLOCK_H_

#include <cstdint>

namespace openreg {

class ClockMap {
 public:
  // Read both clocks at the beginning and at the end of a session.
  void begin() { first_ = last_ = read(); }
  void end() { last_ = read(); }

  int64_t unix_ns(uint64_t monotonic_ns) const;

 private:
  struct Reading {
    int64_t monotonic = 0;
    int64_t wall = 0;
    int64_t offset() const { return wall - monotonic; }
  };
  static Reading read();

  Reading first_;
  Reading last_;
};

}  // namespace openreg

#endif  // PROFILER_CLOCK_H_
