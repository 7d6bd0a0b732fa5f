// SPDX-License-Identifier: BSD-3-Clause
//
// ClockMap - converts times on the driver's clock (CLOCK_MONOTONIC) to the clock of traces (Unix
// time in nanoseconds).
//
// The two clocks may drift apart while the system clock is being adjusted, so the map interpolates
// between readings from the beginning and the end of a session. It is a plain value, which any
// thread may read.
#ifndef PROFILER_CLOCK_H_
#define PROFILER_CLOCK_H_

#include <cstdint>

namespace openreg {

class ClockMap {
 public:
  // Take a reading of both clocks at the beginning and at the end of a session.
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
