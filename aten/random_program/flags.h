// SPDX-License-Identifier: BSD-3-Clause
//
// The flags of random_program_test. They are set before any other thread starts.
#ifndef ATEN_RANDOM_PROGRAM_FLAGS_H_
#define ATEN_RANDOM_PROGRAM_FLAGS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace openreg::programs {

struct Flags {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  uint64_t programs = 100;
#else
  uint64_t programs = 400;
#endif
  uint64_t seed = 1;
  size_t steps = 40;
  size_t threads = 4;
  bool show = false;
  std::string replay;
};

extern Flags flags;

// Parses an argument of the form --name=value.
void set_flag(std::string_view argument);

}  // namespace openreg::programs

#endif  // ATEN_RANDOM_PROGRAM_FLAGS_H_
